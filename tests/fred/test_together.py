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
        self.may_go_on, self.may_close = asyncio.Event(), asyncio.Event()
        self.began, self.closes = asyncio.Event(), asyncio.Event()
        self.may_close.set()
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
        self.closes.set()
        await self.may_close.wait()
        self.closed += 1


class Anew(Together):
    """Gives each loop a new answerer, and remembers in order those that it made."""

    def __init__(self):
        self.made = []
        super().__init__(self._another)

    def _another(self):
        self.made.append(Doubler())
        return self.made[-1]

    @property
    def told(self):
        """The batches of each answerer, and how often it was closed."""
        return [(one.batches, one.closed) for one in self.made]


@pytest.fixture
def anew():
    return Anew()


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


def test_those_who_come_turn_after_turn_go_together_and_nobody_waits_for_a_turn_that_brings_none():
    async def work(together, doubler):
        begun = []
        for number in (1, 2, 3):
            begun.append(together.begin(number))
            await asyncio.sleep(0)
        await doubler.began.wait()
        begun.append(together.begin(4))
        return await asyncio.gather(*begun)

    found, doubler = asked_of(work)
    assert (found, doubler.batches) == ([2, 4, 6, 8], [[1, 2, 3], [4]])


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


def test_a_new_loop_gets_a_new_answerer_and_the_old_one_is_closed(anew):
    assert [asyncio.run(anew.ask(number)) for number in (1, 2)] == [2, 4]
    assert anew.told == [([[1]], 1), ([[2]], 1)]


def test_loops_may_ask_by_turns_and_each_closes_its_answerer_at_its_end(anew):
    async def ask(number):
        async with asyncio.timeout(10):
            return await anew.ask(number)

    with asyncio.Runner() as one:
        with asyncio.Runner() as other:
            assert [loop.run(ask(number)) for number, loop in enumerate((one, other))] == [0, 2]
            gc.collect()  # a loop alone does not keep a task that waits
            assert [loop.run(ask(number)) for number, loop in enumerate((one, other, one), 2)] == [4, 6, 8]
            assert [each.closed for each in anew.made] == [0, 0]
        assert [each.closed for each in anew.made] == [0, 1]
    assert anew.told == [([[0], [2], [4]], 1), ([[1], [3]], 1)]


def test_closed_it_lets_go_and_whoever_asks_later_begins_anew(anew):
    async def main():
        await anew.close()  # nobody asked yet
        assert anew.made == []
        found = [await anew.ask(1)]
        await anew.close()
        await anew.close()
        found.append(await anew.ask(2))
        await anew.close()
        return found

    assert asyncio.run(main()) == [2, 4]
    assert anew.told == [([[1]], 1), ([[2]], 1)]


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


def test_who_asks_while_it_closes_begins_anew(anew):
    async def main():
        assert await anew.ask(1) == 2
        anew.made[0].may_close.clear()
        closing = asyncio.create_task(anew.close())
        await anew.made[0].closes.wait()
        async with asyncio.timeout(10):
            assert await anew.ask(2) == 4
        assert not closing.done()
        anew.made[0].may_close.set()
        await closing
        await anew.close()

    asyncio.run(main())
    assert anew.told == [([[1]], 1), ([[2]], 1)]


@pytest.mark.parametrize("has_ended", [False, True])
def test_when_its_task_is_ended_by_others_nobody_is_left_waiting_and_whoever_asks_later_is_answered(has_ended, anew):
    async def main():
        assert await anew.ask(1) == 2
        (task,) = asyncio.all_tasks() - {asyncio.current_task()}
        anew.made[0].may_close.clear()
        task.cancel()
        await anew.made[0].closes.wait()
        late = [] if has_ended else ask_all(anew, 2)
        await asyncio.sleep(0)
        anew.made[0].may_close.set()
        async with asyncio.timeout(10):
            await asyncio.wait([task, *late])
            assert await anew.ask(3) == 6
        await anew.close()
        return [one.cancelled() for one in late]

    assert asyncio.run(main()) == ([] if has_ended else [True])
    assert anew.told == [([[1]], 1), ([[3]], 1)]


def test_what_goes_wrong_when_an_answerer_is_closed_is_told_to_who_closes():
    class Stuck(Doubler):
        async def close(self):
            raise OSError("still busy")

    async def main():
        together = Together(Stuck)
        await together.ask(1)
        with pytest.raises(OSError, match="still busy"):
            await together.close()
        await together.close()

    asyncio.run(main())
