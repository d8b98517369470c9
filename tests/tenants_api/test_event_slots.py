"""Places of open streams: counted over processes, given back, and shared even without Valkey."""

from __future__ import annotations

import asyncio
import os
from contextvars import ContextVar
from uuid import UUID, uuid4

import pytest

from tenants_api import event_slots
from tenants_api.event_slots import TOTAL, EventSlots
from tenants_api.event_streams import StreamLimits
from tests.tenants_api.vectors import LEASE
from tests.waiting import wait_until

ONE, OTHER = UUID(LEASE), UUID(int=7)


def slots(**options):
    return EventSlots(options.pop("url", os.environ["REDIS_URL"]), **{"total": 1000, "per_lease": 10, **options})


async def soon(condition):
    await asyncio.to_thread(wait_until, condition)


def test_ta83_ta85_ta88_ta113_the_limits_of_a_house():
    assert StreamLimits() == StreamLimits(total=1000, per_lease=10, lifetime_s=3600.0, queue=16, comment_s=15.0)


def test_ta83_two_processes_never_have_more_than_there_are(valkey):
    async def main():
        one, two = slots(total=12), slots(total=12)
        taken = await asyncio.gather(*(each.take(ONE) for _ in range(10) for each in (one, two)))
        assert sum(place is not None for place in taken) == 10
        taken = await asyncio.gather(*(each.take(uuid4()) for _ in range(5) for each in (one, two)))
        assert sum(place is not None for place in taken) == 2
        await one.close()
        await two.close()

    asyncio.run(main())
    assert valkey.keys("fred:ws:*") == []


def test_ta83_a_place_that_was_given_back_is_free_at_once(valkey):
    async def main():
        one, two = slots(per_lease=1), slots(per_lease=1)
        place = await one.take(ONE)
        assert await two.take(ONE) is None
        one.free(place)
        one.free(place)
        await soon(lambda: not valkey.zcard(TOTAL))
        assert await two.take(ONE) is not None
        await one.close()
        await two.close()

    asyncio.run(main())


def test_places_of_a_dead_process_come_back_and_those_of_a_living_one_stay(valkey):
    async def main():
        dead, living = slots(per_lease=2), slots(per_lease=2)
        places = [await dead.take(ONE), await living.take(ONE)]
        dead._renewing.cancel()
        assert await living.take(ONE) is None
        for place in places:  # half a minute later
            valkey.zincrby(TOTAL, -30_000, place)
            valkey.zincrby(f"fred:ws:lease:{ONE}", -30_000, place)
        await living.renew()
        assert await living.take(ONE) is not None
        assert await living.take(ONE) is None
        await dead._valkey.aclose()
        await living.close()

    asyncio.run(main())


def test_a_process_renews_its_places_by_itself(valkey):
    async def main():
        living = slots(kept_s=0.3)
        place = await living.take(ONE)
        ends = valkey.zscore(TOTAL, place) + 300  # more than one turn later
        await soon(lambda: (valkey.zscore(TOTAL, place) or 0) > ends)
        await living.close()

    asyncio.run(main())


def test_counts_are_right_again_after_valkey_was_emptied(valkey):
    async def main():
        one, two = slots(per_lease=2), slots(per_lease=2)
        await one.take(ONE)
        await one.take(ONE)
        await one.take(OTHER)
        valkey.flushdb()
        await one.renew()
        assert valkey.zcard(TOTAL) == 3
        assert await two.take(ONE) is None
        assert await two.take(OTHER) is not None
        await one.close()
        await two.close()

    asyncio.run(main())


def test_a_process_counts_for_itself_while_valkey_is_away():
    async def main():
        alone = slots(url="redis://127.0.0.1:1/0", total=3, per_lease=2)
        places = [await alone.take(ONE) for _ in range(3)]
        assert [place is not None for place in places] == [True, True, False]
        assert await alone.take(OTHER) is not None
        assert await alone.take(uuid4()) is None
        alone.free(places[0])
        assert await alone.take(ONE) is not None
        await alone.close()

    asyncio.run(main())


def test_an_answer_that_is_none_of_ours_ends_no_renewing(valkey, monkeypatch):
    monkeypatch.setattr(event_slots, "QUIET_S", 0.01)

    async def main():
        one = slots(kept_s=0.3)
        with monkeypatch.context() as patched:
            patched.setattr(event_slots, "_RENEW", "redis.call('INCR', 'asked') return 'x'")
            place = await one.take(ONE)
            await soon(lambda: int(valkey.get("asked") or 0) > 1)
        seconds, micros = valkey.time()
        ends = seconds * 1000 + micros // 1000 + 300
        await soon(lambda: (valkey.zscore(TOTAL, place) or 0) > ends)
        await one.close()

    asyncio.run(main())


def test_who_gives_up_while_valkey_is_asked_keeps_no_place(valkey):
    async def main():
        one = slots(kept_s=600.0)  # no renewing gives it back
        taking = asyncio.create_task(one.take(ONE))
        for _ in range(100_000):
            await asyncio.sleep(0)
            if valkey.zcard(TOTAL):
                break
        taking.cancel()  # it has the place, and its answer is not read before the next turn
        await asyncio.wait([taking])
        assert taking.cancelled()
        await soon(lambda: not valkey.zcard(TOTAL))
        await one.close()

    asyncio.run(main())


