"""Answers for many askers of an event loop in batches."""

from __future__ import annotations

import asyncio
import gc
from contextvars import ContextVar

import pytest

from fred.together import Together

colour: ContextVar[str] = ContextVar("colour", default="none")


class Doubler:
    """Twice the number, one batch at a time and each only when it may go on; negative numbers fail their batch."""

    def __init__(self, *, free=True):
        self.batches, self.colours, self.closed = [], [], 0
        self.may_go_on = asyncio.Event()
        self.began = asyncio.Event()
        if free:
            self.may_go_on.set()

    async def answer(self, asked):
        self.batches.append(list(asked))
        self.colours.append(colour.get())
        self.began.set()
        await self.may_go_on.wait()
        if min(asked) < 0:
            raise ValueError(f"no answer to {min(asked)}")
        return [2 * one for one in asked]

    async def close(self):
        self.closed += 1


def asked_of(work, *, free=True, **limits):
    """Run `work(together, doubler)` on a loop of its own; return what it returned and the doubler."""

    async def main():
        doubler = Doubler(free=free)
        together = Together(lambda: doubler, **limits)
        async with asyncio.timeout(10):
            found = await work(together, doubler)
        await together.close()
        return found, doubler

    return asyncio.run(main())


def ask_all(together, *numbers):
    return [asyncio.ensure_future(together.ask(number)) for number in numbers]


def test_who_asks_alone_is_answered():
    found, doubler = asked_of(lambda together, _: together.ask(21))
    assert (found, doubler.batches) == (42, [[21]])


def test_what_is_asked_for_meanwhile_goes_into_the_next_batch_in_the_order_of_asking():
    async def work(together, doubler):
        first = ask_all(together, 1, 2)
        await doubler.began.wait()
        later = ask_all(together, 5, 3)
        await asyncio.sleep(0)
        later += ask_all(together, 4)
        await asyncio.sleep(0)
        doubler.may_go_on.set()
        return await asyncio.gather(*first, *later)

    found, doubler = asked_of(work, free=False)
    assert found == [2, 4, 10, 6, 8]
    assert doubler.batches == [[1, 2], [5, 3, 4]]


def test_a_batch_has_so_many_at_most():
    found, doubler = asked_of(lambda together, _: asyncio.gather(*ask_all(together, *range(7))), most=3)
    assert found == [0, 2, 4, 6, 8, 10, 12]
    assert doubler.batches == [[0, 1, 2], [3, 4, 5], [6]]


def test_an_error_reaches_everybody_of_its_batch_and_nobody_else():
    async def work(together, _):
        return await asyncio.gather(*ask_all(together, 1, 2, -3, 4, 5, 6), return_exceptions=True)

    found, _ = asked_of(work, most=2)
    assert [str(one) for one in found] == ["2", "4", "no answer to -3", "no answer to -3", "10", "12"]


def test_who_gave_up_is_not_asked_for():
    async def work(together, doubler):
        first = ask_all(together, 0)
        await doubler.began.wait()
        waiting = ask_all(together, 1, 2, 3)
        await asyncio.sleep(0)
        waiting[1].cancel()
        await asyncio.wait([waiting[1]])
        doubler.may_go_on.set()
        return await asyncio.gather(*first, waiting[0], waiting[2])

    found, doubler = asked_of(work, free=False)
    assert (found, doubler.batches) == ([0, 2, 6], [[0], [1, 3]])


def test_when_all_gave_up_nothing_is_asked():
    async def work(together, doubler):
        first = ask_all(together, 0)
        await doubler.began.wait()
        waiting = ask_all(together, 1, 2)
        await asyncio.sleep(0)
        for one in waiting:
            one.cancel()
        await asyncio.wait(waiting)
        doubler.may_go_on.set()
        return await asyncio.gather(*first), await together.ask(7)

    found, doubler = asked_of(work, free=False)
    assert (found, doubler.batches) == (([0], 14), [[0], [7]])


@pytest.mark.parametrize("number", [1, -1])
def test_who_gives_up_while_its_batch_runs_does_no_harm_to_the_others(number):
    async def work(together, doubler):
        asked = ask_all(together, number, 2)
        await doubler.began.wait()
        asked[0].cancel()
        await asyncio.wait([asked[0]])
        doubler.may_go_on.set()
        return await asyncio.gather(asked[1], together.ask(8), return_exceptions=True)

    (second, later), _ = asked_of(work, free=False)
    assert (str(second), later) == ("4" if number == 1 else "no answer to -1", 16)


def test_it_belongs_to_no_request():
    async def work(together, _):
        colour.set("red")
        return await together.ask(1)

    _, doubler = asked_of(work)
    assert doubler.colours == ["none"]


