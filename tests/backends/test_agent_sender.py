"""Callbacks over plain HTTP: kept connections, connections that die, and answers that are none."""

import asyncio
import threading

import pytest

from backends.agent_sender import PlainSender
from fred.http import ErrorKind, Request
from tests.backends.servers import answer, peer


def send(*requests, pause=lambda: None):
    """Send them one after the other over one sender; the responses."""

    async def run():
        loop = asyncio.get_running_loop()
        heard = asyncio.Queue()
        sender = PlainSender(heard.put_nowait)
        found = []
        for request in requests:
            sender.submit(request)
            found.append(await asyncio.wait_for(heard.get(), 10))
            await loop.run_in_executor(None, pause)
        sender.close()
        return found

    return asyncio.run(run())


def request(url, body=b"{}", **changes):
    return Request(url, (("Content-Type", "application/json"),), body, **{"timeout": 5.0, "tag": "t", **changes})


def test_a_connection_is_used_again_and_the_request_is_as_it_should_be():
    with peer() as server:
        found = send(*[request(f"{server.url}/a/b?x=1", b'{"n":%d}' % number) for number in range(3)])
        assert [(one.status, one.error, one.tag) for one in found] == [(200, None, "t")] * 3
        assert server.connections == 1
        assert [got.body for got in server.got] == [b'{"n":0}', b'{"n":1}', b'{"n":2}']
        got = server.got[0]
        assert (got.method, got.target) == ("POST", "/a/b?x=1")
        assert got.headers["host"] == server.url.removeprefix("http://")
        assert got.headers["content-type"] == "application/json"


def test_a_request_on_a_kept_connection_that_dies_is_sent_once_more():
    tries = []

    def script(_got):
        tries.append(1)
        return None if len(tries) == 2 else answer(200)

    with peer(script) as server:
        assert [one.status for one in send(request(server.url), request(server.url))] == [200, 200]
        assert (len(server.got), server.connections) == (3, 2)


def test_a_new_connection_that_dies_is_not_tried_again():
    with peer(lambda _got: None) as server:
        (found,) = send(request(server.url))
        assert (found.status, found.error.kind) == (None, ErrorKind.AMBIGUOUS)
        assert len(server.got) == 1


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (answer(500, b"x" * 5000), 500),
        (answer(302, headers="Location: http://127.0.0.1:9/\r\n"), 302),
        (b"HTTP/1.1 103 Hints\r\n\r\n" + answer(200), 200),
        (b"hello", None),
        (answer(200, b"x" * (2 << 20)), None),
    ],
    ids=["error", "redirect", "interim", "no HTTP", "too long"],
)
def test_answers(said, status):
    with peer(lambda _got: said) as server:
        (found,) = send(request(server.url))
        assert (found.status, found.error is None) == (status, status is not None)


def test_who_does_not_answer_is_given_up():
    forever = threading.Event()

    def silent(_got):
        forever.wait(30)

    try:
        with peer(silent) as server:
            (found,) = send(request(server.url, timeout=0.1))
    finally:
        forever.set()
    assert found.error.kind is ErrorKind.TIMEOUT


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("http://127.0.0.1:9/x", ErrorKind.REFUSED),
        ("http://user@127.0.0.1/x", ErrorKind.INVALID),
        ("http://127.0.0.1:9/\u00e9", ErrorKind.INVALID),
        ("http:///x", ErrorKind.INVALID),
    ],
)
def test_what_cannot_be_sent(url, kind):
    (found,) = send(request(url))
    assert (found.status, found.error.kind) == (None, kind)


def test_who_closes_in_between_is_met_anew():
    with peer(lambda _got: answer(200, headers="Connection: close\r\n")) as server:
        assert [one.status for one in send(request(server.url), request(server.url))] == [200, 200]
        assert server.connections == 2
