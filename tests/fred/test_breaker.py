"""The breaker that all processes share."""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from structlog.testing import capture_logs

from fred import breaker, on_loop
from fred.breaker import Breaker, State
from tests.waiting import wait_until


@pytest.fixture
def make(valkey):
    """Breakers of as many processes as wanted, all for one backend; nothing is read from memory."""
    return lambda **changes: Breaker(valkey, "b1", **{"fresh_for": 0.0, **changes})


def fail(one, times):
    for _ in range(times):
        one.record(one.enter(), pulse="failure")


def test_bc52_it_opens_at_five_failures_in_a_row(make):
    one = make()
    fail(one, 4)
    one.record(one.enter(), pulse="success")
    fail(one, 4)
    assert one.view().state is State.CLOSED
    fail(one, 1)
    assert one.view().state is State.OPEN
    assert one.enter() is None


def test_bc56_processes_share_it(make):
    one, other = make(), make()
    fail(one, 3)
    fail(other, 2)
    assert (one.enter(), other.enter()) == (None, None)


def test_bc53_after_its_time_one_call_passes_and_closes_it(make):
    one, other = make(open_for=0.05), make(open_for=0.05)
    fail(one, 5)
    ticket = wait_until(one.enter)
    assert other.enter() is None
    assert other.view().state is State.HALF_OPEN
    one.record(ticket, pulse="success")
    assert None not in (one.enter(), other.enter(), other.enter())
    assert other.view().state is State.CLOSED


def test_bc54_a_failing_probe_opens_it_again(make):
    one = make(open_for=0.05)
    fail(one, 5)
    one.record(wait_until(one.enter), pulse="failure")
    assert one.view().state is State.OPEN


def test_bc55_a_probe_that_told_nothing_frees_its_slot(make):
    one = make(open_for=0.05)
    fail(one, 5)
    one.record(wait_until(one.enter), pulse="neutral")
    assert one.view().state is State.HALF_OPEN
    assert one.enter() is not None


def test_p9_the_slot_of_a_dead_process_expires(make):
    dead, one = make(open_for=0.02, probe_for=0.1), make(open_for=0.02, probe_for=0.1)
    fail(dead, 5)
    late = wait_until(dead.enter)
    ticket = wait_until(one.enter)
    dead.record(late, pulse="success")
    assert one.view().state is State.HALF_OPEN  # the late answer belongs to an older generation
    one.record(ticket, pulse="success")
    assert one.view().state is State.CLOSED


def test_bc58_an_answer_from_before_it_opened_does_not_close_it(make):
    one = make()
    early = one.enter()
    fail(one, 5)
    one.record(early, pulse="success")
    assert one.enter() is None


def test_in_calm_nothing_is_written_and_little_read(valkey, monkeypatch):
    run, asked = valkey.execute_command, []
    monkeypatch.setattr(valkey, "execute_command", lambda *what, **how: asked.append(what[0]) or run(*what, **how))
    one = Breaker(valkey, "b1", fresh_for=60.0)
    for _ in range(100):
        one.record(one.enter(), pulse="success")
    assert 1 <= asked.count("EVALSHA") <= 4  # each again where the script was not known
    assert set(asked) <= {"EVALSHA", "SCRIPT LOAD"}
    assert valkey.exists("fred:cb:b1") == 0


def test_p8_the_process_that_counts_the_fifth_failure_sees_it_at_once_and_others_within_a_second(valkey):
    one, other = Breaker(valkey, "b1"), Breaker(valkey, "b1")
    running = other.enter()
    assert other.enter() is not None
    fail(one, 5)
    assert one.enter() is None
    assert wait_until(lambda: other.enter() is None, timeout=5)
    other.record(running, pulse="success")  # what was under way ends as it likes, and changes nothing
    assert one.view().state is State.OPEN


def test_p9_the_slot_is_held_for_the_limit_of_its_call(make, valkey):
    one = make(open_for=0.02)
    fail(one, 5)
    wait_until(lambda: one.enter(limit=90.0) is not None)
    assert 90 < one.view().wait <= 95


