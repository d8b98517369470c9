"""Several nodes: one is asked until it fails three times in a row."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import ExitStack, aclosing

import grpc
import pytest
from prometheus_client import REGISTRY
from websockets.asyncio.server import serve

from fred.conf import ProviderConfig
from leases.chain import configured, noticed
from leases.chain.client import Unknown
from leases.chain.endpoints import Endpoint, Endpoints
from leases.chain.errors import ChainError, ChainUnavailable
from leases.chain.proto import billing_pb2
from leases.chain.stream import ChainStream, Connected, Lost
from leases.status import LeaseState
from tests.leases.chain.node import LATEST, LISTING, ONE_LEASE, OURS, Refusal, block, lease_row, running, uuids
from tests.leases.chain.test_channel import certificate  # noqa: F401 - a fixture

TWO = [Endpoint("a:1", "ws://a:2/websocket"), Endpoint("b:1", "ws://b:2/websocket")]
DOWN = Refusal(grpc.StatusCode.UNAVAILABLE, "down")


def counted(name, **labels):
    return REGISTRY.get_sample_value(name, labels) or 0.0


@pytest.mark.parametrize(
    ("calls", "index"),
    [
        pytest.param([False, False], 0, id="two failures are none"),
        pytest.param([False, False, True, False, False], 0, id="not in a row"),
        pytest.param([False, False, False], 1, id="three in a row"),
    ],
)
def test_three_failures_in_a_row_switch(calls, index):
    nodes = Endpoints(TWO)
    before = counted("fred_chain_endpoint_switches_total")
    for answered in calls:
        nodes.note(0, answered=answered)
    assert nodes.index == index
    assert nodes.current == TWO[index]
    assert counted("fred_chain_endpoint_switches_total") == before + index


def test_after_the_last_comes_the_first_and_old_news_counts_for_nothing():
    nodes = Endpoints(TWO)
    for index in (0, 0, 0, 0, 1, 1, 1):  # the fourth is heard late
        nodes.note(index, answered=False)
    assert nodes.index == 0


def test_a_single_node_is_never_left():
    nodes = Endpoints(TWO[:1])
    assert not any(nodes.note(0, answered=False) for _ in range(10))


def test_at_least_one_is_needed():
    with pytest.raises(ValueError, match="at least one"):
        Endpoints([])


@pytest.fixture
def pair():
    """Two nodes, and the settings that name them in this order."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(running()) for _ in range(2))
        for node in (first, second):
            node.answers[LATEST] = block()
            node.answers[ONE_LEASE] = billing_pb2.QueryLeaseResponse(lease=lease_row())
        nodes = configured.Nodes(
            ProviderConfig(
                provider_uuid=OURS,
                provider_address="x",
                query_page_limit=2,
                grpc_endpoint=f"{first.endpoint}, {second.endpoint}",
                websocket_url="ws://a/websocket,ws://b/websocket",
            )
        )
        yield first, second, nodes
        for client in nodes._clients:
            client.close()


def test_silence_moves_the_next_piece_of_work_to_the_next_node(pair):
    first, second, nodes = pair
    first.answers[LATEST] = DOWN
    before = counted("fred_chain_faults_total", kind="unavailable")
    held = nodes.client()
    for _ in range(3):
        with pytest.raises(ChainUnavailable):
            held.latest_height()
    assert nodes.client().endpoint == second.endpoint
    assert nodes.client().latest_height().height == 39
    assert held.endpoint == first.endpoint  # whoever began there stays there
    assert counted("fred_chain_faults_total", kind="unavailable") == before + 3


def test_an_error_of_the_node_is_an_answer(pair):
    first, _, nodes = pair
    first.answers[LATEST] = Refusal(grpc.StatusCode.UNKNOWN, "broken")
    for _ in range(5):
        with pytest.raises(ChainUnavailable):
            nodes.client().latest_height()
    assert nodes.client().endpoint == first.endpoint


def test_reads_under_way_together_are_one_failure(pair):
    first, _, nodes = pair
    first.answers[ONE_LEASE] = DOWN
    found = nodes.client().leases(uuids(40))
    assert all(isinstance(read, Unknown) for read in found.values())
    assert nodes.client().endpoint == first.endpoint


