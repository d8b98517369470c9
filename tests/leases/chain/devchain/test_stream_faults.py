"""Faults of the event stream."""

from __future__ import annotations

import json

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

HEADER = "tm.event='NewBlockHeader'"


class Client:
    """Subscribes and reads; `heights` of the next header frames."""

    def __init__(self, socket):
        self.socket = socket

    def ask(self, number, method="subscribe", **params):
        self.socket.send(json.dumps({"jsonrpc": "2.0", "method": method, "id": number, "params": params}))
        return json.loads(self.socket.recv(timeout=5))

    def read(self):
        return json.loads(self.socket.recv(timeout=5))

    def heights(self, count):
        frames = [self.read() for _ in range(count)]
        return [int(frame["result"]["data"]["value"]["header"]["height"]) for frame in frames]


@pytest.fixture
def client(manual_devchain):
    with connect(manual_devchain.websocket, max_size=None, ping_interval=None) as socket:
        made = Client(socket)
        assert made.ask(1, query=HEADER)["result"] == {}
        yield made


def blocks(chain, count):
    """Make blocks and see that they are published; their heights."""
    first = chain.height + 1
    chain.produce_block(count=count)
    chain.wait_for_frames()
    return list(range(first, first + count))


def test_frames_can_come_twice(manual_devchain, client):
    with manual_devchain.fault("ws_dup", times=1):
        first, second = blocks(manual_devchain, 2)
    assert client.heights(3) == [first, first, second]


def test_frames_can_change_places(manual_devchain, client):
    with manual_devchain.fault("ws_reorder"):
        first, second, third = blocks(manual_devchain, 3)
    assert client.heights(3) == [second, first, third]


def test_frames_can_be_late_and_keep_their_order(manual_devchain, client):
    manual_devchain.add_fault("ws_delay", ms=150, times=1)
    first, second = blocks(manual_devchain, 2)
    with pytest.raises(TimeoutError):
        client.socket.recv(timeout=0.05)
    assert client.heights(2) == [first, second]


def test_frames_of_one_kind_can_be_lost(manual_devchain, client):
    client.ask(2, query="tm.event='NewBlockEvents'")
    with manual_devchain.fault("ws_drop", match={"event": "NewBlockHeader"}):
        blocks(manual_devchain, 2)
    assert [client.read()["id"] for _ in range(2)] == [2, 2]


def test_a_subscription_can_be_refused(manual_devchain, client):
    with manual_devchain.fault("ws_error", id=3, text="no room"):
        assert client.ask(2, query="tm.event='Tx'")["result"] == {}
        answer = client.ask(3, query="tm.event='NewBlock'")
    assert answer["error"] == {"code": -32603, "message": "Internal error", "data": "no room"}
    assert client.ask(3, query="tm.event='NewBlock'")["result"] == {}


def test_a_subscription_can_be_cancelled_and_the_connection_stays(manual_devchain, client):
    client.ask(2, query="tm.event='NewBlockEvents'")
    manual_devchain.add_fault("ws_cancel", id=1, times=1)
    told = client.read()
    assert (told["id"], told["error"]["code"]) == (1, -32000)
    assert "client is not pulling messages fast enough" in told["error"]["data"]
    blocks(manual_devchain, 1)
    assert client.read()["id"] == 2


def test_a_half_open_connection_says_nothing_and_stays(manual_devchain, client):
    manual_devchain.add_fault("ws_half_open", times=1)
    blocks(manual_devchain, 1)
    client.socket.ping()
    with pytest.raises(TimeoutError):
        client.socket.recv(timeout=0.2)
    with connect(manual_devchain.websocket, ping_interval=None) as second:
        assert Client(second).ask(1, "health")["result"] == {}
    client.socket.close_timeout = 0.1


def test_a_connection_can_be_reset(manual_devchain, client):
    manual_devchain.add_fault("ws_close", code=0, times=1)
    with pytest.raises(ConnectionClosed) as caught:
        client.read()
    assert caught.value.rcvd is None


@pytest.mark.parametrize(
    ("kind", "start"), [("text", "this is no JSON"), ("shape", '{"jsonrpc"'), ("huge", '{"jsonrpc"')]
)
def test_garbage(manual_devchain, client, kind, start):
    manual_devchain.add_fault("ws_garbage", kind=kind, times=1)
    text = client.socket.recv(timeout=10)
    assert text.startswith(start)
    assert (len(text) > 10 * 1024 * 1024) is (kind == "huge")
    [height] = blocks(manual_devchain, 1)
    assert client.heights(1) == [height]


def test_a_node_that_goes_down_says_so(client, manual_devchain):
    manual_devchain.call(manual_devchain.node.hub.say_goodbye)
    assert client.read()["error"]["data"] == "subscription was canceled (reason: CometBFT exited)"