def test_p8_each_change_is_one_line_of_whoever_made_it(make):
    with capture_logs() as lines:
        one, other = make(open_for=0.02), make(open_for=0.02)
        fail(one, 5)
        ticket = wait_until(other.enter)
        assert one.view().state is State.HALF_OPEN
        other.record(ticket, pulse="success")
        assert one.view().state is State.CLOSED
    changes = [(line["from"], line["to"], line["log_level"]) for line in lines if "state change" in line["event"]]
    assert changes == [
        ("closed", "open", "warning"),
        ("open", "half_open", "warning"),
        ("half_open", "closed", "warning"),
    ]


def test_a_flushed_valkey_means_closed(make, valkey):
    one = make()
    fail(one, 5)
    valkey.flushdb()
    assert one.enter() is not None


def test_a_valkey_that_is_away_means_closed():
    one = Breaker(Redis(host="127.0.0.1", port=1, retry=Retry(NoBackoff(), 0)), "b1")
    ticket = one.enter()
    assert ticket is not None
    one.record(ticket, pulse="failure")
    assert one.view().state is State.CLOSED


def test_routing_sees_whether_a_call_would_be_refused(valkey):
    breaker.forget()
    assert not breaker.is_open("b1")
    fail(breaker.of("b1"), 5)
    assert breaker.is_open("b1")
    assert 50 < breaker.half_opens_in("b1") <= 60
    assert not breaker.is_open("b2")
    breaker.forget()


