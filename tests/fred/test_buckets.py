"""Token buckets that all processes share, and what is left of them without Valkey."""

import asyncio
import os

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fred import buckets, loop_buckets
from fred.buckets import Buckets, retry_after
from fred.loop_buckets import LoopBuckets
from fred.valkey_link import ScriptLink
from tests.waiting import wait_until


def away():
    return Redis(host="127.0.0.1", port=1, retry=Retry(NoBackoff(), 0))


@pytest.fixture(params=["valkey", "away"])
def make(request, valkey):
    client = (lambda: valkey) if request.param == "valkey" else away
    return lambda **limits: Buckets("test", client=client, **{"rate": 10.0, "burst": 3, **limits})


def test_so_many_at_once_then_it_says_how_long_the_next_takes(make):
    some = make(rate=0.01)
    assert [some.take("a") for _ in range(3)] == [0.0] * 3
    assert 90 < some.take("a") <= 100
    assert some.take("b") == 0.0


def test_tokens_come_back_but_never_more_than_fit(make):
    some = make(rate=300.0)
    for _ in range(3):
        some.take("a")
    wait_until(lambda: [some.take("a") for _ in range(4)].count(0.0) == 3)


def test_processes_share_them(valkey):
    one, other = (Buckets("test", rate=0.1, burst=4, client=lambda: valkey) for _ in range(2))
    taken = [bucket.take("a") for bucket in (one, other, one, other, one, other)]
    assert taken.count(0.0) == 4


def test_an_unused_bucket_is_forgotten(valkey):
    Buckets("test", rate=10.0, burst=20, client=lambda: valkey).take("a")
    assert 500 < valkey.pttl("fred:rl:test:a") <= 3000


def test_a_valkey_that_is_away_is_not_asked_for_every_token():
    asked = []

    def client():
        asked.append(1)
        return away()

    some = Buckets("test", rate=1.0, burst=5, client=client)
    assert [some.take("a") for _ in range(5)] == [0.0] * 5
    assert len(asked) == 1


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(buckets, "MOST_KEPT", 3)
    some = Buckets("test", rate=0.1, burst=1, client=away)
    for key in "abcd":
        assert some.take(key) == 0.0
    assert some.take("d") > 0
    assert some.take("a") == 0.0  # forgotten


@pytest.mark.parametrize(
    ("rps", "seconds"),
    [
        (100, 1),
        (10, 1),
        (1, 1),
        (0.5, 2),
        (0.33, 4),
        (0.1, 10),
        (0.01, 100),
        (0.000001, 86_400),
        (1e-10, 86_400),
        (0, 1),
        (-1, 1),
        (float("nan"), 1),
        (float("inf"), 1),
    ],
)
def test_ta33_what_retry_after_says(rps, seconds):
    assert retry_after(rps) == seconds


def kept(valkey):
    names = {name.decode() for name in valkey.scan_iter("fred:rl:test:*")}
    assert {name.decode() for name in valkey.zrange("fred:rl:test", 0, -1)} == names
    return {name.removeprefix("fred:rl:test:") for name in names}


def test_ta37_their_number_is_bounded_and_the_one_unused_for_longest_goes(valkey, monkeypatch):
    monkeypatch.setattr(buckets, "MOST_KEPT", 3)
    some = Buckets("test", rate=0.1, burst=2, client=lambda: valkey)
    for key in "abcad":
        some.take(key)
    assert kept(valkey) == {"c", "a", "d"}
    assert some.take("a") > 0
    some.draw(["e", "f", "g", "h"])
    assert kept(valkey) == {"f", "g", "h"}


def test_ta37_ten_thousand_and_one_more_are_ten_thousand(valkey):
    some = Buckets("test", rate=0.001, burst=2, client=lambda: valkey)
    for start in range(0, 10_000, 500):
        some.draw([f"10.{number // 256}.{number % 256}" for number in range(start, start + 500)])
    some.take("192.0.2.1")
    assert valkey.zcard("fred:rl:test") == len(kept(valkey)) == 10_000


