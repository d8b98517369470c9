"""The hub of a process: topics, queues, and what becomes of them when the connection is lost."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from django.db import connection, transaction

from fred.metrics import API_EVENTS_DROPPED
from leases import event_reads, events, sql
from leases.hub import Hub
from leases.models import StatusEvent
from tests.factories.leases import LeaseFactory

pytestmark = pytest.mark.django_db(
    transaction=True, available_apps=["fred", "leases", "backends", "placements", "reconciliation", "tenants_api"]
)


@pytest.fixture(autouse=True)
def no_regular_reads(monkeypatch):
    """What PostgreSQL tells brings events, not the read every ten seconds."""
    monkeypatch.setattr(event_reads, "_WAIT_S", 600.0)


@pytest.fixture
def lease():
    return LeaseFactory().uuid


def record(*told) -> None:
    with transaction.atomic():
        sql.lock({lease for lease, _ in told})
        events.record([(lease, status, "") for lease, status in told])


async def tell(*told) -> None:
    """Record in a thread of its own, as any other process would."""

    def run():
        record(*told)
        connection.close()

    await asyncio.to_thread(run)


@asynccontextmanager
async def opened(**options):
    hub = Hub(**options)
    try:
        yield hub
    finally:
        await hub.close()


async def statuses(subscription, number, *, within=60.0) -> list[str]:
    async with asyncio.timeout(within):
        return [(await subscription.next()).status for _ in range(number)]


async def has_nothing(subscription) -> bool:
    """Whether the next that it gets is an event told only now."""
    await tell((subscription._topic.lease, "marker"))
    return await statuses(subscription, 1) == ["marker"]


def test_ta82_a_subscriber_gets_what_comes_and_only_of_its_lease(lease):
    async def main():
        other = await asyncio.to_thread(lambda: (LeaseFactory().uuid, connection.close())[0])
        await tell((lease, "provisioning"))
        async with opened() as hub:
            mine, theirs = await hub.subscribe(lease), await hub.subscribe(other)
            assert await has_nothing(mine)
            await tell((other, "failed"))
            await tell((lease, "ready"), (lease, "restarting"))
            assert await statuses(mine, 2) == ["ready", "restarting"]
            assert await statuses(theirs, 1) == ["failed"]
            assert await has_nothing(mine)
            assert await has_nothing(theirs)

    asyncio.run(main())


def test_ta88_a_full_queue_drops_for_its_own_subscriber_alone(lease):
    async def main():
        before = API_EVENTS_DROPPED._value.get()
        async with opened(queue=16) as hub:
            slow, quick = await hub.subscribe(lease), await hub.subscribe(lease)
            for number in range(20):
                await tell((lease, f"s{number}"))
                assert await statuses(quick, 1) == [f"s{number}"]
            assert await statuses(slow, 16) == [f"s{number}" for number in range(16)]
            assert API_EVENTS_DROPPED._value.get() - before == 4
            assert await has_nothing(slow)

    asyncio.run(main())


@pytest.mark.parametrize("number", [20, 150], ids=["more than a queue", "more than a page"])
def test_ta88_whoever_takes_its_events_gets_all_of_them_also_those_that_come_at_once(number, lease):
    async def main():
        before = API_EVENTS_DROPPED._value.get()
        told = [f"s{one}" for one in range(number)]
        async with opened(queue=16) as hub, asyncio.TaskGroup() as group:
            slow, quick, late = [await hub.subscribe(lease) for _ in range(3)]
            taking = [group.create_task(statuses(one, number)) for one in (quick, late)]
            await tell(*((lease, status) for status in told))
            assert [await one for one in taking] == [told, told]
            assert await statuses(slow, 16) == told[:16]
            assert API_EVENTS_DROPPED._value.get() - before == number - 16
            assert await has_nothing(slow)

    asyncio.run(main())


@pytest.mark.parametrize("since", [0, 1, 2], ids=["all kept", "after the first", "after the second"])
def test_ta112_a_subscriber_resumes_without_gap_or_repeat(since, lease):
    async def main():
        await tell((lease, "a"), (lease, "b"), (lease, "c"))
        ids = [0, *await asyncio.to_thread(kept_ids, lease)]
        async with opened() as hub:
            mine = await hub.subscribe(lease, since=ids[since])
            await tell((lease, "d"))
            expected = ["a", "b", "c", "d"][since:]
            assert await statuses(mine, len(expected)) == expected
            assert await has_nothing(mine)

    asyncio.run(main())


def kept_ids(lease):
    found = list(StatusEvent.objects.filter(lease=lease).order_by("id").values_list("id", flat=True))
    connection.close()
    return found


def test_ta112_one_that_resumes_never_misses_what_does_not_fit_its_queue(lease):
    async def main():
        async with opened(queue=2) as hub:
            slow = await hub.subscribe(lease, since=0)
            told = [f"s{number}" for number in range(250)]
            for start in range(0, 250, 50):
                await tell(*((lease, status) for status in told[start : start + 50]))
            assert await statuses(slow, 250) == told
            await tell((lease, "live"))
            assert await statuses(slow, 1) == ["live"]

    asyncio.run(main())


def test_what_came_while_the_connection_was_lost_is_delivered_once(lease):
    async def main():
        async with opened() as hub:
            plain, resuming = await hub.subscribe(lease), await hub.subscribe(lease, since=0)
            await tell((lease, "a"))
            assert await statuses(plain, 1) == await statuses(resuming, 1) == ["a"]
            for number in range(3):
                assert await asyncio.to_thread(cut_all_others) >= 1
                await tell((lease, f"b{number}"), (lease, f"c{number}"))
                assert await statuses(plain, 2) == await statuses(resuming, 2) == [f"b{number}", f"c{number}"]
            assert await has_nothing(plain)
            assert await statuses(resuming, 1) == ["marker"]

    asyncio.run(main())


def cut_all_others() -> int:
    """End every connection that listens or read events last; say how many."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()
               AND (query LIKE 'LISTEN%%' OR query LIKE '%%leases_statusevent%%')
            """
        )
        (found,) = cursor.fetchone()
    connection.close()
    return found


def test_a_topic_goes_with_its_last_subscriber(lease):
    async def main():
        async with opened() as hub:
            one, two = await hub.subscribe(lease), await hub.subscribe(lease)
            one.leave()
            await tell((lease, "a"))
            assert await statuses(two, 1) == ["a"]
            two.leave()
            await tell((lease, "b"))
            three = await hub.subscribe(lease, since=0)
            assert await statuses(three, 2) == ["a", "b"]
            assert one._waiting() is None

    asyncio.run(main())


def test_nothing_is_lost_between_asking_and_subscribing(lease):
    """Events that come while a subscriber is let in, over and over, reach it from the id it named on."""

    async def main():
        async def publish():
            for number in range(60):
                await tell((lease, f"s{number}"))

        async with opened() as hub, asyncio.TaskGroup() as group:  # a publisher that fails is what the test tells of
            group.create_task(publish())
            since, got = 0, []
            while len(got) < 60:  # the last may come before its publisher is back: nobody waits for one more
                mine = await hub.subscribe(lease, since=since)
                got += await statuses(mine, 1)
                since = mine.after
                mine.leave()
            assert got == [f"s{number}" for number in range(60)]

    asyncio.run(main())
