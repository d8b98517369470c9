"""Outgoing HTTP: what is proven about what left this machine, and that nothing is sent twice."""

import gzip
import selectors
import socket
import threading

import pytest

from fred.http import ERROR_BODY_BYTES, ErrorKind, Multi, Request, fetch, fetch_each
from tests.backends.servers import Peer, answer, peer, says
from tests.waiting import wait_until

SILENT_S = 1.0
"""A short limit, in which what is sent leaves also on a busy machine."""


def closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(multi, *requests, timeout=60.0):
    for request in requests:
        multi.submit(request)
    found = []
    wait_until(lambda: found.extend(multi.poll(0.05)) or len(found) >= len(requests), timeout=timeout)
    return found


@pytest.fixture
def multi():
    loop = Multi()
    yield loop
    loop.close()


@pytest.fixture(params=["fetch", "multi"])
def send(request, multi):
    """Both ways to send one request."""
    return fetch if request.param == "fetch" else lambda asked: run(multi, asked)[0]


def test_a_post_arrives_as_it_was_given(send):
    with peer(says(202, b'{"a":1}', headers="X-One: 1\r\nX-One: 2\r\n")) as server:
        response = send(Request(f"{server.url}/a/../b?x=%2f", (("X-H", "v"),), b"body", tag="t"))
        got = server.got[0]
    assert (response.status, response.body, response.error, response.tag) == (202, b'{"a":1}', None, "t")
    assert response.header("x-one") == ["1", "2"]
    assert (got.method, got.target, got.headers["x-h"], got.body) == ("POST", "/a/../b?x=%2f", "v", b"body")
    assert got.headers["accept-encoding"] == "identity"


def test_a_get_after_a_post_has_no_body(send):
    with peer() as server:
        send(Request(server.url, body=b"x" * 10))
        send(Request(server.url))
        assert [(got.method, got.body) for got in server.got] == [("POST", b"x" * 10), ("GET", b"")]
        assert server.connections == 1  # kept


def test_nothing_of_a_request_is_left_for_the_next(send):
    with peer() as server:
        send(Request(server.url, (("X-Fred-Signature", "s"), ("X-A", "1")), b"x"))
        send(Request(server.url))
        send(Request(server.url, body=b"y"))
        assert [("x-a" in got.headers, "x-fred-signature" in got.headers) for got in server.got] == [
            (True, True),
            (False, False),
            (False, False),
        ]


def test_refused_connection_sent_nothing(send):
    error = send(Request(f"http://127.0.0.1:{closed_port()}/", body=b"{}")).error
    assert (error.kind, error.sent_nothing) == (ErrorKind.REFUSED, True)


def test_unknown_host_sent_nothing(send):
    assert send(Request("http://nowhere.invalid/", timeout=5)).error.sent_nothing


@pytest.mark.parametrize(
    "request_", [Request("ftp://127.0.0.1/"), Request("http://[x/"), Request("http://h/", (("A", "b\r\nC: d"),))]
)
def test_what_cannot_be_built_sent_nothing(send, request_):
    error = send(request_).error
    assert (error.kind, error.sent_nothing) == (ErrorKind.INVALID, True)


def test_plain_peer_on_https_sent_nothing(send):
    with peer() as server:
        error = send(Request(server.url.replace("http:", "https:"), body=b"{}", timeout=5)).error
        assert (error.kind, error.sent_nothing) == (ErrorKind.TLS, True)
        assert server.got == []


def test_silence_after_the_request_is_a_timeout_that_proves_nothing(send):
    """P12"""
    release = threading.Event()
    with peer(lambda _got: answer(200) if release.wait(10) else None) as server:
        error = send(Request(server.url, body=b"{}", timeout=SILENT_S)).error
        release.set()
    assert (error.kind, error.sent_nothing) == (ErrorKind.TIMEOUT, False)


