"""Synchronous code in a greenlet of the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import pytest
from greenlet import getcurrent

from fred import on_loop
from fred.on_loop import MOST_IDLE, blocking, is_here, wait

colour: ContextVar[str] = ContextVar("colour", default="none")


async def no_thread(function):
    raise AssertionError("nothing of this blocks")


def run(function, *, aside=no_thread):
    return on_loop.run(function, aside=aside, briefly=aside)


async def soon(value):
    """The value, some turns of the loop later."""
    for _ in range(3):
        await asyncio.sleep(0)
    return value


async def fails(error):
    await soon(None)
    raise error


def test_it_returns_what_the_function_returns():
    assert asyncio.run(run(lambda: [wait(soon(1)), wait(soon(2))])) == [1, 2]


def test_what_never_waits_returns_at_once():
    coroutine = run(lambda: "done")
    with pytest.raises(StopIteration) as ended:
        coroutine.send(None)
    assert ended.value.value == "done"


@pytest.mark.parametrize("waits_first", [False, True])
def test_what_the_function_raises_is_raised_to_the_caller(waits_first):
    def function():
        if waits_first:
            wait(soon(None))
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        asyncio.run(run(function))


def test_what_an_awaitable_raises_is_raised_where_it_was_waited_for():
    seen = []

    def function():
        try:
            wait(fails(LookupError("gone")))
        except LookupError as error:
            seen.append(str(error))
        return wait(soon("went on"))

    assert asyncio.run(run(function)) == "went on"
    assert seen == ["gone"]


def test_a_wait_may_stand_at_any_depth():
    def add(depth):
        return wait(soon(depth)) + (add(depth - 1) if depth else 0)

    assert asyncio.run(run(lambda: add(4))) == 10


def test_what_is_awaited_may_run_such_code_itself():
    def outer():
        assert wait(run(lambda: wait(soon("inner")))) == "inner"
        return is_here(), wait(soon("outer"))

    assert asyncio.run(run(outer)) == (True, "outer")


def test_two_calls_run_by_turns():
    said, first_may, second_may = [], asyncio.Event(), asyncio.Event()

    def first():
        said.append("first begins")
        second_may.set()
        wait(first_may.wait())
        said.append("first ends")

    def second():
        wait(second_may.wait())
        said.append("second")
        first_may.set()

    async def both():
        await asyncio.gather(run(first), run(second))

    asyncio.run(both())
    assert said == ["first begins", "second", "first ends"]


@pytest.mark.parametrize("way", ["cancel", "timeout"])
def test_who_is_cancelled_learns_it_where_it_waits(way):
    seen, waits = [], asyncio.Event()

    def function():
        waits.set()
        try:
            wait(asyncio.Event().wait())
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        finally:
            seen.append(wait(soon("cleaned up")))
        seen.append("never here")

    async def main():
        if way == "timeout":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await run(function)
            return
        task = asyncio.create_task(run(function))
        await waits.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert seen == ["cancelled", "cleaned up"]


def test_a_function_that_goes_on_after_its_cancellation_has_its_result_heard():
    def function():
        try:
            wait(asyncio.Event().wait())
        except asyncio.CancelledError:
            return wait(soon("stayed"))

    async def main():
        task = asyncio.create_task(run(function))
        await asyncio.sleep(0)
        task.cancel()
        return await task

    assert asyncio.run(main()) == "stayed"


def test_the_callers_context_variables_are_seen_and_own_changes_stay_inside():
    def function(name):
        seen = [colour.get()]
        colour.set(name)
        wait(soon(None))
        return [*seen, colour.get()]

    async def main():
        colour.set("green")
        found = await asyncio.gather(run(lambda: function("red")), run(lambda: function("blue")))
        alone = await run(lambda: function("black"))
        return [*found, alone], colour.get()

    assert asyncio.run(main()) == ([["green", "red"], ["green", "blue"], ["green", "black"]], "green")


def test_a_greenlet_is_used_again_after_whatever_came_of_its_call():
    def fails():
        raise LookupError("gone")

    async def main():
        first = await run(getcurrent)
        for function in (lambda: wait(soon("x")), fails):
            await asyncio.gather(run(function), return_exceptions=True)
        return first is await run(getcurrent)

    assert asyncio.run(main())


class Thing:
    """What something weak can refer to."""


@pytest.mark.parametrize("way", ["returned", "raised", "bound"])
def test_an_idle_greenlet_holds_nothing_of_its_last_call(way):
    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(_weakly(way))() is None
    finally:
        gc.enable()


async def _weakly(way):
    def function():
        thing = Thing()
        seen.append(weakref.ref(thing))
        if way == "raised":
            raise LookupError(thing)
        if way == "bound":
            colour.set(thing)
            return None
        return thing

    seen = []
    with contextlib.suppress(LookupError):
        await run(function)
    return seen[0]


def test_more_calls_at_once_than_greenlets_are_kept():
    async def main():
        return await asyncio.gather(*(run(lambda n=n: wait(soon(n))) for n in range(2 * MOST_IDLE)))

    assert asyncio.run(main()) == list(range(2 * MOST_IDLE))
    assert len(on_loop._idle.guests) == MOST_IDLE


def test_a_call_that_nobody_waits_for_any_more_ends_where_it_waits():
    seen = []

    def function():
        try:
            wait(asyncio.Event().wait())
        except GeneratorExit:
            seen.append("ended")
            raise

    async def main():
        coroutine = run(function)
        coroutine.send(None)
        coroutine.close()
        return await run(lambda: wait(soon("as ever")))

    assert asyncio.run(main()) == "as ever"
    assert seen == ["ended"]


def test_idle_greenlets_end_with_their_thread():
    seen = []
    thread = threading.Thread(target=lambda: seen.append(weakref.ref(asyncio.run(run(getcurrent)))))
    thread.start()
    thread.join()
    assert seen[0]() is None


@pytest.fixture
def pool():
    with ThreadPoolExecutor(1, thread_name_prefix="aside") as made:
        yield lambda function: asyncio.wrap_future(made.submit(function))


def test_what_blocks_runs_aside_with_the_same_context_variables(pool):
    def told(*words, end):
        return threading.current_thread().name, is_here(), colour.get(), [*words, end]

    def function():
        colour.set("red")
        return blocking(told, "a", "b", end="c")

    assert asyncio.run(run(function, aside=pool)) == ("aside_0", False, "red", ["a", "b", "c"])


def test_others_run_while_one_blocks(pool):
    released = threading.Event()

    async def main():
        async with asyncio.timeout(60):
            return await asyncio.gather(run(lambda: blocking(released.wait, 10), aside=pool), run(released.set))

    assert asyncio.run(main()) == [True, None]


def test_an_error_of_what_blocks_is_raised_to_who_called_it(pool):
    def function():
        try:
            blocking(int, "no number")
        except ValueError:
            return "caught"

    assert asyncio.run(run(function, aside=pool)) == "caught"


def test_outside_it_is_a_plain_call():
    def told(word):
        return threading.current_thread(), is_here(), colour.get(), word

    colour.set("yellow")
    assert blocking(told, "x") == (threading.current_thread(), False, "yellow", "x")


def test_it_is_here_only_inside():
    async def main():
        assert not is_here()
        inside = await run(is_here)
        return inside, is_here()

    assert asyncio.run(main()) == (True, False)


def test_outside_nothing_can_be_waited_for():
    async def main():
        wait(asyncio.get_running_loop().create_future())

    with pytest.raises(TypeError, match="outside"):
        asyncio.run(main())
    with pytest.raises(TypeError, match="outside"):
        wait(asyncio.Event())
