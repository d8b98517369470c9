"""Status events are recorded once, in order, within their transaction; a notification follows its commit."""

from __future__ import annotations

import threading
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import connection, transaction

from leases import events, sql
from leases.models import Lease, StatusEvent
from tests.factories.leases import LeaseFactory

pytestmark = pytest.mark.django_db(
    transaction=True, available_apps=["fred", "leases", "backends", "placements", "reconciliation", "tenants_api"]
)


@pytest.fixture
def listener():
    """A connection of its own that listens to the channel of status events."""
    parameters = connection.get_connection_params()
    names = ("host", "port", "user", "password", "dbname")
    with psycopg.connect(**{name: parameters[name] for name in names}, autocommit=True) as opened:
        opened.execute(f"LISTEN {events.CHANNEL}")
        yield opened


def heard(listener, *, within=0.0) -> list[UUID]:
    payloads = [note.payload for note in listener.notifies(timeout=within, stop_after=1 if within else None)]
    return [UUID(one) for payload in payloads for one in payload.split(",")]


def record(*told, request_ids=()) -> None:
    with transaction.atomic():
        sql.lock({lease for lease, _, _ in told})
        events.record(told, request_ids=request_ids)


def test_events_stand_in_their_order_with_what_caused_them():
    one, other = LeaseFactory(), LeaseFactory()
    record((one.uuid, "provisioning", ""), (other.uuid, "failed", "no such image"), (one.uuid, "ready", ""))
    record((one.uuid, "restarting", ""), (other.uuid, "updating", ""), request_ids=["abc", "def"])
    rows = list(StatusEvent.objects.order_by("id").values_list("lease_id", "status", "error", "request_id"))
    assert rows == [
        (one.uuid, "provisioning", "", ""),
        (other.uuid, "failed", "no such image", ""),
        (one.uuid, "ready", "", ""),
        (one.uuid, "restarting", "", "abc"),
        (other.uuid, "updating", "", "def"),
    ]
    times = list(StatusEvent.objects.filter(lease=one).order_by("id").values_list("at", flat=True))
    assert times == sorted(set(times))


def test_a_lease_that_has_no_row_gets_no_event():
    record((uuid4(), "ready", ""))
    assert not StatusEvent.objects.exists()


def test_nothing_is_heard_before_the_commit_nor_of_what_is_rolled_back(listener):
    one = LeaseFactory()
    with transaction.atomic():
        events.record([(one.uuid, "ready", "")])
        assert heard(listener) == []
        transaction.set_rollback(True)
    record((one.uuid, "failed", ""))
    assert heard(listener, within=60) == [one.uuid]
    assert StatusEvent.objects.get().status == "failed"


def test_many_leases_share_few_notifications(listener):
    Lease.objects.bulk_create(LeaseFactory.build_batch(1000))
    uuids = set(Lease.objects.values_list("uuid", flat=True))
    record(*((uuid, "ready", "") for uuid in uuids))
    notes = list(listener.notifies(timeout=60, stop_after=5))
    assert len(notes) == 5
    assert max(len(note.payload.encode()) for note in notes) < 8000
    assert {UUID(one) for note in notes for one in note.payload.split(",")} == uuids


def test_ids_of_a_lease_increase_in_the_order_of_commit():
    """Who draws an id first commits first: the second waits for the lease, also if it took no lock by itself."""
    one = LeaseFactory()
    drawn = threading.Event()

    def second():
        with transaction.atomic():
            drawn.set()
            events.record([(one.uuid, "second", "")])
        connection.close()

    thread = threading.Thread(target=second, daemon=True)
    with transaction.atomic():
        sql.lock([one.uuid])
        thread.start()
        assert drawn.wait(10)
        events.record([(one.uuid, "first", "")])
    thread.join(10)
    assert list(StatusEvent.objects.order_by("id").values_list("status", flat=True)) == ["first", "second"]


def test_a_lease_keeps_its_newest_thousand_events():
    one, other = LeaseFactory(), LeaseFactory()
    record((other.uuid, "ready", ""))
    StatusEvent.objects.bulk_create(StatusEvent(lease=one, status=f"s{number}") for number in range(1000))
    record((one.uuid, "newer", ""), (one.uuid, "newest", ""))
    kept = list(StatusEvent.objects.filter(lease=one).order_by("id").values_list("status", flat=True))
    assert len(kept) == events.MOST_KEPT
    assert (kept[0], kept[-2], kept[-1]) == ("s2", "newer", "newest")
    assert StatusEvent.objects.filter(lease=other).count() == 1


def test_old_events_go_and_the_newest_of_each_lease_stays():
    """A look goes by what was told last: an ended lease would be announced again."""
    from datetime import timedelta

    from django.db.models.functions import Now

    from reconciliation import cleaning

    one, other = LeaseFactory(), LeaseFactory()
    record((one.uuid, "provisioning", ""), (one.uuid, "failed", "lease closed"), (other.uuid, "provisioning", ""))
    StatusEvent.objects.update(at=Now() - timedelta(days=8))
    record((other.uuid, "ready", ""))
    assert cleaning.old_rows()["leases_statusevent"] == 2
    assert set(StatusEvent.objects.values_list("lease_id", "status")) == {(one.uuid, "failed"), (other.uuid, "ready")}