def test_timeout_also_ends_an_answer_that_never_completes(send):
    """P12"""
    with peer(lambda _got: b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc") as server:
        response = send(Request(server.url, timeout=SILENT_S))
    assert (response.error.kind, response.status) == (ErrorKind.TIMEOUT, 200)


def test_unanswered_connect_sent_nothing(send):
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        crowd = [socket.socket() for _ in range(4)]
        for one in crowd:  # fills the backlog, so that the next connect waits
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        error = send(Request(f"http://127.0.0.1:{port}/", body=b"{}", timeout=10, connect_timeout=0.2)).error
        for one in crowd:
            one.close()
    assert (error.kind, error.sent_nothing) == (ErrorKind.CONNECT_TIMEOUT, True)


def test_bc131_a_connection_cut_before_the_answer_is_ambiguous(send):
    """P19"""
    with peer(lambda _got: None) as server:
        error = send(Request(server.url, body=b"{}")).error
        assert (error.kind, error.sent_nothing) == (ErrorKind.AMBIGUOUS, False)
        assert len(server.got) == 1


@pytest.mark.parametrize("body", [b"2", b"", b"2" * 500_000], ids=["small", "empty", "large"])
def test_a_post_is_not_repeated_when_its_kept_connection_dies(send, body):
    with peer(lambda got: None if got.body == body else answer(200)) as server:
        assert send(Request(server.url, body=b"1")).status == 200
        error = send(Request(server.url, body=body)).error
        assert (error.kind, error.sent_nothing) == (ErrorKind.AMBIGUOUS, False)
        assert [got.body for got in server.got] == [b"1", body]


def test_what_is_broken_off_stays_unknown_and_the_rest_goes_on(multi):
    held = threading.Event()
    with peer(lambda got: held.wait(20) and answer(200)) as server:
        multi.submit(Request(server.url, body=b"1", tag="cut"))
        multi.submit(Request(server.url, body=b"2", tag="kept"))
        wait_until(lambda: multi.poll(0.01) or len(server.got) == 2)
        multi.break_off(lambda tag: tag == "cut", reason="told so")
        (cut,) = multi.poll(1.0)
        assert (cut.tag, cut.error.kind, cut.error.sent_nothing) == ("cut", ErrorKind.AMBIGUOUS, False)
        assert "told so" in cut.error.message
        held.set()
        found = []
        wait_until(lambda: found.extend(multi.poll(0.05)) or found)
        assert [(one.tag, one.status) for one in found] == [("kept", 200)]


def test_some_requests_at_once_are_answered_as_they_end():
    held = threading.Event()
    with peer(lambda got: (got.target == "/fast" or held.wait(20)) and answer(200)) as server:
        responses = fetch_each([Request(f"{server.url}/{name}", tag=name) for name in ("slow", "fast")])
        assert next(responses).tag == "fast"
        held.set()
        assert [one.tag for one in responses] == ["slow"]


def test_whoever_stops_listening_breaks_off_the_rest_and_the_thread_may_ask_again():
    held = threading.Event()
    with peer(lambda got: (got.target == "/fast" or held.wait(20)) and answer(200)) as server:
        responses = fetch_each([Request(f"{server.url}/{name}", tag=name) for name in ("slow", "fast")])
        assert next(responses).tag == "fast"
        responses.close()
        assert [one.tag for one in fetch_each([Request(f"{server.url}/fast", tag="again")])] == ["again"]
        held.set()


def test_a_request_that_cannot_be_built_is_an_answer_among_the_others():
    with peer() as server:
        found = list(fetch_each([Request("http://[", tag="bad"), Request(server.url, tag="good")]))
    assert {one.tag: one.error and one.error.kind for one in found} == {"bad": ErrorKind.INVALID, "good": None}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(send, status):
    """P13"""
    with peer() as other, peer(says(status, headers=f"Location: {other.url}\r\n")) as server:
        assert send(Request(server.url, body=b"{}")).status == status
        assert other.got == []


def test_proxies_of_the_environment_are_ignored(send, monkeypatch):
    """P14"""
    with peer() as proxy, peer() as server:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv("no_proxy", "")
        assert send(Request(server.url)).status == 200
        assert (len(server.got), proxy.got) == (1, [])


def test_bc31_a_body_of_exactly_the_cap_passes_and_one_more_does_not(send):
    with peer(lambda got: answer(200, b"x" * int(got.target[1:]))) as server:
        assert len(send(Request(f"{server.url}/1000", max_body=1000)).body) == 1000
        error = send(Request(f"{server.url}/1001", max_body=1000)).error
    assert error.kind is ErrorKind.TOO_LARGE
    assert error.message == "response body too large: 1001 bytes exceeds 1000 byte limit"
    assert not error.sent_nothing


def test_the_cap_counts_inflated_bytes(send):
    bomb = gzip.compress(b"0" * 10_000_000)
    with peer(says(200, bomb, headers="Content-Encoding: gzip\r\n")) as server:
        assert send(Request(server.url, max_body=100_000)).error.kind is ErrorKind.TOO_LARGE


def test_bc30_of_a_huge_error_body_little_is_read(send):
    with peer(says(500, b"e" * 10_000_000)) as server:
        response = send(Request(server.url))
    assert (response.status, response.error, len(response.body)) == (500, None, ERROR_BODY_BYTES)


def test_many_requests_share_few_connections(multi):
    with peer() as server:
        for _ in range(5):
            responses = run(multi, *[Request(f"{server.url}/{i}", body=b"{}", tag=i) for i in range(20)])
            assert sorted(response.tag for response in responses) == list(range(20))
        assert server.connections <= 20
        assert multi.pending == 0


def test_wakeup_and_submit_interrupt_a_waiting_poll(multi):
    with peer() as server:
        found = []
        waiting = threading.Thread(target=lambda: [found.extend(multi.poll(30)) for _ in range(2)])
        waiting.start()
        multi.submit(Request(server.url))
        thread_done = wait_until(lambda: found or not waiting.is_alive() or multi.wakeup())
        assert thread_done
        multi.wakeup()
        waiting.join(5)
        assert not waiting.is_alive()


@pytest.mark.parametrize("status", [200, 500])
def test_headers_that_are_not_wanted_are_not_kept(send, status):
    with peer(says(status, b"e" * 10_000)) as server:
        response = send(Request(server.url, body=b"x", want_headers=False))
        assert (response.status, response.header("content-type")) == (status, [])
        assert len(response.body) == (10_000 if status == 200 else ERROR_BODY_BYTES)
        over = send(Request(server.url, body=b"x", want_headers=False, max_body=5000))
        assert (over.error.kind if over.error else None) == (ErrorKind.TOO_LARGE if status == 200 else None)
        assert send(Request(server.url)).header("content-type") == ["application/json"]


def test_interim_answers_do_not_count(send):
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    with peer(lambda _got: early + answer(202, b"{}")) as server:
        response = send(Request(server.url, body=b"{}"))
    assert (response.status, response.header("link")) == (202, [])


@pytest.mark.parametrize(("status", "kept"), [(200, 20_000), (500, ERROR_BODY_BYTES)])
def test_the_cap_of_a_body_is_that_of_the_last_status(send, status, kept):
    early = b"HTTP/1.1 103 Early Hints\r\nX-Early: 1\r\n\r\n"
    with peer(lambda _got: early + answer(status, b"b" * 20_000, headers="X-Late: 2\r\n")) as server:
        response = send(Request(server.url))
    assert (response.status, response.error, len(response.body)) == (status, None, kept)
    assert (response.header("x-early"), response.header("x-late")) == ([], ["2"])


def test_an_error_body_may_be_longer_than_the_cap_of_a_good_one(send):
    with peer(lambda got: answer(int(got.target[1:]), b"b" * 1000)) as server:
        error, good = (send(Request(f"{server.url}/{status}", max_body=10)) for status in (500, 200))
    assert (error.error, len(error.body)) == (None, 1000)
    assert good.error.kind is ErrorKind.TOO_LARGE


def test_a_response_keeps_its_headers_when_its_handle_is_used_again(send):
    with peer(lambda got: answer(200, headers=f"X-Target: {got.target}\r\n")) as server:
        found = [send(Request(f"{server.url}/{number}")) for number in range(3)]
    assert [one.header("x-target") for one in found] == [["/0"], ["/1"], ["/2"]]


def test_peer_class_is_what_the_other_tests_think_it_is():
    running = Peer()
    running.close()
    assert fetch(Request(running.url)).error.sent_nothing


def test_a_loop_of_its_owners_can_drive_it(multi):
    """It looks at nothing but the descriptor and the time until which it may be silent."""
    held = threading.Event()
    with (
        peer(lambda got: (got.target == "/fast" or held.wait(10)) and answer(200)) as server,
        selectors.DefaultSelector() as own,
    ):
        own.register(multi.fileno(), selectors.EVENT_READ)
        assert multi.timer is None
        multi.submit(Request(f"{server.url}/fast", tag="fast"), wake=False)
        multi.submit(Request(f"{server.url}/slow", tag="slow", timeout=SILENT_S), wake=False)
        assert (multi.timer, own.select(0)) == (0.0, [])
        found = []
        while len(found) < 2:
            assert multi.timer is not None or own.select(10), "nothing would ever call it again"
            own.select(multi.timer)
            found += multi.poll(0.0)
        held.set()
    assert [(one.tag, one.error and one.error.kind) for one in found] == [("fast", None), ("slow", ErrorKind.TIMEOUT)]


def test_a_response_that_somebody_hears_is_not_returned(multi):
    heard = []
    with peer() as server:
        multi.submit(Request(server.url, tag="heard"), hears=heard.append)
        multi.submit(Request("http://[x/", tag="senseless"), hears=heard.append)
        assert [one.tag for one in run(multi, Request(server.url, tag="returned"))] == ["returned"]
        wait_until(lambda: multi.poll(0.05) or len(heard) == 2)
    assert {one.tag: one.status for one in heard} == {"senseless": None, "heard": 200}
    assert multi.pending == 0


def test_a_descriptor_is_watched_only_while_something_runs(multi):
    """A kept connection that its peer closes must not keep its owner's loop awake."""
    with peer() as server:
        assert run(multi, Request(server.url))[0].status == 200
        multi.poll(0.0)
    with selectors.DefaultSelector() as own:
        own.register(multi.fileno(), selectors.EVENT_READ)
        assert (own.select(0.05), multi.timer) == ([], None)


def test_no_more_connections_to_a_host_than_allowed():
    few = Multi(max_host_connections=2)
    with peer() as server:
        responses = run(few, *[Request(f"{server.url}/{number}") for number in range(20)])
        assert [one.status for one in responses] == [200] * 20
        assert server.connections <= 2
    few.close()
