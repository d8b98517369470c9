"""What belongs to an event loop."""

from __future__ import annotations

import asyncio
import os

import pytest

from fred.per_loop import PerLoop, running_loop


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


async def loops():
    return running_loop(), asyncio.get_running_loop()


def test_the_running_loop_is_that_of_this_thread_and_moment():
    with asyncio.Runner() as one, asyncio.Runner() as other:
        for runner in (one, other, one):
            assert {*runner.run(loops())} == {runner.get_loop()}
            with pytest.raises(RuntimeError):
                running_loop()

    async def beside():
        elsewhere = await asyncio.to_thread(lambda: asyncio.run(loops()))
        return {*elsewhere}, {*await loops()}

    there, here = asyncio.run(beside())
    assert len(there) == len(here) == 1
    assert there != here


def test_a_child_has_no_running_loop():
    async def forked():
        running_loop()
        child = os.fork()
        if child == 0:
            try:
                running_loop()
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