def test_the_set_forgets_what_has_expired(valkey):
    some = Buckets("test", rate=100.0, burst=1, idle_s=0.05, client=lambda: valkey)
    some.take("a")
    wait_until(lambda: not valkey.exists("fred:rl:test:a"))
    some.take("b")
    assert kept(valkey) == {"b"}


def test_a_draw_tells_what_is_left(make):
    some = make(rate=0.05, burst=3)
    first, second, other = some.draw(["a", "a", "b"])
    assert (first.wait_s, first.remaining, first.limit, first.reset_s) == (0.0, 2, 3, 20)
    assert (second.remaining, second.reset_s, other.remaining) == (1, 40, 2)
    some.take("a")
    refused = some.draw(["a"])[0]
    assert 10 < refused.wait_s <= 20
    assert (refused.remaining, 50 < refused.reset_s <= 60) == (0, True)


# --- on an event loop


def on_a_loop(work, **limits):
    async def main():
        some = LoopBuckets("test", **{"rate": 0.1, "burst": 3, **limits})
        try:
            return await work(some)
        finally:
            await some.close()

    return asyncio.run(main())


async def together(some, keys):
    return [draw.wait_s == 0 for draw in await asyncio.gather(*(some.take_soon(key) for key in keys))]


def test_a_loop_takes_from_the_same_buckets_in_the_order_of_asking(valkey):
    Buckets("test", rate=0.1, burst=3, client=lambda: valkey).take("a")
    assert on_a_loop(lambda some: together(some, "aaab")) == [True, True, False, True]


@pytest.fixture
def runs(monkeypatch):
    """How many tokens of which kinds Valkey was asked for together, each time."""
    asked, run = [], ScriptLink.run

    async def noted(link, keys, arguments):
        kinds = int(arguments[0])
        asked.append((len(keys) - kinds, keys[:kinds]))
        return await run(link, keys, arguments)

    monkeypatch.setattr(ScriptLink, "run", noted)
    return asked


def test_what_is_asked_for_meanwhile_goes_in_one_script(valkey, runs):
    assert on_a_loop(lambda some: together(some, [str(number) for number in range(300)])) == [True] * 300
    valkey.script_flush()
    assert on_a_loop(lambda some: together(some, "aaaa")) == [True, True, True, False]
    assert runs == [(number, ["fred:rl:test"]) for number in (200, 100, 4)]


def test_a_broken_connection_is_made_anew_and_no_token_is_counted_elsewhere(valkey):
    async def work(some):
        first = await together(some, "a")
        for client in valkey.client_list():
            if client["db"] == ours and client["id"] != str(valkey.client_id()):
                valkey.client_kill_filter(_id=client["id"])
                killed.append(client)
        return first + await together(some, "aaa")

    killed, ours = [], str(valkey.connection_pool.connection_kwargs["db"])
    assert on_a_loop(work) == [True, True, True, False]
    assert killed
    assert valkey.exists("fred:rl:test:a")


