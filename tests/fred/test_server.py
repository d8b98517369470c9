"""HTTP through the real server: targets, time limits, sizes, what is no request."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from fred.http_protocol import HttpProtocol, _Gentle
from fred.limits import MAX_DRAINED_BYTES, MAX_HEAD_BYTES, OPEN_STREAM, Times
from tests.fred.served import echo, live, served, upgrade
from tests.waiting import wait_until

TOO_LARGE = "request header fields too large"
SHORT = Times(head_s=1.0, read_s=1.0, write_s=1.0, idle_s=1.0, stall_s=0.5)


@pytest.fixture(scope="module")
def server():
    with served(echo) as one:
        yield one


def get(target=b"/x", *lines):
    return b"GET %b HTTP/1.1\r\nHost: x\r\n%b\r\n" % (target, b"".join(b"%b\r\n" % line for line in lines))


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        (b"/x", b"/x"),
        (b"/x?", b"/x?"),
        (b"/x?a=%2F&b", b"/x?a=%2F&b"),
        (b"/%2e%2E//y", b"/%2e%2E//y"),
        (b"http://host.example/x?", b"/x?"),
    ],
)
def test_the_target_is_seen_as_it_was_sent(server, sent, seen):
    assert server.ask(get(sent)).body == b"0 " + seen


@pytest.mark.parametrize(
    ("lines", "seen"),
    [
        ((b"Authorization: Bearer a \t",), [b"Bearer a"]),
        ((b"authorization: \t Bearer a",), [b"Bearer a"]),
        ((b"Authorization: Bearer a", b"AUTHORIZATION: Bearer b"), [b"Bearer a"]),
        ((b"Authorization: ", b"Authorization: Bearer b"), [b""]),
        ((b"Idempotency-Key: a ", b"Idempotency-Key: b"), [b"a", b"b"]),
    ],
)
def test_the_first_authorization_counts_and_blanks_around_values_do_not(lines, seen):
    name = lines[0].partition(b":")[0].lower()

    async def app(scope, receive, send):
        values = [value for known, value in scope["headers"] if known == name]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})
        told.extend(values)

    told = []
    with served(app) as one:
        assert one.ask(get(b"/x", *lines)).status == 200
    assert told == seen


def test_nothing_is_said_of_the_server(server):
    assert set(server.ask(get()).headers) == {"date", "content-length"}


def test_a_connection_is_used_again(server):
    with server.connect() as line:
        for _ in range(3):
            line.send(get())
            assert line.answer().status == 200


def test_requests_of_a_pipeline_are_answered_in_order(server):
    with server.connect() as line:
        line.send(get(b"/1") + get(b"/2") + get(b"/3"))
        assert [line.answer().body for _ in range(3)] == [b"0 /1", b"0 /2", b"0 /3"]


def test_head_has_no_body(server):
    with server.connect() as line:
        line.send(b"HEAD /x HTTP/1.1\r\nHost: x\r\n\r\n" + get())
        assert line.answer(head_only=True).headers["content-length"] == "4"
        assert line.answer().body == b"0 /x"


@pytest.mark.parametrize(
    ("request_bytes", "status", "text"),
    [
        pytest.param(b"BREW /x HTTP/1.1\r\nHost: x\r\n\r\n", 400, "bad request", id="method"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400, "bad request", id="TLS to a plain port"),
        pytest.param(b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400, "bad request", id="not ASCII"),
        pytest.param(get(b"/x", b"X-Long: " + b"y" * MAX_HEAD_BYTES), 431, TOO_LARGE, id="long"),
        pytest.param(b"GET /x HTTP/1.1\r\nX-Long: " + b"y" * 200_000, 431, TOO_LARGE, id="endless"),
    ],
)
def test_what_is_no_request_gets_the_envelope_and_the_four_headers(server, request_bytes, status, text):
    with server.connect() as line:
        line.send(request_bytes)
        answer = line.answer()
        assert (answer.status, answer.body) == (status, b'{"error":"%b","code":%d}\n' % (text.encode(), status))
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-xss-protection"] == "1; mode=block"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["connection"] == "close"
        assert len(answer.headers["x-request-id"]) == 36
        assert line.rest() == b""


def test_junk_behind_a_request_ends_the_connection_after_its_answer(server):
    with server.connect() as line:
        line.send(get() + b"BREW\r\n\r\n")
        assert line.answer().status in {200, 400}
        assert line.rest().count(b"HTTP/1.1") <= 1


def test_upgrades_to_other_protocols_are_ignored(server):
    h2c = get(
        b"/x", b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"
    )
    with server.connect() as line:
        line.send(h2c)
        assert line.answer().body == b"0 /x"


def test_a_websocket_opens_nowhere_unless_it_is_said(server):
    assert server.ask(upgrade(b"/x")).body == b"0 /x"


class Written:
    """A transport that notes what is written to it."""

    def __init__(self, transport, writes):
        self._transport, self._writes = transport, writes

    def __getattr__(self, name):
        return getattr(self._transport, name)

    def write(self, data):
        self._writes.append(bytes(data))
        self._transport.write(data)


@pytest.fixture
def writes(monkeypatch):
    """What servers of this test hand to their transports, each time in one system call."""
    made, connection_made = [], HttpProtocol.connection_made
    monkeypatch.setattr(
        HttpProtocol, "connection_made", lambda one, transport: connection_made(one, Written(transport, made))
    )
    return made


def test_head_and_body_of_a_whole_answer_are_written_at_once(writes):
    with served(echo) as server, server.connect() as line:
        line.send(get(b"/1") + get(b"/2"))
        assert [line.answer().body for _ in range(2)] == [b"0 /1", b"0 /2"]
    assert [(one[:15], one[-8:]) for one in writes] == [
        (b"HTTP/1.1 200 OK", b"\r\n\r\n0 /" + b"%d" % n) for n in (1, 2)
    ]


def test_the_answer_that_ends_its_connection_is_written_at_once_too(writes):
    with served(closing) as server, server.connect() as line:
        line.send(get())
        assert line.answer(head_only=True).status == 400
        assert line.rest() == b"2\r\nno\r\n0\r\n\r\n"
    assert len(writes) == 1


def test_the_head_of_a_head_is_written_alone(writes):
    with served(echo) as server, server.connect() as line:
        for _ in range(2):
            line.send(b"HEAD /x HTTP/1.1\r\nHost: x\r\n\r\n")
            assert line.answer(head_only=True).headers["content-length"] == "4"
    assert [one[-4:] for one in writes] == [b"\r\n\r\n"] * 2


def test_the_head_of_a_head_is_written_before_the_end_of_its_connection(writes):
    with served(deaf) as server, server.connect() as line:
        line.send(b"HEAD /x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert line.answer(head_only=True).status == 200
        assert line.rest() == b""
    assert len(writes) == 1


@pytest.mark.parametrize("is_stream", [True, False])
def test_the_head_does_not_wait_for_a_body_that_comes_later(is_stream, writes):
    read = threading.Event()

    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            await live(receive, send)
            return
        if is_stream:
            scope[OPEN_STREAM]()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        for part in (b"a", b"b"):
            await asyncio.to_thread(read.wait, 10)
            read.clear()
            await send({"type": "http.response.body", "body": part, "more_body": part == b"a"})

    with served(app) as server, server.connect() as line:
        line.send(get())
        assert line.answer(head_only=True).status == 200
        for part in (b"a", b"b"):
            read.set()
            assert line._reader.read(1) == part
    assert [one[-1:] for one in writes] == [b"\n", b"a", b"b"]


async def deaf(scope, receive, send):
    """Answers at once, whatever comes."""
    if scope["type"] == "lifespan":
        await live(receive, send)
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


async def closing(scope, receive, send):
    """Answers at once that it wants no more on this connection."""
    if scope["type"] == "lifespan":
        await live(receive, send)
        return
    await send({"type": "http.response.start", "status": 400, "headers": [(b"connection", b"close")]})
    await send({"type": "http.response.body", "body": b"no"})


def test_a_client_that_is_still_sending_can_read_the_answer_that_ends_its_connection():
    with served(closing) as server, server.connect() as line:
        line.send(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n")
        for _ in range(100):
            line.send(b"y" * 100_000)
        answer = line.answer()
        assert (answer.status, answer.body, answer.headers["connection"]) == (400, b"no", "close")
        assert line.rest() == b""


@pytest.mark.parametrize("reads", [True, False])
def test_a_body_that_waits_to_be_asked_for(reads):
    with served(echo if reads else deaf) as server, server.connect() as line:
        line.send(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        answer = line.answer()
        if reads:
            assert answer.status == 100
            line.send(b"abc")
            assert line.answer().body == b"3 /x"
        else:
            assert answer.status == 200
            assert line.rest() == b""


@pytest.mark.parametrize(("length", "again"), [(MAX_DRAINED_BYTES, True), (MAX_DRAINED_BYTES + 300_000, False)])
def test_a_body_that_nobody_reads_is_drained_up_to_a_limit(length, again):
    with served(deaf) as server, server.connect() as line:
        line.send(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % length)
        assert line.answer().status == 200
        try:
            line.send(b"y" * length)
            line.send(get())
        except OSError:
            assert not again
            return
        if again:
            assert line.answer().status == 200
        else:
            assert line.rest() == b""


async def disconnected(receive):
    while (await receive())["type"] != "http.disconnect":
        pass


async def slow(scope, receive, send):
    """Hangs on /hang, streams on /stream and without an end on /flood; says when nobody is there any more."""
    if scope["type"] == "lifespan":
        await live(receive, send)
    elif scope["path"] == "/hang":
        await disconnected(receive)
    elif scope["path"] == "/deaf":
        await deaf(scope, receive, send)
    elif scope["path"] in {"/stream", "/flood"}:
        scope[OPEN_STREAM]()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        gone = asyncio.ensure_future(disconnected(receive))
        for _ in range(8):
            await send({"type": "http.response.body", "body": b"z", "more_body": True})
            await asyncio.wait([gone], timeout=0.15)  # the pace of the stream: longer than any answer may take
        while scope["path"] == "/flood" and not gone.done():
            await send({"type": "http.response.body", "body": b"z" * 100_000, "more_body": True})
            await asyncio.wait([gone], timeout=0)
        gone.cancel()
        await send({"type": "http.response.body", "body": b""})
    else:
        await echo(scope, receive, send)


@pytest.fixture(scope="module")
def hasty():
    with served(slow, times=SHORT) as server:
        yield server


@pytest.mark.parametrize(
    "part", [b"", b"GET /x HT", b"GET /x HTTP/1.1\r\nHost: x\r\n"], ids=["nothing", "half a line", "half the headers"]
)
def test_headers_that_take_too_long_end_the_connection_without_an_answer(hasty, part):
    with hasty.connect() as line:
        line.send(part)
        assert line.rest() == b""


def test_the_next_request_has_the_same_limit_for_its_headers(hasty):
    with hasty.connect() as line:
        line.send(get() + b"GET /y")
        assert line.answer().status == 200
        assert line.rest() == b""


@pytest.mark.parametrize("noise", [b"", b"\r\n"])
def test_an_idle_connection_is_closed(hasty, noise):
    with hasty.connect() as line:
        line.send(get())
        assert line.answer().status == 200
        line.send(noise)
        assert line.rest() == b""


def test_a_connection_is_idle_again_after_a_stream(hasty):
    with hasty.connect() as line:
        line.send(get(b"/stream"))
        assert line.answer().body == b"z" * 8
        line.send(b"\r\n")
        assert line.rest() == b""


def test_an_answer_that_takes_too_long_is_cut(hasty):
    with hasty.connect() as line:
        line.send(get(b"/hang"))
        assert line.rest() == b""


def test_a_body_that_drips_after_its_answer_does_not_hold_the_connection(hasty):
    with hasty.connect() as line:
        line.send(b"POST /deaf HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
        assert line.answer().status == 200
        line.send(b"y")
        assert line.rest() == b""


def test_a_stream_may_last_longer_than_any_answer(hasty):
    answer = hasty.ask(get(b"/stream"))
    assert (answer.status, answer.body) == (200, b"z" * 8)


def test_a_client_that_does_not_read_its_stream_is_cut(hasty):
    with hasty.connect() as line:
        line.send(get(b"/flood"))
        wait_until(lambda: hasty.server.server_state.tasks)
        wait_until(lambda: not hasty.server.server_state.tasks)


def test_a_head_that_is_held_is_not_written_to_a_connection_that_ends_meanwhile():
    written = []

    class Transport:
        closing = False

        def is_closing(self):
            return self.closing

        def write(self, data):
            written.append(data)

    async def main():
        transport = Transport()
        answer = _Gentle(transport, SimpleNamespace(loop=asyncio.get_running_loop()))
        answer.write(b"head")
        transport.closing = True
        await asyncio.sleep(0)
        other = _Gentle(Transport(), SimpleNamespace(loop=asyncio.get_running_loop()))
        other.write(b"head of the other")
        await asyncio.sleep(0)

    asyncio.run(main())
    assert written == [b"head of the other"]
