"""What belongs to an event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from contextvars import ContextVar

import pytest

from fred.per_loop import PerLoop
from tests.waiting import wait_until


@pytest.fixture
def dropped():
    return []


@pytest.fixture
def own(dropped):
    return PerLoop(lambda: [asyncio.get_running_loop()], drop=dropped.append)


async def here(own):
    return own.here()


async def taken(own):
    return own.taken()


def test_it_is_made_in_a_context_of_its_own():
    colour = ContextVar("colour", default="none")
    seen = PerLoop(lambda: [colour.get(), asyncio.get_running_loop().create_task(soon())])

    async def soon():
        return colour.get()

    async def main():
        colour.set("red")
        now, later = seen.here()
        return now, await later, colour.get()

    assert asyncio.run(main()) == ("none", "none", "red")


def test_a_loop_that_runs_on_another_thread_by_now_is_not_the_one_here(own):
    with asyncio.Runner() as moved, asyncio.Runner() as other:
        moved.run(here(own))
        loop = moved.get_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            wait_until(loop.is_running)
            with pytest.raises(RuntimeError):
                own.here()
            assert other.run(here(own)) == [other.get_loop()]
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


def test_a_child_is_on_no_loop(own):
    async def forked():
        own.here()
        child = os.fork()
        if child == 0:
            try:
                own.here()
            except RuntimeError:
                os._exit(7)
            os._exit(0)
        return child

    assert os.waitstatus_to_exitcode(os.waitpid(asyncio.run(forked()), 0)[1]) == 7


def test_every_loop_has_its_own_and_keeps_it(own, dropped):
    with asyncio.Runner() as one, asyncio.Runner() as other:
        first, second, again = one.run(here(own)), other.run(here(own)), one.run(here(own))
        assert first is again is not second
        assert (first, second) == ([one.get_loop()], [other.get_loop()])
    assert dropped == []


def test_what_is_taken_is_made_anew_at_the_next_use_and_never_dropped(own, dropped):
    with asyncio.Runner() as one:
        assert one.run(taken(own)) is None
        first = one.run(here(own))
        assert one.run(taken(own)) is first
        assert one.run(taken(own)) is None
        assert one.run(here(own)) is not first
        one.run(taken(own))
    asyncio.run(here(own))
    assert dropped == []


def test_that_of_a_loop_which_ended_is_dropped_when_a_new_loop_begins(own, dropped):
    first = asyncio.run(here(own))
    assert dropped == []
    asyncio.run(here(own))
    assert dropped == [first]


def test_outside_of_a_loop_there_is_none(own):
    with pytest.raises(RuntimeError):
        own.here()