@pytest.mark.parametrize("turns", range(20))
def test_whoever_gives_up_at_any_moment_leaves_nothing_behind(turns, valkey):
    async def main():
        one = slots(kept_s=600.0)
        taking = asyncio.create_task(one.take(ONE))
        for _ in range(turns):
            await asyncio.sleep(0)
        taking.cancel()
        await asyncio.wait([taking])
        if not taking.cancelled():
            one.free(taking.result())
        await soon(lambda: not valkey.zcard(TOTAL))
        await one.close()

    asyncio.run(main())
    assert not valkey.zcard(TOTAL)


def test_closed_it_gives_back_what_valkey_was_not_told_of(valkey, monkeypatch):
    monkeypatch.setattr(event_slots, "QUIET_S", 0.0)

    async def main():
        one = slots()
        place = await one.take(ONE)
        with monkeypatch.context() as patched:
            patched.setattr(event_slots, "_FREE", "return redis.error_reply('no')")
            one.free(place)
            await one._freeing
        assert valkey.zcard(TOTAL) == 1
        await one.close()

    asyncio.run(main())
    assert valkey.zcard(TOTAL) == 0


def test_what_is_given_back_belongs_to_no_request(valkey, monkeypatch):
    colour, seen, run = ContextVar("colour", default="none"), [], EventSlots._run

    async def noted(one, script, *rest):
        seen.append((script, colour.get()))
        return await run(one, script, *rest)

    monkeypatch.setattr(EventSlots, "_run", noted)

    async def main():
        colour.set("red")
        one = slots()
        one.free(await one.take(ONE))
        await one.close()

    asyncio.run(main())
    assert seen == [(event_slots._TAKE, "red"), (event_slots._FREE, "none")]


def test_what_happened_while_valkey_stood_still_counts_soon_after(own_valkey, monkeypatch):
    valkey = own_valkey.client

    async def main():
        one, two = (
            slots(url=own_valkey.url, per_lease=2, kept_s=600.0) for _ in range(2)
        )  # the next turn would be far
        gone = await one.take(OTHER)
        with monkeypatch.context() as patched, own_valkey.stands_still():
            patched.setattr(event_slots, "LIMIT_S", 0.2)
            assert await one.take(ONE) is not None  # not told in time
            assert await one.take(ONE) is not None
            assert await one.take(ONE) is None
            one.free(gone)
        await soon(lambda: valkey.zcard(TOTAL) == valkey.zcard(f"fred:ws:lease:{ONE}") == 2)
        assert await two.take(ONE) is None
        await one.close()
        await two.close()

    asyncio.run(main())


def test_who_was_refused_while_valkey_stood_still_has_no_place_there_either(own_valkey, monkeypatch):
    async def main():
        one = slots(url=own_valkey.url, per_lease=1, kept_s=600.0)
        place = await one.take(ONE)
        own_valkey.client.flushdb()  # it would let one more in
        with monkeypatch.context() as patched, own_valkey.stands_still():
            patched.setattr(event_slots, "LIMIT_S", 0.2)
            assert await one.take(ONE) is None
        await soon(lambda: own_valkey.client.zrange(TOTAL, 0, -1) == [place.encode()])
        await one.close()

    asyncio.run(main())


def test_nothing_is_kept_of_a_lease_without_streams(valkey):
    async def main():
        one = slots()
        one.free(await one.take(ONE))
        await one.close()
        return one

    one = asyncio.run(main())
    assert not one._own
    assert not one._of_lease
    assert not one._freed


def test_what_was_not_told_of_is_bounded():
    async def main():
        alone = slots(url="redis://127.0.0.1:1/0", total=3)
        for _ in range(5):
            alone.free(await alone.take(ONE))
        kept = len(alone._freed)
        await alone.close()
        return kept

    assert asyncio.run(main()) == 3


@pytest.mark.parametrize("number", [450])
def test_many_places_are_renewed_and_given_back_in_bulk(number, valkey):
    async def main():
        one = slots()
        leases = [uuid4() for _ in range(50)]
        places = [await one.take(leases[index % 50]) for index in range(number)]
        assert all(places)
        valkey.flushdb()
        await one.renew()
        assert valkey.zcard(TOTAL) == number
        assert valkey.zcard(f"fred:ws:lease:{leases[0]}") == 9
        assert 0 < valkey.pttl(TOTAL) <= 60_000
        await one.close()
        assert valkey.keys("fred:ws:*") == []

    asyncio.run(main())


def test_a_scrape_tells_how_many_streams_are_open(valkey):
    from fred import readings

    async def main():
        one = slots()
        await one.take(ONE)
        await one.take(OTHER)
        valkey.zadd(TOTAL, {"of a dead process": 1})
        found = await asyncio.to_thread(readings.of_the_streams)
        await one.close()
        return found

    assert asyncio.run(main()) == {"fred_websocket_connections": {(): 2.0}}
    assert readings.of_the_streams() == {"fred_websocket_connections": {(): 0.0}}
