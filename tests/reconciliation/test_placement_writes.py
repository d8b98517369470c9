"""A transaction that was to write placements and could not is noticed, whoever ran it."""

from __future__ import annotations

import re
from contextlib import contextmanager
from uuid import uuid4

import pytest
from django.db import Error, connection, transaction

from fred import metrics
from leases.models import Lease
from leases.status import LeaseState
from placements.command_status import CommandState
from placements.models import Placement
from placements.status import OperationState
from reconciliation import act, placement_writes, restores
from reconciliation import decisions as d
from tests.factories.backends import BackendFactory
from tests.factories.leases import LeaseFactory
from tests.factories.placements import PlacementFactory
from tests.reconciliation import known
from tests.reconciliation.chains import lease
from tests.reconciliation.story import counted

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("trusted", "valkey")]
ENDED = (d.CommandResult(known.COMMAND, CommandState.FAILED),)
ACTS = (
    d.StartProvision("b1"),
    d.Push(known.OPERATION),
    d.RecordOutcome(known.OPERATION, OperationState.ACCEPTED),
    d.GiveUp(known.OPERATION, "not_sent"),
    d.Settle(known.OPERATION, "ready"),
    d.Settle(known.OPERATION),
    d.EndWithLease(known.OPERATION, "failed"),
    d.Acknowledge(known.OPERATION, adopt="b1"),
    d.Adopt("b1"),
    d.Reject("no room", known.OPERATION),
    d.Close("gone"),
    d.DropActions(),
    d.SendTeardown(("b1",), "closed"),
    d.ParkTeardown(("b1",)),
    d.ResumeTeardown(("b1",)),
    d.Announce((("ready", ""),), (1,)),
    d.Conclude(ENDED, (("ready", ""),), (1,)),
    d.PushCommand(known.COMMAND),
    d.EndCommands(ENDED),
)
"""One of every kind that writes rows, with all it can carry."""
WRITTEN = re.compile(r'(?:INSERT INTO|UPDATE|DELETE FROM)\s+"?placements_placement\b')


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


@contextmanager
def statements():
    """What is sent to the database in here."""
    sent: list[str] = []

    def note(execute, sql, params, many, context):
        sent.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        yield sent


def test_every_kind_of_act_is_tried():
    assert {type(one) for one in ACTS} == set(act.ACTS)


@pytest.mark.parametrize("wanted", ACTS, ids=lambda one: type(one).__name__)
def test_the_acts_that_write_placements_are_those_that_are_listed(wanted):
    BackendFactory(name="b1")
    LeaseFactory(uuid=known.LEASE)
    facts = known.lease(known.PENDING, operation=known.operation(OperationState.FAILED), payload=known.payload())
    with transaction.atomic(), statements() as sent:
        act.act([act.Decided(facts, d.Decision(wanted), 1)])
    assert sent
    assert any(WRITTEN.search(sql) for sql in sent) == isinstance(wanted, act.WRITES_PLACEMENTS)
