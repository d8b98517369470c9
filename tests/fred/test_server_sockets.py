"""WebSockets through the real server: who may open one, sizes, pings, silence about targets."""

from __future__ import annotations

import logging

import pytest

from fred.limits import Times
from fred.upgrade import is_events_target, upgrade_fault
from tests.fred.served import HANDSHAKE, echo, live, served, upgrade
from tests.waiting import wait_until

EVENTS = b"/v1/leases/0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b/events"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
SHORT = Times(ping_s=0.2, pong_s=1.5, stall_s=0.5)
ended = []


async def application(scope, receive, send):
    """Tells a WebSocket its target; on a message says so and closes with 1008; floods on ?flood, refuses on ?no."""
    if scope["type"] == "lifespan":
        await live(receive, send)
        return
    if scope["type"] == "http":
        await echo(scope, receive, send)
        return
    assert (await receive())["type"] == "websocket.connect"
    if scope["query_string"] == b"no":
        await send({"type": "websocket.http.response.start", "status": 401, "headers": [(b"x-a", b"b")]})
        await send({"type": "websocket.http.response.body", "body": b"no"})
        return
    await send({"type": "websocket.accept", "headers": [(b"x-a", b"b")]})
    await send({"type": "websocket.send", "text": scope["fred.raw_target"].decode()})
    try:
        while scope["query_string"] == b"flood":
            await send({"type": "websocket.send", "text": "z" * 10_000})
        message = await receive()
    except OSError:
        ended.append("gone")
        return
    if message["type"] == "websocket.receive":
        await send({"type": "websocket.close", "code": 1008, "reason": "client messages not allowed"})
    ended.append(message.get("code"))


@pytest.fixture(scope="module")
def server():
    with served(application, opens_socket=is_events_target) as one:
        yield one


@pytest.fixture(scope="module")
def pinging():
    with served(application, opens_socket=is_events_target, times=SHORT) as one:
        yield one


@pytest.fixture
def opened(server):
    with server.connect() as line:
        line.send(upgrade(EVENTS + b"?token=secret"))
        assert line.answer().status == 101
        assert line.frame() == (TEXT, EVENTS + b"?token=secret")
        yield line


def close_of(line):
    opcode, payload = line.frame()
    assert opcode == CLOSE
    return int.from_bytes(payload[:2], "big"), payload[2:].decode()


def test_the_upgrade_has_no_extension_no_protocol_and_no_server(server):
    with server.connect() as line:
        line.send(upgrade(EVENTS, Sec_WebSocket_Extensions=b"permessage-deflate", Sec_WebSocket_Protocol=b"chat"))
        answer = line.answer()
    assert answer.status == 101
    assert set(answer.headers) == {"date", "upgrade", "connection", "sec-websocket-accept", "x-a"}
    assert answer.headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def test_a_refusal_is_an_ordinary_answer(server):
    answer = server.ask(upgrade(EVENTS + b"?no"))
    assert (answer.status, answer.body, answer.headers["x-a"]) == (401, b"no", "b")


FAULTS = [
    pytest.param({"Connection": b"keep-alive"}, 400, id="no upgrade in Connection"),
    pytest.param({"Connection": None}, 400, id="no Connection"),
    pytest.param({"Upgrade": b"h2c"}, 426, id="another protocol"),
    pytest.param({"Upgrade": None}, 426, id="no Upgrade"),
    pytest.param({"Sec_WebSocket_Version": b"12"}, 400, id="version"),
    pytest.param({"Sec_WebSocket_Version": None}, 400, id="no version"),
    pytest.param({"Sec_WebSocket_Key": b"dGhlIHNhbXBsZSBub25j"}, 400, id="key of 15 bytes"),
    pytest.param({"Sec_WebSocket_Key": b"?"}, 400, id="key is not base64"),
    pytest.param({"Sec_WebSocket_Key": None}, 400, id="no key"),
]


@pytest.mark.parametrize(("changes", "status"), FAULTS)
def test_ta81_what_almost_opens_a_websocket_reaches_the_application_as_http(server, changes, status):
    assert server.ask(upgrade(EVENTS, **changes)).body == b"0 " + EVENTS
    wanted = {**HANDSHAKE, **{name.replace("_", "-").encode(): value for name, value in changes.items()}}
    fault = upgrade_fault([(name.lower(), value) for name, value in wanted.items() if value is not None])
    assert fault is not None
    assert fault.status == status
    assert fault.text == {400: "Bad Request", 426: "Upgrade Required"}[status]


@pytest.mark.parametrize(
    ("method", "target"),
    [(b"POST", EVENTS), (b"GET", b"/health"), (b"GET", EVENTS + b"/"), (b"GET", b"/v1/leases//events")],
)
def test_elsewhere_a_request_for_a_websocket_is_an_ordinary_one(server, method, target):
    assert server.ask(upgrade(target, method=method)).body == b"0 " + target


@pytest.mark.parametrize(
    ("length", "close"), [(512, (1008, "client messages not allowed")), (513, (1009, "")), (3_000_000, (1009, ""))]
)
def test_ta84_sizes_of_a_clients_message(opened, length, close):
    ended.clear()
    opened.send_frame(BINARY, bytes(length))
    assert close_of(opened) == close
    wait_until(lambda: ended)


def test_a_clients_ping_is_answered(opened):
    opened.send_frame(PING, b"are you there")
    assert opened.frame() == (PONG, b"are you there")


def test_a_client_may_say_goodbye(opened):
    ended.clear()
    opened.send_frame(CLOSE, (1000).to_bytes(2, "big"))
    assert close_of(opened) == (1000, "")
    assert opened.frame() == (-1, b"")
    wait_until(lambda: ended)
    assert ended == [1000]


def test_ta87_who_answers_pings_stays_and_who_does_not_is_cut_without_a_word(pinging):
    with pinging.connect() as lively, pinging.connect() as dead:
        for line in (lively, dead):
            line.send(upgrade(EVENTS))
            assert line.answer().status == 101
            assert line.frame()[0] == TEXT
        for _ in range(10):
            assert lively.frame() == (PING, b"")
            lively.send_frame(PONG)
        while (frame := dead.frame()) == (PING, b""):
            pass
        assert frame == (-1, b"")
        lively.send_frame(TEXT, b"x")
        assert close_of(lively)[0] == 1008


def test_a_clients_pings_do_not_keep_it_alive(pinging):
    with pinging.connect() as line:
        line.send(upgrade(EVENTS))
        assert line.answer().status == 101
        try:
            while line.frame() != (-1, b""):
                line.send_frame(PING)
        except OSError:
            pass


def test_a_client_that_does_not_read_is_cut(pinging):
    ended.clear()
    with pinging.connect() as line:
        line.send(upgrade(EVENTS + b"?flood"))
        assert line.answer().status == 101
        wait_until(lambda: "gone" in ended)  # beside the ends of connections of earlier tests


def test_no_target_is_ever_logged(server, caplog):
    caplog.set_level(logging.DEBUG)
    with server.connect() as line:
        line.send(upgrade(EVENTS + b"?token=secret"))
        line.answer()
        line.frame()
    server.ask(upgrade(EVENTS + b"?no&token=secret"))
    assert "secret" not in caplog.text
