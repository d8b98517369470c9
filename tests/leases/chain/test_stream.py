"""The stream against a WebSocket server of the test, which says what a node could say."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from uuid import UUID

import pytest
import structlog.testing
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from leases.chain.events import Header
from leases.chain.stream import HEADER_QUERY, Backoff, ChainStream, Connected, LeaseEvents, Lost, event_queries
from tests.leases.chain import vectors

OURS = UUID(vectors.PROVIDER_UUID)
[CREATED] = [case["frame"] for case in vectors.chain()["websocket"]["parse_cases"] if case["name"] == "created"]


def _header(height):
    value = {"header": {"chain_id": "c", "height": str(height), "time": "2026-07-08T12:00:00.5Z"}}
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {
            "query": HEADER_QUERY,
            "data": {"type": "tendermint/event/NewBlockHeader", "value": value},
            "events": {"tm.event": ["NewBlockHeader"]},
        },
    }


def _confirmation(number):
    return {"jsonrpc": "2.0", "id": number, "result": {}}


async def _confirm_all(socket, number):
    frames = [json.loads(await socket.recv()) for _ in range(number)]
    for frame in frames:
        await socket.send(json.dumps(_confirmation(frame["id"])))
    return frames


def _collect(handler, *, number, queries=(HEADER_QUERY,), **options):
    """Run a stream against a server with this handler; return its first items, its waits, and the connections made."""

    async def main():
        connections = []
        waits = []

        async def counted(socket):
            connections.append(socket)
            try:
                await handler(socket, len(connections))
                await socket.wait_closed()
            except ConnectionClosed:
                return

        async def sleep(delay):
            waits.append(delay)

        async with serve(counted, "127.0.0.1", 0, ping_interval=None) as server:
            port = server.sockets[0].getsockname()[1]
            stream = ChainStream(
                f"ws://127.0.0.1:{port}/websocket", queries=queries, provider_uuid=OURS, sleep=sleep, **options
            )
            items = []
            async with asyncio.timeout(60), aclosing(stream.items()) as arriving:
                async for item in arriving:
                    items.append(item)
                    if len(items) == number:
                        break
            return items, waits, connections

    return asyncio.run(main())


def test_it_subscribes_to_every_query_and_waits_for_all_confirmations():
    """CH-89"""
    seen = []

    async def handler(socket, _):
        seen.extend(await _confirm_all(socket, 5))
        await socket.send(json.dumps(CREATED))

    items, _, _ = _collect(handler, number=2, queries=event_queries(OURS))
    assert isinstance(items[0], Connected)
    assert [event.lease_uuid for event in items[1].events] == [UUID(vectors.LEASE_UUID)]
    assert [frame["id"] for frame in seen] == [1, 2, 3, 4, 5]
    assert [frame["params"]["query"] for frame in seen] == list(event_queries(OURS))
    assert {frame["method"] for frame in seen} == {"subscribe"}


def test_events_before_the_last_confirmation_are_kept():
    async def handler(socket, _):
        await socket.recv()
        await socket.recv()
        for frame in (_confirmation(1), CREATED, _header(7), _confirmation(2)):
            await socket.send(json.dumps(frame))

    items, _, _ = _collect(handler, number=3, queries=("a", "b"))
    assert isinstance(items[0], Connected)
    assert isinstance(items[1], LeaseEvents)
    assert isinstance(items[2], Header)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(
            {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "m"}}, "error_frame", id="refused"
        ),
        pytest.param(None, "unconfirmed", id="silence"),
    ],
)
def test_a_half_subscribed_connection_is_given_up(answer, reason):
    """CH-92"""

    async def handler(socket, number):
        if number > 1:
            await _confirm_all(socket, 1)
        elif answer is not None:
            await socket.recv()
            await socket.send(json.dumps(answer))

    items, waits, connections = _collect(handler, number=2, confirm_timeout=0.2)
    assert isinstance(items[0], Lost)
    assert items[0].reason == reason
    assert isinstance(items[1], Connected)
    assert waits == [items[0].delay]
    assert len(connections) == 2


def test_a_cancelled_subscription_means_a_new_connection():
    """CH-101"""

    async def handler(socket, number):
        await _confirm_all(socket, 1)
        if number == 1:
            cancelled = {"code": -32000, "message": "Server error", "data": "subscription was canceled (reason: …)"}
            await socket.send(json.dumps({"jsonrpc": "2.0", "id": 1, "error": cancelled}))

    items, _, _ = _collect(handler, number=3)
    assert [type(item) for item in items] == [Connected, Lost, Connected]
    assert "canceled" in items[1].detail


def test_garbage_is_counted_warned_of_once_and_survived():
    """CH-93"""

    async def handler(socket, _):
        await _confirm_all(socket, 1)
        for number in range(12):
            await socket.send("not json" if number % 2 else '{"result": {"events": 7}}')
        await socket.send(json.dumps(_header(9)))

    with structlog.testing.capture_logs() as logs:
        items, _, connections = _collect(handler, number=2)
    assert items[1].height == 9
    assert len(connections) == 1
    assert [record["event"] for record in logs if record["event"] != "chain.fault"] == ["stream.unreadable"]


def test_delays_grow_until_it_was_healthy():
    """CH-96"""

    async def handler(socket, _):
        await _confirm_all(socket, 1)
        await socket.close()

    items, waits, _ = _collect(handler, number=6)
    assert [type(item) for item in items] == [Connected, Lost] * 3
    assert [item.reason for item in items if isinstance(item, Lost)] == ["closed"] * 3
    assert len(waits) == 2
    assert 0.75 <= waits[0] <= 1.25
    assert 1.5 <= waits[1] <= 2.5


def test_backoff_doubles_to_its_maximum_and_starts_again():
    """CH-96"""
    backoff = Backoff(1.0, 5.0, draw=lambda: 0.5)
    assert [backoff.next_delay() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    backoff.reset()
    assert backoff.next_delay() == 1.0
    assert Backoff(1.0, 5.0, draw=lambda: 0.0).next_delay() == 0.75
    assert Backoff(1.0, 5.0, draw=lambda: 1.0).next_delay() == 1.25


def test_a_peer_without_pongs_is_left():
    """CH-95"""

    async def handler(socket, number):
        await _confirm_all(socket, 1)
        if number == 1:
            socket.protocol.receive_data = lambda data: None  # reads on, answers nothing

    items, _, _ = _collect(handler, number=3, ping_interval=0.05)
    assert [type(item) for item in items] == [Connected, Lost, Connected]
    assert items[1].reason == "ping"


def test_a_closed_port_is_a_lost_connection():
    async def main():
        waits = []

        async def sleep(delay):
            waits.append(delay)

        stream = ChainStream("ws://127.0.0.1:9/websocket", queries=("q",), provider_uuid=OURS, sleep=sleep)
        async with aclosing(stream.items()) as items:
            return await anext(items)

    lost = asyncio.run(main())
    assert isinstance(lost, Lost)
    assert lost.reason == "connect"
