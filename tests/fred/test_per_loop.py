"""What belongs to an event loop."""

from __future__ import annotations

import asyncio

import pytest

from fred.per_loop import PerLoop


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
