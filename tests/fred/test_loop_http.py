"""Outgoing HTTP from the event loop."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from contextvars import ContextVar

import pytest
import uvloop

from fred import loop_http, on_loop
from fred.http import ErrorKind, Request
from fred.loop_http import LoopHttp
from tests.backends.servers import answer, peer, says
from tests.waiting import wait_until


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def on_a_loop(request):
    """`on_a_loop(work)`: run `work(http)` on a loop of its own, as tests have it and as the server has it."""

    def run(work, http=None):
        async def main():
            made = http or LoopHttp()
            try:
                async with asyncio.timeout(60):
                    return await work(made)
            finally:
                await made.close()

        faults = []
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.get_loop().set_exception_handler(lambda _, fault: faults.append(fault))
            found = runner.run(main())
        assert faults == []
        return found

    return run


def test_an_answer_is_that_of_its_request(on_a_loop):
    with peer(lambda got: answer(200, got.target.encode() + got.body)) as server:

        async def work(http):
            asked = [Request(f"{server.url}/{number}", body=b"b" if number % 2 else None) for number in range(9)]
            return [one.body for one in await asyncio.gather(*map(http.fetch, asked))]

        assert on_a_loop(work) == [b"/%d%b" % (number, b"b" if number % 2 else b"") for number in range(9)]


def test_a_tag_comes_back_untouched(on_a_loop):
    with peer() as server:

        async def work(http):
            return [(await http.fetch(Request(url, tag="t"))).tag for url in (server.url, "http://[x/")]

        assert on_a_loop(work) == ["t", "t"]


def test_nothing_is_kept_of_the_context_of_a_request(on_a_loop):
    class Thing:
        """What something weak can refer to."""

    held = ContextVar("held")

    async def ask(http, url):
        thing = Thing()
        held.set(thing)
        assert (await http.fetch(Request(url))).status == 200
        return weakref.ref(thing)

    async def work(http):
        things = [await asyncio.create_task(ask(http, server.url)) for _ in range(2)]
        await asyncio.sleep(0)
        gc.collect()
        return [thing() for thing in things]

    with peer() as server:
        assert on_a_loop(work) == [None, None]


def test_many_at_once_share_few_connections(on_a_loop, monkeypatch):
    monkeypatch.setattr(loop_http, "CONNECTIONS", 4)
    crowd = threading.Barrier(4, timeout=10)  # each answers only beside three others
    with peer(lambda _got: crowd.wait() >= 0 and answer(200)) as server:

        async def work(http):
            return await asyncio.gather(*(http.fetch(Request(f"{server.url}/{number}")) for number in range(40)))

        assert [one.status for one in on_a_loop(work)] == [200] * 40
        assert server.connections == 4


def test_one_after_the_other_they_share_one(on_a_loop):
    with peer() as server:

        async def work(http):
            return [(await http.fetch(Request(server.url))).status for _ in range(5)]

        assert on_a_loop(work) == [200] * 5
        assert server.connections == 1


def test_errors_are_answers(on_a_loop):
    with peer() as closed:
        pass

    async def work(http):
        asked = (Request(f"{closed.url}/"), Request("http://[x/"))
        return await asyncio.gather(*map(http.fetch, asked))

    refused, senseless = on_a_loop(work)
    assert (refused.status, refused.error.kind) == (None, ErrorKind.REFUSED)
    assert (senseless.status, senseless.error.kind) == (None, ErrorKind.INVALID)


def test_silence_ends_at_the_time_limit_and_others_are_answered_meanwhile(on_a_loop):
    held = threading.Event()
    with peer(lambda got: (got.target == "/fast" or held.wait(10)) and answer(200)) as server:

        async def work(http):
            slow = asyncio.ensure_future(http.fetch(Request(f"{server.url}/slow", timeout=1.0)))
            fast = [await http.fetch(Request(f"{server.url}/fast")) for _ in range(3)]
            assert not slow.done()
            return [*fast, await slow]

        *fast, slow = on_a_loop(work)
        held.set()
    assert [one.status for one in fast] == [200] * 3
    assert slow.error.kind is ErrorKind.TIMEOUT


def test_an_early_time_limit_holds_beside_one_that_came_and_one_that_is_far(on_a_loop):
    held = threading.Event()
    with peer(lambda got: (got.target == "/fast" or held.wait(10)) and answer(200)) as server:

        async def work(http):
            await http.fetch(Request(f"{server.url}/fast", timeout=0.1))
            far, early = (
                asyncio.ensure_future(http.fetch(Request(f"{server.url}/slow", timeout=one))) for one in (8.0, 0.2)
            )
            ended = await early
            assert not far.done()
            held.set()
            return ended, await far

        early, far = on_a_loop(work)
    assert (early.error.kind, early.elapsed < 4, far.status) == (ErrorKind.TIMEOUT, True, 200)


def test_who_waits_for_a_connection_waits_inside_its_time_limit(on_a_loop, monkeypatch):
    monkeypatch.setattr(loop_http, "CONNECTIONS", 1)
    held = threading.Event()
    with peer(lambda _got: held.wait(10) and answer(200)) as server:

        async def work(http):
            first = asyncio.ensure_future(http.fetch(Request(f"{server.url}/first")))
            await asyncio.to_thread(wait_until, lambda: server.got)
            second = await http.fetch(Request(f"{server.url}/second", timeout=0.5))
            held.set()
            return await first, second

        first, second = on_a_loop(work)
        assert [got.target for got in server.got] == ["/first"]
    assert (first.status, second.error.kind, second.error.sent_nothing) == (200, ErrorKind.CONNECT_TIMEOUT, True)


def test_who_stops_waiting_does_no_harm(on_a_loop):
    held, asked = threading.Event(), threading.Event()

    def script(got):
        if got.target == "/slow":
            asked.set()
            held.wait(10)
        return answer(200, got.target.encode())

    with peer(script) as server:

        async def work(http):
            gone = asyncio.ensure_future(http.fetch(Request(f"{server.url}/slow")))
            while not asked.is_set():
                assert (await http.fetch(Request(f"{server.url}/x"))).status == 200
            gone.cancel()
            await asyncio.wait([gone])
            at_once = asyncio.ensure_future(http.fetch(Request(f"{server.url}/never")))
            await asyncio.sleep(0)
            at_once.cancel()
            held.set()
            return [(await http.fetch(Request(f"{server.url}/{number}"))).body for number in range(3)]

        assert on_a_loop(work) == [b"/0", b"/1", b"/2"]


def test_a_second_loop_begins_anew(on_a_loop):
    http = LoopHttp()
    with peer() as server:

        async def work(http):
            return (await http.fetch(Request(server.url))).status

        assert asyncio.run(work(http)) == 200  # it ends without a close
        assert [on_a_loop(work, http), on_a_loop(work, http)] == [200, 200]
        assert server.connections == 3


def test_loops_may_ask_by_turns_and_each_has_its_own_connections():
    http, held = LoopHttp(), threading.Event()
    with peer(lambda got: (got.target != "/slow" or held.wait(10)) and answer(200, got.target.encode())) as server:

        async def ask(name):
            return (await http.fetch(Request(f"{server.url}/{name}"))).body

        with asyncio.Runner() as one, asyncio.Runner(loop_factory=uvloop.new_event_loop) as other:
            slow = one.get_loop().create_task(ask("slow"))
            assert [loop.run(ask(number)) for number, loop in enumerate((one, other, one, other))] == [
                b"/%d" % number for number in range(4)
            ]
            other.run(http.close())
            held.set()
            assert one.get_loop().run_until_complete(slow) == b"/slow"
            one.run(http.close())
        assert server.connections == 3


def test_closed_it_holds_nothing_and_whoever_asks_begins_anew(on_a_loop):
    with peer() as server:

        async def work(http):
            await http.close()  # nothing was sent yet
            found = [(await http.fetch(Request(server.url))).status]
            waiting = asyncio.ensure_future(http.fetch(Request(f"{server.url}/dropped")))
            await asyncio.sleep(0)  # it is about to be sent
            waiting.cancel()
            await http.close()
            await http.close()
            await asyncio.sleep(0)  # what was about to begin is not missed
            return [*found, (await http.fetch(Request(server.url))).status]

        assert on_a_loop(work) == [200, 200]
        assert server.connections == 2
        assert [got.target for got in server.got] == ["/", "/"]


def on_the_loop(view):
    """What a view returns that runs on a loop of its own."""

    async def main():
        try:
            async with asyncio.timeout(60):
                return await on_loop.run(view, aside=asyncio.to_thread, briefly=asyncio.to_thread)
        finally:
            await loop_http.requests.close()

    return asyncio.run(main())


def test_a_view_on_the_loop_fetches_without_an_await():
    with peer(says(200, b"{}")) as server:
        assert on_the_loop(lambda: loop_http.fetch(Request(server.url))).status == 200


def test_some_requests_at_once_are_answered_as_they_end():
    held = threading.Event()
    with peer(lambda got: (got.target == "/fast" or held.wait(10)) and answer(200)) as server:

        def view():
            asked = [Request(f"{server.url}/{name}", tag=name) for name in ("slow", "fast")]
            responses = loop_http.fetch_each([*asked, Request("http://[", tag="bad")])
            first = {next(responses).tag, next(responses).tag}
            held.set()
            return first, [one.tag for one in responses]

        assert on_the_loop(view) == ({"fast", "bad"}, ["slow"])


def test_whoever_stops_listening_breaks_off_the_rest(monkeypatch):
    monkeypatch.setattr(loop_http, "CONNECTIONS", 1)
    held, asked = threading.Event(), threading.Event()
    with (
        peer(lambda got: (got.target == "/fast" or asked.set() or held.wait(10)) and answer(200)) as slow,
        peer(lambda _got: asked.wait(10) and answer(200)) as fast,
    ):

        def view():
            responses = loop_http.fetch_each([Request(f"{slow.url}/slow"), Request(fast.url, tag="fast")])
            first = next(responses).tag
            responses.close()
            again = loop_http.fetch(Request(f"{slow.url}/fast", timeout=5.0))  # there is one connection for both
            return first, again.error and again.error.kind

        found = on_the_loop(view)
        held.set()
    assert found == ("fast", None)
