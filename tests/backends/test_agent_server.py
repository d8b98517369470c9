"""The agent's HTTP server: what it takes, in what order it answers, and when it lets go."""

import asyncio
import socket
import threading

import pytest

from backends.agent_server import AgentServer
from tests.backends.servers import mock_agent, served
from tests.waiting import wait_until

GET = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"


class Line:
    """A raw connection to the server behind this URL."""

    def __init__(self, url):
        host, port = url.removeprefix("http://").split(":")
        self.raw = socket.create_connection((host, int(port)), timeout=10)
        self.reader = self.raw.makefile("rb")

    def say(self, data):
        self.raw.sendall(data)

    def answer(self):
        """Status and body; None at the end of the connection."""
        first = self.reader.readline()
        if not first:
            return None
        headers = {}
        while (line := self.reader.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            headers[name.lower()] = value.strip()
        if headers.get(b"transfer-encoding") == b"chunked":
            body = b""
            while size := int(self.reader.readline(), 16):
                body += self.reader.read(size)
                self.reader.readline()
            self.reader.readline()
        else:
            body = self.reader.read(int(headers.get(b"content-length", 0)))
        return int(first.split()[1]), body

    def close(self):
        self.reader.close()
        self.raw.close()


class App:
    """An application whose paths are stories."""

    def __init__(self):
        self.opened = threading.Event()
        self.bodies = []

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            for kind in ("startup", "shutdown"):
                assert (await receive())["type"] == f"lifespan.{kind}"
                await send({"type": f"lifespan.{kind}.complete"})
            return
        story = {"/cut": self.cut, "/raise": self.fail, "/early": self.early, "/parts": self.parts}
        await story.get(scope["path"], self.read)(scope, receive, send)

    async def cut(self, scope, _receive, _send):
        scope["extensions"]["agent.cut"]()

    async def fail(self, _scope, _receive, _send):
        raise RuntimeError("on purpose")

    async def early(self, _scope, _receive, send):
        await self.say(send, 401, b"no")

    async def parts(self, _scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in (b"one", b"", b"two"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def read(self, scope, receive, send):
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                self.bodies.append(None)
                return
            body, more = body + message["body"], message["more_body"]
        if scope["path"] == "/slow":
            self.opened.set()
            await asyncio.to_thread(threading.Event().wait, 0.3)
        await self.say(send, 200, scope["path"].encode() + b" %d" % len(body))

    async def say(self, send, status, body):
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture
def line():
    with served(App()) as url:
        one = Line(url)
        yield one
        one.close()


def post(path, body, *, head=b""):
    return b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n%b\r\n%b" % (path, len(body), head, body)


def test_a_connection_is_used_again(line):
    for number in range(3):
        line.say(post(b"/a", b"x" * number))
        assert line.answer() == (200, b"/a %d" % number)


def test_requests_sent_together_are_answered_in_order(line):
    line.say(post(b"/slow", b"1") + post(b"/b", b"22") + post(b"/c", b""))
    assert [line.answer() for _ in range(3)] == [(200, b"/slow 1"), (200, b"/b 2"), (200, b"/c 0")]


def test_a_request_may_come_in_small_pieces(line):
    whole = post(b"/a", b"xyz")
    for index in range(len(whole)):
        line.say(whole[index : index + 1])
    assert line.answer() == (200, b"/a 3")


def test_a_large_body_is_read_to_its_end(line):
    line.say(post(b"/a", b"x" * 3_000_000))
    assert line.answer() == (200, b"/a 3000000")


def test_a_chunked_body_is_read(line):
    line.say(b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    assert line.answer() == (200, b"/a 5")


def test_an_answer_without_a_length_is_chunked(line):
    line.say(b"GET /parts HTTP/1.1\r\nhost: x\r\n\r\n" + GET)
    assert line.answer() == (200, b"onetwo")
    assert line.answer()[0] == 200


def test_who_waits_to_continue_is_told_to(line):
    line.say(b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n")
    assert line.answer()[0] == 100
    line.say(b"ok")
    assert line.answer() == (200, b"/a 2")


def test_an_answer_before_the_body_leaves_the_connection_usable(line):
    line.say(post(b"/early", b"x" * 200_000))
    assert line.answer() == (401, b"no")
    line.say(post(b"/a", b"x"))
    assert line.answer() == (200, b"/a 1")


def test_who_wants_to_close_is_let_go(line):
    line.say(b"GET /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert line.answer() == (200, b"/a 0")
    assert line.answer() is None


@pytest.mark.parametrize("path", [b"/cut", b"/raise"])
def test_a_cut_connection_says_nothing(line, path):
    line.say(b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % path)
    try:
        assert line.answer() is None
    except ConnectionResetError:
        return  # as abrupt as it gets


@pytest.mark.parametrize("junk", [b"hello\r\n\r\n", b"GET / HTTP/1.1\r\na: " + b"x" * 70_000 + b"\r\n\r\n"])
def test_what_is_no_request_is_refused(line, junk):
    line.say(junk)
    assert line.answer() == (400, b"")


@pytest.mark.parametrize("times", [{"read_timeout": 0.1}, {"idle_timeout": 0.1}], ids=["half a request", "nothing"])
def test_who_keeps_it_waiting_is_let_go(times):
    with served(App(), **times) as url:
        line = Line(url)
        if "read_timeout" in times:
            line.say(b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n")
        assert line.answer() is None
        line.close()


def test_a_client_that_leaves_ends_its_request():
    app = App()
    with served(app) as url:
        line = Line(url)
        line.say(b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 90000\r\n\r\n")
        line.close()
        wait_until(lambda: app.bodies == [None])


def test_open_requests_end_before_the_server_does():
    app = App()
    with served(app, grace=5.0) as url:
        line = Line(url)
        line.say(post(b"/slow", b"1"))
        assert app.opened.wait(5)
    assert line.answer() == (200, b"/slow 1")
    line.close()


def test_an_application_that_cannot_start_is_told():
    class Broken:
        async def start(self, _reporter):
            raise RuntimeError("no")

        async def stop(self):
            return

    agent = mock_agent()
    agent.backend = Broken()
    assert asyncio.run(AgentServer(agent).serve()) is False
