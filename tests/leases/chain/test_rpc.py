"""The RPC client against an HTTP server that answers what a real node answered."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import UUID

import pytest

from leases.chain.errors import ChainUnavailable, ResultsNotYet, ResultsPruned, RpcError
from leases.chain.events import EventType
from leases.chain.rpc import NodeRpc
from tests.leases.chain import vectors

PROVIDER_UUID = UUID(vectors.recording()["ids"]["provider"])


class Server:
    """Answers by method: a member list of the JSON-RPC answer, or a function of the parameters giving one."""

    def __init__(self):
        self.answers = {}
        self.requests = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.requests.append(request)
                answer = server.answers[request["method"]]
                if callable(answer):
                    answer = answer(request["params"])
                body = (
                    answer if isinstance(answer, bytes) else json.dumps({"jsonrpc": "2.0", "id": 1, **answer}).encode()
                )
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                return

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/"


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()
    thread.join(10)


@pytest.fixture
def rpc(server):
    return NodeRpc(server.url, provider_uuid=PROVIDER_UUID, timeout=5)


def _recorded(method, *, error=False):
    for call in vectors.recording()["rpc"]:
        if call["method"] == method and ("error" in call) is error:
            return {"error": call["error"]} if error else {"result": call["result"]}
    raise AssertionError(method)


def _error(data):
    return {"error": {"code": -32603, "message": "Internal error", "data": data}}


def test_a_recorded_status(server, rpc):
    server.answers["status"] = _recorded("status")
    status = rpc.status()
    assert (status.chain_id, status.height, status.earliest_height) == ("manifest-ledger-beta", 39, 1)
    assert status.time.microsecond == 295_389
    assert not status.is_catching_up


def test_recorded_results_of_a_block_tell_of_an_expiry(server, rpc):
    """CH-98"""
    answer = _recorded("block_results")
    server.answers["block_results"] = answer
    height = int(answer["result"]["height"])
    found = rpc.block_events(height)
    assert found
    assert {event.type for event in found} == {EventType.EXPIRED}
    assert {(event.height, event.provider_uuid) for event in found} == {(height, PROVIDER_UUID)}
    assert all(event.attributes["reason"] == "pending_timeout" for event in found)
    assert server.requests[0]["params"] == {"height": str(height)}


def test_a_recorded_search_names_hashes_and_heights(server, rpc):
    answer = _recorded("tx_search")
    answer["result"]["total_count"] = str(len(answer["result"]["txs"]))
    server.answers["tx_search"] = answer
    found = list(rpc.search(f"lease_created.provider_uuid='{PROVIDER_UUID}'"))
    assert found
    assert {event.type for event in found} == {EventType.CREATED}
    assert {event.tx_hash for event in found} == {tx["hash"] for tx in answer["result"]["txs"]}


def test_a_search_walks_all_pages(server, rpc):
    rows = _recorded("tx_search")["result"]["txs"]

    def page(parameters):
        number = int(parameters["page"])
        return {"result": {"txs": rows[number - 1 : number], "total_count": str(len(rows))}}

    server.answers["tx_search"] = page
    assert {event.tx_hash for event in rpc.search("q")} == {row["hash"] for row in rows}
    assert [request["params"]["page"] for request in server.requests] == [str(n + 1) for n in range(len(rows))]


def test_a_search_that_runs_dry_ends(server, rpc):
    server.answers["tx_search"] = {"result": {"txs": [], "total_count": "7"}}
    assert list(rpc.search("q")) == []


def test_events_of_a_failed_transaction_do_not_count(server, rpc):
    events = _recorded("block_results")["result"]["finalize_block_events"]
    results = [{"code": 22, "events": events}, {"code": 0, "events": None}]
    server.answers["block_results"] = {"result": {"height": "5", "txs_results": results}}
    assert rpc.block_events(5) == ()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param(_recorded("block_results", error=True), ResultsNotYet, id="recorded: above the tip"),
        pytest.param(_error("could not find results for height #40"), ResultsNotYet, id="not stored yet"),
        pytest.param(_error("height 3 is not available, lowest height is 20"), ResultsPruned, id="pruned"),
        pytest.param(_error("node is not persisting abci responses"), ResultsPruned, id="never kept"),
        pytest.param(_error("something else"), RpcError, id="another error"),
        pytest.param({"result": {"height": "4"}}, ChainUnavailable, id="another block"),
        pytest.param({"result": {}}, ChainUnavailable, id="wrong shape"),
        pytest.param({}, ChainUnavailable, id="neither result nor error"),
        pytest.param(b"<html>bad gateway</html>", ChainUnavailable, id="no JSON"),
    ],
)
def test_errors_are_told_apart(server, rpc, answer, kind):
    server.answers["block_results"] = answer
    with pytest.raises(kind) as raised:
        rpc.block_events(5)
    assert type(raised.value) is kind
