"""A transaction that was to write placements and could not is noticed, whoever ran it."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.db import Error, connection

from fred import metrics
from leases.models import Lease
from leases.status import LeaseState
from placements.models import Placement
from reconciliation import placement_writes, restores
from tests.factories.leases import LeaseFactory
from tests.factories.placements import PlacementFactory
from tests.reconciliation.chains import lease
from tests.reconciliation.story import counted

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("trusted", "valkey")]


@pytest.fixture
def no_placements():
    """The table takes no new rows."""

    def run(statement):
        with connection.cursor() as cursor:
            cursor.execute(statement)

    run("ALTER TABLE placements_placement ADD CONSTRAINT full_up CHECK (revision < 0) NOT VALID")
    yield
    run("ALTER TABLE placements_placement DROP CONSTRAINT full_up")


def failures():
    return counted(metrics.PLACEMENT_WRITE_FAILURES)


def test_a_look_that_cannot_place_its_lease_is_noticed(looker, chain, no_placements):
    one = lease()
    chain.add(one)
    LeaseFactory(uuid=one.uuid, chain_state=None, chain_height=-1, due_at="2026-01-01T00:00Z")
    before = failures()
    looker.at_due_leases()
    assert failures() == before + 1
    assert not Placement.objects.exists()
    assert "full_up" in Lease.objects.get().last_error


def test_a_look_that_places_its_lease_is_not(looker, chain):
    one = lease()
    chain.add(one)
    LeaseFactory(uuid=one.uuid, chain_state=None, chain_height=-1, due_at="2026-01-01T00:00Z")
    before = failures()
    looker.at_due_leases()
    assert Placement.objects.get().status == "attempted"
    assert failures() == before


def test_a_restore_that_cannot_be_placed_is_noticed(no_placements, settings):
    source = LeaseFactory(chain_state=LeaseState.CLOSED)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE placements_placement DROP CONSTRAINT full_up")
        PlacementFactory(lease=source, backend_id="mock-1", backend=None)
        cursor.execute("ALTER TABLE placements_placement ADD CONSTRAINT full_up CHECK (revision < 0) NOT VALID")
    target = LeaseFactory(chain_state=LeaseState.PENDING, provider_uuid=settings.FRED.provider_uuid)
    before = failures()
    with pytest.raises(Error, match="full_up"):
        restores.admit_restore(restores.Wish(uuid4(), target.pk, source.pk, target.tenant))
    assert failures() == before + 1


def test_what_fails_without_writing_placements_is_none_of_it():
    before = failures()
    with pytest.raises(Error), placement_writes.watched(writes=False), connection.cursor() as cursor:
        cursor.execute("SELECT 1/0")
    with pytest.raises(ValueError, match="no database"), placement_writes.watched():
        raise ValueError("no database")
    assert failures() == before
