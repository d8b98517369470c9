"""One timer for many limits on time, which end as those of asyncio do."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
import weakref
from contextvars import ContextVar

import pytest
import uvloop

from fred import time_limits
from fred.time_limits import TimeLimit
from tests.waiting import stand_still

pytestmark = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


async def forever():
    await asyncio.Event().wait()


def test_who_ends_in_time_is_left_alone(run):
    async def main():
        with TimeLimit(10):
            await asyncio.sleep(0)
        return "in time"

    assert run(main()) == "in time"


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 0.02])
def test_who_does_not_is_stopped_where_it_waits(seconds, run):
    async def main():
        said = []

        async def limited():
            with TimeLimit(seconds):
                said.append("begun")
                try:
                    await forever()
                except asyncio.CancelledError:
                    said.append("stopped")
                    raise

        with pytest.raises(TimeoutError):
            await limited()
        await asyncio.sleep(0)
        return said, asyncio.current_task().cancelling()

    assert run(main()) == (["begun", "stopped"], 0)


def test_what_is_raised_inside_passes(run):
    async def main():
        with TimeLimit(10):
            raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        run(main())


def test_each_has_its_own_limit_whatever_their_order(run):
    ended = []

    async def limited(seconds):
        try:
            with TimeLimit(seconds):
                await forever()
        except TimeoutError:
            ended.append(seconds)

    async def main():
        with TimeLimit(10):
            await asyncio.gather(limited(0.04), limited(0.01), limited(0.07))

    run(main())
    assert ended == [0.01, 0.04, 0.07]


def test_one_timer_serves_those_that_follow_each_other(run):
    async def main():
        limits = time_limits._limits.here()
        with TimeLimit(5):
            first = limits._timer
        for seconds in (6, 7):
            with TimeLimit(seconds):
                assert limits._timer is first
        with TimeLimit(4):
            assert limits._timer is not first
            assert first.cancelled()
        assert not limits._open

    run(main())


def test_the_timer_holds_nothing_of_the_request_that_set_it(run):
    class Thing:
        """What something weak can refer to."""

    held = ContextVar("held")

    async def limited():
        thing = Thing()
        held.set(thing)
        with TimeLimit(10):
            return weakref.ref(thing)

    async def main():
        with TimeLimit(20):
            thing = await asyncio.create_task(limited())
            await asyncio.sleep(0)
            gc.collect()
            return thing()

    assert run(main()) is None


def test_what_came_while_the_loop_stood_still_is_in_time(run):
    async def main():
        near, far = socket.socketpair()
        with near, far:
            near.setblocking(False)
            loop = asyncio.get_running_loop()
            with TimeLimit(0.1):
                reading = asyncio.ensure_future(loop.sock_recv(near, 1))
                await asyncio.sleep(0)
                far.send(b"x")
                stand_still(0.3)
                return await reading

    assert run(main()) == b"x"


def test_who_is_silent_ends_soon_after_the_loop_stood_still(run):
    async def silent():
        stand_still(0.3)
        await forever()

    async def main():
        with pytest.raises(TimeoutError), TimeLimit(0.1):
            await silent()
        return "over"

    assert run(main()) == "over"


def test_a_loop_that_stands_still_again_and_again_ends_it_all_the_same(run):
    async def halting():
        with TimeLimit(0.01):
            for _ in range(20):
                stand_still(0.15)
                await asyncio.sleep(0)

    with pytest.raises(TimeoutError):
        run(halting())


def test_a_limit_that_has_passed_already_waits_for_nothing(run):
    async def main():
        ended = []
        asyncio.get_running_loop().call_later(0.03, ended.append, "later")
        with pytest.raises(TimeoutError), TimeLimit(-1.0):
            await forever()
        return ended

    assert run(main()) == []


def test_who_takes_time_to_end_is_not_stopped_again(run):
    async def slow_to_end():
        try:
            await forever()
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            said.append("cleaned up")

    async def main():
        with pytest.raises(TimeoutError), TimeLimit(0.0):
            await slow_to_end()
        return asyncio.current_task().cancelling()

    said = []
    assert (run(main()), said) == (0, ["cleaned up"])


def test_a_limit_set_late_in_a_turn_has_all_its_time(run):
    async def main():
        stand_still(0.3)
        started = time.monotonic()
        with pytest.raises(TimeoutError), TimeLimit(0.1):
            await forever()
        return time.monotonic() - started

    assert run(main()) >= 0.099


@pytest.mark.parametrize("seconds", [0.0, 10.0])
def test_who_is_cancelled_by_others_as_well_is_told_of_that(seconds, run):
    async def limited():
        with TimeLimit(seconds):
            await forever()

    async def main():
        task = asyncio.create_task(limited())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert run(main())


def test_the_outer_of_two_stops_both(run):
    async def limited():
        with TimeLimit(0.01), TimeLimit(10):
            await forever()

    with pytest.raises(TimeoutError):
        run(limited())


def test_outside_of_a_task_there_is_none_to_stop(run):
    async def main():
        said = asyncio.get_running_loop().create_future()

        def call():
            try:
                TimeLimit(1).__enter__()
            except RuntimeError as error:
                said.set_result(str(error))

        asyncio.get_running_loop().call_soon(call)
        return await said

    assert run(main()) == "only a task can be stopped"