def test_a_new_loop_gets_a_new_answerer_and_the_old_one_is_closed():
    made = []

    def make():
        made.append(Doubler())
        return made[-1]

    together = Together(make)
    assert [asyncio.run(together.ask(number)) for number in (1, 2)] == [2, 4]
    assert [(one.batches, one.closed) for one in made] == [([[1]], 1), ([[2]], 1)]


def test_loops_may_ask_by_turns_and_each_closes_its_answerer_at_its_end():
    made = []

    def make():
        made.append(Doubler())
        return made[-1]

    async def ask(number):
        async with asyncio.timeout(10):
            return await together.ask(number)

    together = Together(make)
    with asyncio.Runner() as one:
        with asyncio.Runner() as other:
            assert [loop.run(ask(number)) for number, loop in enumerate((one, other))] == [0, 2]
            gc.collect()  # a loop alone does not keep a task that waits
            assert [loop.run(ask(number)) for number, loop in enumerate((one, other, one), 2)] == [4, 6, 8]
            assert [each.closed for each in made] == [0, 0]
        assert [each.closed for each in made] == [0, 1]
    assert [(each.batches, each.closed) for each in made] == [([[0], [2], [4]], 1), ([[1], [3]], 1)]


def test_closed_it_lets_go_and_whoever_asks_later_begins_anew():
    made = []

    def make():
        made.append(Doubler())
        return made[-1]

    async def main():
        together = Together(make)
        await together.close()  # nobody asked yet
        assert made == []
        found = [await together.ask(1)]
        await together.close()
        await together.close()
        found.append(await together.ask(2))
        await together.close()
        return found

    assert asyncio.run(main()) == [2, 4]
    assert [(one.batches, one.closed) for one in made] == [([[1]], 1), ([[2]], 1)]


def test_who_still_waits_when_it_closes_is_let_go():
    async def work(together, doubler):
        running = ask_all(together, 1)
        await doubler.began.wait()
        waiting = ask_all(together, 2)
        await asyncio.sleep(0)
        await together.close()
        return await asyncio.gather(*running, *waiting, return_exceptions=True)

    found, doubler = asked_of(work, free=False)
    assert [type(one) for one in found] == [asyncio.CancelledError] * 2
    assert doubler.closed == 1


def test_who_asks_after_its_task_was_ended_by_others_is_answered():
    made = []

    def make():
        made.append(Doubler())
        return made[-1]

    async def main():
        together = Together(make)
        found = [await together.ask(1)]
        (task,) = asyncio.all_tasks() - {asyncio.current_task()}
        task.cancel()
        await asyncio.wait([task])
        async with asyncio.timeout(10):
            found.append(await together.ask(2))
        await together.close()
        return found

    assert asyncio.run(main()) == [2, 4]
    assert [(one.batches, one.closed) for one in made] == [([[1]], 1), ([[2]], 1)]


def test_a_close_from_another_loop_leaves_it_alone():
    async def work(together, doubler):
        await together.ask(1)
        await asyncio.to_thread(lambda: asyncio.run(together.close()))
        return doubler.closed, await together.ask(2)

    found, doubler = asked_of(work)
    assert (found, doubler.batches) == ((0, 4), [[1], [2]])


def test_an_answerer_that_miscounts_leaves_nobody_waiting():
    class Short(Doubler):
        async def answer(self, asked):
            return (await super().answer(asked))[:1]

    async def main():
        together = Together(Short)
        async with asyncio.timeout(10):
            found = await asyncio.gather(*ask_all(together, 1, 2), return_exceptions=True)
            found.append(await together.ask(3))
        await together.close()
        return found

    *both, later = asyncio.run(main())
    assert all(isinstance(one, ValueError) for one in both)
    assert later == 6


def test_who_asks_while_the_work_is_ending_is_not_forgotten():
    async def main():
        ending, may_end = asyncio.Event(), asyncio.Event()

        class Slow(Doubler):
            async def close(self):
                ending.set()
                await may_end.wait()

        together = Together(Slow)
        assert await together.ask(1) == 2
        closing = asyncio.ensure_future(together.close())
        queue = together._queues  # what `close` has taken out: whoever holds it asks a dying task
        await ending.wait()
        assert queue.taken() is None
        late = asyncio.ensure_future(together.ask(2))
        assert await asyncio.wait_for(late, 5) == 4
        may_end.set()
        await closing
        await together.close()

    asyncio.run(main())


def test_work_that_is_cancelled_by_somebody_else_leaves_nobody_waiting():
    async def main():
        ending, may_end = asyncio.Event(), asyncio.Event()

        class Slow(Doubler):
            async def close(self):
                ending.set()
                await may_end.wait()

        together = Together(Slow)
        await together.ask(1)
        task = together._queues.here().task
        task.cancel()
        await ending.wait()
        late = asyncio.ensure_future(together.ask(2))
        await asyncio.sleep(0)
        may_end.set()
        await asyncio.wait([task, late], timeout=5)
        assert late.cancelled()
        assert await together.ask(3) == 6
        await together.close()

    asyncio.run(main())
