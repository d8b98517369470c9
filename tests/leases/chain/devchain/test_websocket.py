"""The event stream: queries, frames, limits, and what happens to slow and closed clients."""

from __future__ import annotations

import base64
import json
from decimal import Decimal

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from leases.chain.devchain.query_language import Condition, parse
from tests.devchain_fixture import Wallet

HEADER = "tm.event='NewBlockHeader'"


class Client:
    """Subscribes and reads frames."""

    def __init__(self, socket):
        self.socket = socket

    def ask(self, number, method="subscribe", **params):
        self.socket.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
        return self.read()

    def read(self):
        return json.loads(self.socket.recv(timeout=5))


@pytest.fixture
def client(devchain):
    with connect(devchain.websocket, max_size=None, ping_interval=None) as socket:
        yield Client(socket)


def created(chain):
    return f"tm.event='Tx' AND lease_created.provider_uuid='{chain.provider_uuid}'"


def test_a_subscription_is_confirmed_and_its_frames_carry_its_id(devchain, client):
    query = created(devchain)
    assert client.ask(7, query=query) == {"jsonrpc": "2.0", "id": 7, "result": {}}
    tenant = devchain.keys["t0"].address
    uuid = devchain.create_lease(tenant=tenant)
    frame = client.read()
    assert (frame["id"], frame["result"]["query"]) == (7, query)
    assert frame["result"]["data"]["type"] == "tendermint/event/Tx"
    value = frame["result"]["data"]["value"]["TxResult"]
    assert "index" not in value
    assert value["height"] == str(devchain.height)
    assert {"code", "log", "info", "codespace"}.isdisjoint(value["result"])
    events = frame["result"]["events"]
    assert events["tm.event"] == ["Tx"]
    assert events["tx.height"] == [str(devchain.height)]
    assert events["lease_created.lease_uuid"] == [uuid]
    assert events["lease_created.tenant"] == [tenant]
    assert events["tx.fee"] == [""]


def test_a_signed_transaction_is_in_its_frame_byte_for_byte(devchain, client):
    client.ask(1, query="tm.event='Tx' AND lease_acknowledged.lease_uuid EXISTS")
    raw = Wallet.of(devchain, "provider").ack(devchain.create_leases(2, tenant=devchain.keys["t0"].address))
    checked = devchain.broadcast(raw)
    result = client.read()["result"]
    assert base64.b64decode(result["data"]["value"]["TxResult"]["tx"]) == raw
    assert result["events"]["tx.hash"] == [checked.hash]
    assert len(result["events"]["lease_acknowledged.lease_uuid"]) == 2


def test_an_expiry_is_an_event_of_its_block_and_of_no_transaction(devchain, client):
    """CH-98"""
    client.ask(1, query=f"tm.event='Tx' AND lease_expired.provider_uuid='{devchain.provider_uuid}'")
    client.ask(2, query=f"tm.event='NewBlockEvents' AND lease_expired.provider_uuid='{devchain.provider_uuid}'")
    uuid = devchain.create_lease()
    devchain.expire_lease(uuid)
    frame = client.read()
    assert frame["id"] == 2
    value = frame["result"]["data"]["value"]
    assert set(value) == {"height", "events", "num_txs"}
    last = {attribute["key"]: attribute["value"] for attribute in value["events"][-1]["attributes"]}
    assert (last["lease_uuid"], last["reason"], last["mode"]) == (uuid, "pending_timeout", "EndBlock")
    assert frame["result"]["events"]["lease_expired.lease_uuid"] == [uuid]
    assert "tx.hash" not in frame["result"]["events"]


def test_headers_come_before_block_events(devchain, client):
    client.ask(1, query=HEADER)
    client.ask(2, query="tm.event='NewBlockEvents'")
    client.ask(3, query="tm.event='NewBlock'")
    height = devchain.produce_block()
    frames = [client.read() for _ in range(3)]
    assert [frame["id"] for frame in frames] == [3, 1, 2]
    header = frames[1]["result"]["data"]["value"]["header"]
    assert (header["height"], header["chain_id"], header["version"]) == (
        str(height),
        "manifest-localnet",
        {"block": "11"},
    )
    assert frames[1]["result"]["events"] == {"tm.event": ["NewBlockHeader"]}
    modes = {
        attribute["value"]
        for event in frames[2]["result"]["data"]["value"]["events"]
        for attribute in event["attributes"]
        if attribute["key"] == "mode"
    }
    assert modes == {"BeginBlock"}


