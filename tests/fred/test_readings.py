"""Shared gauges are counts of rows and messages, never counters that drift."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.utils import timezone

from fred import breaker, readings
from fred.gauges import SHARED_GAUGES
from fred.tasks import Hints
from leases.status import LeaseState

pytestmark = pytest.mark.django_db


def lease(state, **fields):
    from leases.models import Lease

    return Lease.objects.create(uuid=uuid4(), chain_state=state, **fields)


def test_leases_are_counted_by_chain_state():
    lease(LeaseState.ACTIVE)
    lease(LeaseState.ACTIVE)
    lease(LeaseState.CLOSED)
    counts = readings.of_the_database()["fred_lease_count"]
    assert counts == {("pending",): 0, ("active",): 2, ("closed",): 1, ("rejected",): 0, ("expired",): 0}


def test_pending_leases_without_their_payload_are_awaited():
    from leases.models import Payload

    lease(LeaseState.PENDING, meta_hash=b"h")
    lease(LeaseState.PENDING)
    lease(LeaseState.ACTIVE, meta_hash=b"h")
    has_it = lease(LeaseState.PENDING, meta_hash=b"h")
    Payload.objects.create(lease=has_it, body=b"x", sha256=b"h")
    found = readings.of_the_database()
    assert found["fred_payload_leases_awaiting"] == {(): 1}
    assert found["fred_payload_stored_count"] == {(): 1}


def test_due_rows_nobody_took_are_counted_with_the_age_of_the_oldest():
    lease(LeaseState.ACTIVE, due_at=timezone.now() - timedelta(seconds=30))
    lease(LeaseState.ACTIVE, due_at=timezone.now() + timedelta(seconds=30))
    found = readings.of_the_database()
    assert found["fred_outbox_pending"] == {("lease",): 1, ("backend",): 0, ("chain",): 0}
    assert 25 < found["fred_outbox_oldest_age_seconds"][("lease",)] < 60


def test_restarts_and_updates_whose_answer_is_not_decided_are_counted_by_how_far_they_are():
    from tests.factories.placements import CommandFactory

    hour = timedelta(hours=1)
    CommandFactory(size_bytes=7, admitted_at=timezone.now() - hour, due_at=timezone.now())
    CommandFactory(size_bytes=3)
    CommandFactory(state="accepted", settled_at=timezone.now(), size_bytes=9)
    CommandFactory(state="in_doubt", size_bytes=1, due_at=timezone.now() - hour)  # its sender was killed
    found = readings.of_the_database()
    assert found["fred_maintenance_pending"] == {("reserved",): 2, ("in_doubt",): 1}
    assert found["fred_maintenance_pending_bytes"] == {("reserved",): 10, ("in_doubt",): 1}
    ages = found["fred_maintenance_pending_oldest_age_seconds"]
    assert 3600 <= ages["reserved",] < 3700
    assert found["fred_outbox_pending"]["backend",] == 1


def test_a_lease_is_stuck_at_the_eighth_failure():
    lease(LeaseState.ACTIVE, attempts=7)
    lease(LeaseState.ACTIVE, attempts=8)
    assert readings.of_the_database()["fred_lease_stuck_count"] == {(): 1}


def test_backends_show_their_fence_and_their_last_probe():
    from backends.models import Backend, HealthCheck

    Backend.objects.create(name="b1", url="http://b1", fenced=True)
    Backend.objects.create(name="gone", url="http://gone", configured=False)
    HealthCheck.objects.create(name="backend:b1", healthy=False)
    HealthCheck.objects.create(name="chain", healthy=True)
    found = readings.of_the_database()
    assert found["fred_backend_fenced"] == {("b1",): 1}
    assert found["fred_backend_healthy"] == {("b1",): 0}
    assert found["fred_health_check_healthy"] == {("chain",): 1}


def test_a_probe_older_than_a_minute_says_nothing():
    from backends.models import HealthCheck

    HealthCheck.objects.create(name="chain", healthy=True, checked_at=timezone.now() - timedelta(seconds=61))
    assert "fred_health_check_healthy" not in readings.of_the_database()


def test_backends_show_whether_the_last_sweep_read_both_their_lists():
    from reconciliation.models import Sweep, SweepBackend

    first, last = (Sweep.objects.create(state="done") for _ in range(2))
    running = Sweep.objects.create(state="running")
    for sweep, b1, b2 in ((first, False, True), (last, True, False), (running, False, False)):
        SweepBackend.objects.create(sweep=sweep, backend="b1", complete=b1)
        SweepBackend.objects.create(sweep=sweep, backend="b2", complete=b2)
    found = readings.of_the_database()["fred_reconciler_backend_inventory_answered"]
    assert found == {("b1",): 1, ("b2",): 0}


def test_a_previous_key_is_shown_while_it_is_accepted(settings):
    from fred.conf import BackendConfig

    keys = {"hmac_secret": "n" * 32, "hmac_secret_previous": "o" * 32}
    entries = (
        BackendConfig(name="rotating", url="http://b1", **keys),
        BackendConfig(name="settled", url="http://b2", hmac_secret="m" * 32),
        BackendConfig(name="fenced", url="http://b3", fenced=True, **keys),
    )
    settings.FRED = settings.FRED.model_copy(update={"backends": entries})
    found = readings.of_the_keys()["fred_api_callback_previous_key_configured"]
    assert found == {("rotating",): 1, ("settled",): 0, ("fenced",): 0}


def test_what_was_never_seen_has_no_sample():
    found = readings.of_the_database()
    assert "fred_reconciler_backend_inventory_answered" not in found
    assert "fred_chain_height" not in found
    assert "fred_reconciler_last_success_timestamp_seconds" not in found
    assert "fred_reconciler_sweep_complete" not in found


def test_one_statement_reads_them_all(django_assert_max_num_queries):
    with django_assert_max_num_queries(4, connection=connection):
        readings.of_the_database()


def test_waiting_hints_are_counted_by_queue(valkey):
    from fred.celery import app

    assert Hints(lambda: app, limit_s=10.0).send("leases.tasks.lanes")
    found = readings.of_the_queues()
    assert found["fred_queue_depth"] == {("lifecycle",): 0, ("dispatch",): 0, ("chain",): 1, ("sweep",): 0}
    assert 0 <= found["fred_queue_oldest_age_seconds"][("chain",)] < 30


def test_the_breaker_of_every_configured_backend_has_a_sample_from_the_start(valkey, settings):
    breaker.forget()
    names = [one.name for one in settings.FRED.backends]
    found = readings.of_the_breakers()["fred_backend_circuit_breaker_state"]
    assert found == {(name,): 0 for name in names}
    for _ in range(breaker.THRESHOLD):
        breaker.of(names[0]).record(breaker.of(names[0]).enter(), pulse="failure")
    assert readings.of_the_breakers()["fred_backend_circuit_breaker_state"][(names[0],)] == 2
    breaker.forget()


def test_held_connections_of_the_pool_are_counted(monkeypatch):
    pooled = connection.copy()
    pooled.settings_dict["CONN_MAX_AGE"] = 0
    pooled.settings_dict["OPTIONS"] = {**pooled.settings_dict["OPTIONS"], "pool": {"min_size": 0, "max_size": 2}}
    monkeypatch.setattr(readings, "connection", pooled)
    try:
        assert readings.of_the_pool() == {"fred_db_pool_in_use": {(): 0}}
        pooled.ensure_connection()
        assert readings.of_the_pool() == {"fred_db_pool_in_use": {(): 1}}
        pooled.close()
        assert readings.of_the_pool() == {"fred_db_pool_in_use": {(): 0}}
    finally:
        pooled.close_pool()


def test_a_process_without_a_pool_says_nothing_of_one():
    assert readings.of_the_pool() == {}


def test_every_reading_is_a_known_gauge_with_its_labels(valkey):
    from backends.models import Backend

    Backend.objects.create(name="b1", url="http://b1")
    lease(LeaseState.ACTIVE)
    for read in (
        readings.of_the_build,
        readings.of_the_database,
        readings.of_the_processes,
        readings.of_the_queues,
        readings.of_the_breakers,
        readings.of_the_keys,
        readings.of_the_pool,
    ):
        for name, samples in read().items():
            assert all(len(labels) == len(SHARED_GAUGES[name].labels) for labels in samples), name