def test_a_fork_makes_its_own_connection(valkey):
    breaker.forget()
    mine = breaker.of("b1")
    pid = os.fork()
    if pid == 0:
        os._exit(0 if breaker.of("b1") is not mine and breaker.of("b1").enter() is not None else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert breaker.of("b1") is mine
    breaker.forget()


def test_while_one_reads_it_anew_the_others_go_by_what_is_known_a_quarter_longer(valkey, monkeypatch):
    now, asked = SimpleNamespace(at=100.0), []
    monkeypatch.setattr(breaker, "time", SimpleNamespace(monotonic=lambda: now.at))
    one = Breaker(valkey, "b1", fresh_for=0.8)
    ask = one._enter

    def slowly(**how):
        asked.append(now.at)
        if len(asked) == 2:
            for now.at in (100.86, 100.99, 101.01):
                assert one.enter() == 0
        return ask(**how)

    one._enter = slowly
    for now.at in (100.0, 100.79, 100.85):
        assert one.enter() == 0
    assert asked == [100.0, 100.85, 101.01]


def test_a_reader_that_died_holds_up_nobody(valkey, monkeypatch):
    now, asked = SimpleNamespace(at=100.0), []
    monkeypatch.setattr(breaker, "time", SimpleNamespace(monotonic=lambda: now.at))
    one = Breaker(valkey, "b1", fresh_for=0.8)
    one.enter()
    ask = one._enter

    def fails_once(**how):
        asked.append(now.at)
        if len(asked) == 1:
            raise LookupError
        return ask(**how)

    one._enter = fails_once
    now.at = 100.81
    with pytest.raises(LookupError):
        one.enter()
    for now.at in (100.9, 101.0):
        assert one.enter() == 0
    assert asked == [100.81, 101.0]


def test_on_an_event_loop_a_thread_asks_and_only_when_nothing_is_known(valkey):
    one, threads = Breaker(valkey, "b1", fresh_for=60.0), []

    def aside(function):
        threads.append(threading.current_thread())
        return asyncio.to_thread(function)

    def view():
        for _ in range(3):
            one.record(one.enter(), pulse="success")
        calm = len(threads)
        fail(one, 5)
        return calm, one.enter()

    assert asyncio.run(on_loop.run(view, aside=aside, briefly=aside)) == (1, None)


@pytest.mark.parametrize(
    "answer",
    ["5", "false", "{}", "redis.status_reply('OK')", "{'closed', 'x', 0, 0, 1, 'closed'}", "{1, 2, 3, 4, 5, 6}"],
)
def test_what_is_no_answer_of_ours_counts_as_a_valkey_that_is_away(answer, valkey, monkeypatch):
    monkeypatch.setattr(breaker, "_ENTER", f"redis.call('INCR', 'asked') return {answer}")
    one = Breaker(valkey, "b1")
    assert [one.enter(), one.enter(), one.view().state] == [0, 0, State.CLOSED]
    assert valkey.get("asked") == b"1"


def test_an_answer_that_is_none_of_ours_breaks_nobody_elses_call(valkey, monkeypatch):
    monkeypatch.setattr(breaker, "_ENTER", "return 5")
    ours = str(valkey.connection_pool.connection_kwargs["db"])
    with ThreadPoolExecutor(1) as thread:
        other = thread.submit(valkey.blpop, ["told"], 10)
        wait_until(lambda: any((one["cmd"], one["db"]) == ("blpop", ours) for one in valkey.client_list()))
        assert Breaker(valkey, "b1").enter() == 0
        valkey.rpush("told", "x")
        assert other.result(10) == (b"told", b"x")


def test_those_who_wait_for_a_thread_while_valkey_does_not_answer_do_not_ask_it_again(valkey, monkeypatch):
    monkeypatch.setattr(breaker, "_ENTER", "redis.call('INCR', 'asked') return 5")
    one = Breaker(valkey, "b1")

    async def many(aside):
        return await asyncio.gather(*(on_loop.run(one.enter, aside=aside, briefly=aside) for _ in range(20)))

    with ThreadPoolExecutor(1) as thread:
        found = asyncio.run(many(lambda function: asyncio.wrap_future(thread.submit(function))))
    assert found == [0] * 20
    assert valkey.get("asked") == b"1"


class Briefly:
    """The thread for what takes moments, and a request that is ended while the thread runs its script, or has run it.

    `ends`: "in the script", or "after it", in the turn of the loop that would have handed over its answer.
    """

    def __init__(self, ends):
        self._ends, self._thread = ends, ThreadPoolExecutor(1)
        self.task = None

    def __call__(self, function):
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self._thread.submit(self._run, function, loop, answer)
        return answer

    def _run(self, function, loop, answer):
        found = function()
        loop.call_soon_threadsafe(self._told, answer, found)

    def _told(self, answer, found):
        if not answer.done():
            answer.set_result(found)
        if self._ends == "after it":
            self._ends = "never"
            self.task.cancel()

    def end(self, loop):
        """Called by the script."""
        if self._ends == "in the script":
            self._ends = "never"
            ended = threading.Event()
            self.task.add_done_callback(lambda _: ended.set())
            loop.call_soon_threadsafe(self.task.cancel)
            assert ended.wait(10)

    def close(self):
        self._thread.shutdown()


@pytest.mark.parametrize("ends", ["in the script", "after it"])
def test_bc55_the_slot_of_a_request_that_ended_before_it_had_it_is_free_at_once(ends, make):
    one, other = make(open_for=0.02), make(open_for=0.02)
    fail(one, 5)
    wait_until(lambda: one.view().wait == 0)
    briefly, script = Briefly(ends), one._enter

    async def main():
        def enters(**how):
            found = script(**how)
            briefly.end(loop)
            return found

        loop, one._enter = asyncio.get_running_loop(), enters
        briefly.task = asyncio.create_task(on_loop.run(lambda: one.enter(limit=60.0), aside=briefly, briefly=briefly))
        await asyncio.wait([briefly.task])
        return briefly.task.cancelled()

    assert asyncio.run(main())
    briefly.close()
    assert (other.view().state, other.view().wait) == (State.HALF_OPEN, 0)
    assert other.enter() is not None


def test_what_a_call_told_is_written_although_its_request_ended_before_a_thread_was_free(make):
    one, other = make(open_for=0.02), make(open_for=0.02)
    fail(one, 5)
    ticket = wait_until(one.enter)
    release = threading.Event()

    async def main():
        thread.submit(release.wait, 10)

        def briefly(function):
            return asyncio.wrap_future(thread.submit(function))

        recording = on_loop.run(lambda: one.record(ticket, pulse="success"), aside=briefly, briefly=briefly)
        task = asyncio.create_task(recording)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        release.set()

    with ThreadPoolExecutor(1) as thread:
        asyncio.run(main())
    assert other.view().state is State.CLOSED