@pytest.mark.parametrize(
    ("query", "data"),
    [
        ("tm.event='Tx' AND", "failed to parse query: offset 17: EOF"),
        (HEADER, "already subscribed"),
        ("tm.event='" + "x" * 512 + "'", "maximum query length exceeded"),
    ],
)
def test_refused_subscriptions(client, query, data):
    client.ask(1, query=HEADER)
    expected = {"code": -32603, "message": "Internal error", "data": data}
    assert client.ask(2, query=query) == {"jsonrpc": "2.0", "id": 2, "error": expected}


def test_a_sixth_subscription_is_refused(client):
    for number in range(5):
        assert "result" in client.ask(number, query=f"tm.event='Tx' AND a.b='{number}'")
    assert client.ask(6, query=HEADER)["error"]["data"] == "max_subscriptions_per_client 5 reached"
    client.ask(7, "unsubscribe_all")
    assert "result" in client.ask(8, query=HEADER)


def test_a_burst_reaches_a_reading_client_whole(devchain, client):
    client.ask(1, query=created(devchain))
    uuids = devchain.create_leases(2_000)
    seen = set()
    while len(seen) < len(uuids):
        seen.update(client.read()["result"]["events"]["lease_created.lease_uuid"])
    assert seen == set(uuids)


def test_rpc_methods_answer_on_the_socket_too(devchain, client):
    status = client.ask(1, "status")["result"]
    assert status["node_info"]["network"] == devchain.chain_id
    assert client.ask(2, "nothing")["error"]["code"] == -32601
    client.socket.send("not json")
    assert client.read()["error"]["code"] == -32700


def test_a_fault_closes_the_connection_with_its_code(devchain, client):
    client.ask(1, query=HEADER)
    devchain.add_fault("ws_close", code=1011, times=1)
    with pytest.raises(ConnectionClosed) as caught:
        client.read()
    assert caught.value.rcvd.code == 1011


def test_frames_can_be_lost(devchain, client):
    """CH-99: what a stream missed stands in the results of its block."""
    client.ask(1, query=created(devchain))
    with devchain.fault("ws_drop"):
        devchain.create_lease()
    seen = devchain.create_lease()
    assert client.read()["result"]["events"]["lease_created.lease_uuid"] == [seen]


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("a.b='x'", {"a.b": ["y", "x"]}, True),
        ("a.b='x'", {"a.b": ["y"]}, False),
        ("a.b='x'", {}, False),
        ("tx.height>5", {"tx.height": ["6"]}, True),
        ("tx.height>=6 AND tx.height<=6", {"tx.height": ["6"]}, True),
        ("tx.height<6", {"tx.height": ["6"]}, False),
        ("tx.height=6", {"tx.height": ["6"]}, True),
        ("tx.height=6", {"tx.height": ["six"]}, False),
        ("a.b CONTAINS 'ell'", {"a.b": ["hello"]}, True),
        ("a.b EXISTS", {"a.b": [""]}, True),
        ("a.b EXISTS AND c.d EXISTS", {"a.b": [""]}, False),
    ],
)
def test_conditions(text, values, expected):
    assert parse(text).matches(values) is expected


def test_a_query_is_its_conditions():
    assert parse("tm.event = 'Tx' AND tx.height > 5").conditions == (
        Condition("tm.event", "=", "Tx"),
        Condition("tx.height", ">", "5", Decimal(5)),
    )


@pytest.mark.parametrize("text", ["", "a.b", "a.b=", "'x'='y'", "a.b='x' OR c.d='y'", "a.b=word", "a.b LIKE 'x'"])
def test_what_is_no_query(text):
    with pytest.raises(ValueError, match="failed to parse query: offset"):
        parse(text)