def test_a_listing_stays_on_the_node_it_began_with(pair):
    first, second, nodes = pair
    rows = [lease_row(uuid=str(uuid)) for uuid in uuids(4)]
    pages = [
        billing_pb2.QueryLeasesByProviderResponse(leases=rows[:2], pagination={"next_key": b"k"}),
        billing_pb2.QueryLeasesByProviderResponse(leases=rows[2:], pagination={}),
    ]
    first.answers[LISTING] = lambda _: pages[first.calls["LeasesByProvider"] - 1]
    first.answers[LATEST] = DOWN
    walk = nodes.client().list_leases(OURS, LeaseState.ACTIVE)
    next(walk)
    for _ in range(3):
        with pytest.raises(ChainUnavailable):
            nodes.client().latest_height()
    assert nodes.client().endpoint == second.endpoint
    assert [lease.uuid for lease in next(walk).leases] == uuids(4)[2:]
    assert second.calls["LeasesByProvider"] == 0


def test_the_stream_asks_where_to_connect_each_time():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed = taken.getsockname()[1]

    async def main():
        async def handler(socket):
            await socket.recv()
            await socket.send('{"jsonrpc":"2.0","id":1,"result":{}}')
            await socket.wait_closed()

        async with serve(handler, "127.0.0.1", 0) as server:
            urls = iter([f"ws://127.0.0.1:{closed}/"])
            good = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            stream = ChainStream(lambda: next(urls, good), queries=("q",), provider_uuid=OURS, reconnect_initial=0.01)
            async with asyncio.timeout(60), aclosing(stream.items()) as items:
                lost, connected = await anext(items), await anext(items)
                stream.break_off("switched")
                return lost, connected, await anext(items)

    lost, connected, broken = asyncio.run(main())
    assert (lost.reason, type(connected)) == ("connect", Connected)
    assert broken.reason == "switched"


@pytest.mark.parametrize("trusted", [True, False])
def test_a_ca_file_is_for_wss_too(tmp_path, certificate, trusted):  # noqa: F811
    private, public = certificate
    pem = tmp_path / "both.pem"
    pem.write_bytes(private + public)
    ca_file = tmp_path / "ca.pem"
    ca_file.write_bytes(public)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)

    async def main():
        async def handler(socket):
            await socket.recv()
            await socket.send('{"jsonrpc":"2.0","id":1,"result":{}}')
            await socket.wait_closed()

        async with serve(handler, "127.0.0.1", 0, ssl=context) as server:
            port = server.sockets[0].getsockname()[1]
            stream = ChainStream(
                f"wss://127.0.0.1:{port}/", queries=("q",), provider_uuid=OURS, ca_file=str(ca_file) if trusted else ""
            )
            if stream._trust is not None:
                stream._trust.check_hostname = False  # the certificate of this test is for another name
            async with asyncio.timeout(60), aclosing(stream.items()) as items:
                return await anext(items)

    assert isinstance(asyncio.run(main()), Connected if trusted else Lost)


@pytest.mark.parametrize(("content", "message"), [(None, "failed to read CA file"), ("x", "failed to parse CA cert")])
def test_an_unusable_ca_file_stops_the_stream(tmp_path, content, message):
    """CH-88"""
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ChainError, match=message):
        ChainStream("wss://x/", queries=("q",), provider_uuid=OURS, ca_file=str(path))


def test_faults_are_counted_each_time_and_told_once_a_minute():
    import structlog.testing

    noticed.forget()
    before = counted("fred_chain_faults_total", kind="behind")
    with structlog.testing.capture_logs() as logs:
        noticed.fault("behind", "at 3")
        noticed.fault("behind", "at 4")
    assert [(one["event"], one["kind"], one["detail"]) for one in logs] == [("chain.fault", "behind", "at 3")]
    assert counted("fred_chain_faults_total", kind="behind") == before + 2
    with pytest.raises(ValueError, match="unknown kind"):
        noticed.fault("nonsense")