@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:1/0", "redis://127.0.0.1:{deaf}/0", "nowhere"], ids=["away", "deaf", "no URL"]
)
def test_without_valkey_the_process_counts_for_itself(url, monkeypatch):
    import socket

    monkeypatch.setattr("fred.valkey.LIMIT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        asked = []

        def where():
            asked.append(1)
            return url.format(deaf=deaf.getsockname()[1])

        assert on_a_loop(lambda some: together(some, "aaaab"), url=where) == [True, True, True, False, True]
        assert len(asked) == 1


@pytest.mark.parametrize(
    "answer", ["5", "{}", "{'0'}", "{'x', 'y'}", "{'0', '2', '0', '2'}", "redis.status_reply('OK')"]
)
def test_what_is_no_answer_of_the_script_counts_as_a_valkey_that_is_away(answer, valkey, monkeypatch):
    for module in (buckets, loop_buckets):
        monkeypatch.setattr(module, "TAKE", f"redis.call('INCR', 'asked') return {answer}")
        monkeypatch.setattr(module, "QUIET_S", 600.0)
    some = Buckets("test", rate=0.1, burst=2, client=lambda: valkey)
    assert [some.take("a") == 0 for _ in range(3)] == [True, True, False]
    assert on_a_loop(lambda some: together(some, "aaaa")) == [True, True, True, False]
    assert valkey.get("asked") == b"2"


def test_a_loop_without_valkey_leaves_it_alone_for_a_while_and_so_do_threads(runs, monkeypatch):
    threads = []
    for module in (buckets, loop_buckets):
        monkeypatch.setattr(module, "QUIET_S", 600.0)

    async def work(some):
        for _ in range(3):
            await together(some, "a")
        some.take("a")

    on_a_loop(work, url=lambda: "redis://127.0.0.1:1/0", client=lambda: threads.append(1) or away())
    assert (len(runs), threads) == (1, [])


def test_an_answer_that_comes_too_late_is_nobodys(own_valkey, monkeypatch):
    monkeypatch.setattr(loop_buckets, "QUIET_S", 0.0)

    async def work(some):
        assert [(await some.take_soon(key)).remaining for key in "aa"] == [2, 1]
        with own_valkey.stands_still():
            with monkeypatch.context() as patched:
                patched.setattr("fred.valkey.LIMIT_S", 0.2)
                assert (await some.take_soon("a")).remaining == 2  # of our own
            asked = asyncio.ensure_future(some.take_soon("b"))
            for _ in range(10):  # it is sent
                await asyncio.sleep(0)
        return (await asked).remaining

    assert on_a_loop(work, url=lambda: own_valkey.url) == 2


def test_a_refused_connection_costs_no_time_limit(monkeypatch):
    monkeypatch.setattr("fred.valkey.LIMIT_S", 60.0)
    assert on_a_loop(lambda some: together(some, "a"), url=lambda: "redis://127.0.0.1:1/0") == [True]


def test_every_loop_has_its_own_connection(valkey):
    some = LoopBuckets("test", rate=0.1, burst=3, url=lambda: os.environ["REDIS_URL"])
    assert [asyncio.run(together(some, "a")) for _ in range(4)] == [[True], [True], [True], [False]]


def test_kinds_go_to_valkey_together_and_stay_apart(valkey, runs):
    async def work(some):
        other = LoopBuckets("other", rate=0.1, burst=1)
        asked = [one.take_soon("a") for one in (some, other, other, some, some, some)]
        return [draw.wait_s == 0 for draw in await asyncio.gather(*asked)]

    assert on_a_loop(work) == [True, True, False, True, True, False]
    assert runs == [(6, ["fred:rl:test", "fred:rl:other"])]


def test_closed_it_begins_anew(valkey):
    async def work(some):
        first = await together(some, "aa")
        await some.close()
        return first + await together(some, "aa")

    assert on_a_loop(work) == [True, True, True, False]


def test_without_valkey_loops_and_threads_of_a_process_count_together():
    async def work(some):
        there = await together(some, "aa")
        return there + [draw.wait_s == 0 for draw in some.draw(["a", "a", "b"])]

    found = on_a_loop(work, url=lambda: "redis://127.0.0.1:1/0", client=away)
    assert found == [True, True, True, False, True]


# --- two tokens in one step


@pytest.fixture(params=["valkey", "away"])
def both(request, valkey):
    """Run this work with buckets of a first kind and of a second one, whose batches `trips` notes."""

    def both(work, *, burst=1, then_burst=9):
        async def main():
            first = LoopBuckets("test", rate=0.1, burst=burst, client=client, url=url)
            second = LoopBuckets("other", rate=0.1, burst=then_burst, client=client, url=url)
            try:
                return await work(first, second)
            finally:
                await first.close()

        return asyncio.run(main())

    away_url = "redis://127.0.0.1:1/0"
    client = away if request.param == "away" else lambda: valkey
    url = (lambda: away_url) if request.param == "away" else (lambda: os.environ["REDIS_URL"])
    return both


def told(pair):
    """True for a token, False for none, None for one that was left alone."""
    return tuple(draw and draw.wait_s == 0 for draw in pair)


def test_a_refused_first_token_never_costs_the_second(both):
    async def work(first, second):
        pairs = await asyncio.gather(*(first.take_both("a", second, "t") for _ in range(3)))
        return [told(pair) for pair in pairs], pairs[0], (await second.take_soon("t")).remaining

    found, (one, other), left = both(work)
    assert found == [(True, True), (False, None), (False, None)]
    assert ((one.remaining, one.limit), (other.remaining, other.limit), left) == ((0, 1), (8, 9), 7)


def test_a_refused_second_token_costs_the_first(both):
    async def work(first, second):
        pairs = await asyncio.gather(*(first.take_both("a", second, key) for key in "ttuu"))
        return [told(pair) for pair in pairs], (await first.take_soon("a")).wait_s == 0

    found, refused = both(work, burst=3, then_burst=1)
    assert found == [(True, True), (True, False), (True, True), (False, None)]
    assert not refused


def test_pairs_and_single_tokens_are_taken_in_the_order_of_asking(both):
    async def work(first, second):
        async def pair(some, key, others, other):
            return told(await some.take_both(key, others, other))

        async def one(some, key):
            return told([await some.take_soon(key)])

        return await asyncio.gather(
            pair(first, "a", second, "t"),
            one(second, "t"),
            one(first, "a"),
            pair(first, "a", second, "t"),
            pair(first, "b", second, "t"),
            pair(second, "u", first, "a"),
            one(second, "t"),
        )

    found = both(work, burst=2, then_burst=3)
    assert found == [(True, True), (True,), (True,), (False, None), (True, True), (True, False), (False,)]


def test_pairs_go_to_valkey_in_one_trip_and_only_buckets_that_were_asked_are_kept(valkey, runs, monkeypatch):
    async def work(some):
        other = LoopBuckets("other", rate=0.1, burst=2)
        asked = [some.take_both(key, other, f"of {key}") for key in "aabcd"]
        return [told(pair) for pair in await asyncio.gather(*asked)]

    monkeypatch.setattr(buckets, "MOST_KEPT", 3)
    assert on_a_loop(work, burst=1) == [(True, True), (False, None), *[(True, True)] * 3]
    assert runs == [(10, ["fred:rl:test", "fred:rl:other"])]
    assert kept(valkey) == {"b", "c", "d"}
    assert valkey.zrange("fred:rl:other", 0, -1) == [f"fred:rl:other:of {key}".encode() for key in "bcd"]
    assert not valkey.exists("fred:rl:other:of a")
    assert 15_000 < valkey.pttl("fred:rl:other:of d") <= 21_000


def test_a_pair_is_asked_for_at_once_and_whoever_waits_for_it_later_finds_it(valkey):
    async def work(some):
        pair = some.take_both("a", some, "b")
        assert [draw.remaining for draw in (await some.take_soon("a"), await some.take_soon("b"))] == [1, 1]
        return told(await pair)

    assert on_a_loop(work) == (True, True)


def test_a_thread_without_valkey_multiplies_no_limit_of_another_kind_on_the_loop(valkey):
    async def work(some):
        other = LoopBuckets("other", rate=100, burst=100, client=away)
        found = [told(await some.take_both("a", other, "t"))]
        other.draw(["t"])
        return [*found, *[told(await some.take_both("a", other, "t")) for _ in range(3)]]

    assert on_a_loop(work, burst=2) == [(True, True), (True, True), (False, None), (False, None)]
