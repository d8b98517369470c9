"""Operators' actions on backends: what they change, when they are refused, and what stays written."""

from datetime import timedelta
from io import StringIO

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from backends import targets
from backends.models import Backend
from backends.sync import sync_backends
from fred.conf import BackendConfig
from leases.models import Lease
from leases.status import LeaseState
from placements.models import Provision, Retention, Teardown
from reconciliation import operators
from reconciliation.models import OperatorAction, Sweep, SweepBackend
from reconciliation.operators import Operator, Refused
from tests.factories.leases import LeaseFactory
from tests.factories.placements import CommandFactory, OperationFactory, PlacementFactory

pytestmark = pytest.mark.django_db
ME = Operator("me@host", "command")
KEYS = {"b1": "1" * 32, "b2": "2" * 32}


@pytest.fixture
def configure(monkeypatch):
    def use(*names, keys=KEYS, **changes):
        made = tuple(
            BackendConfig(
                name=name,
                url="http://127.0.0.1:9",
                contract="v0_13",
                hmac_secret=keys.get(name, ""),
                **changes.get(name, {}),
            )
            for name in names
        )
        monkeypatch.setattr(settings, "FRED", settings.FRED.model_copy(update={"backends": made}))
        sync_backends()

    use("b1", "b2")
    yield use
    targets.forget()


def act(verb, name="b1", *, reason="a leak"):
    return getattr(operators, verb)(name, reason=reason, operator=ME)


def last():
    return OperatorAction.objects.latest("id")


def test_a_fence_is_seen_at_once_here_and_written_down(configure):
    assert not targets.configured()["b1"].fenced
    assert act("fence")
    assert targets.configured()["b1"].fenced
    assert not Backend.objects.get(name="b1").takes_calls
    row = last()
    assert (row.actor, row.source, row.action, row.target) == ("me@host", "command", "fence", "backend:b1")
    assert (row.reason, row.result, row.before["fenced"], row.after["fenced"]) == ("a leak", "done", False, True)
    assert KEYS["b1"] not in str(row.before) + str(row.after)
    assert not act("fence")
    assert last().result == "unchanged"
    assert act("unfence")
    assert Backend.objects.get(name="b1").takes_calls


def test_fencing_needs_a_key_of_its_own_for_every_backend(configure):
    configure("b1", "b2", keys={})
    with pytest.raises(Refused, match=r"^backends\[1\]\.fenced requires a per-backend hmac_secret on every backend$"):
        act("fence", "b2")
    assert not Backend.objects.get(name="b2").fenced
    assert (last().result, last().after) == ("refused", last().before)
    assert "hmac_secret" in last().error


def test_one_backend_stays_unfenced(configure):
    act("fence", "b2")
    with pytest.raises(Refused, match=r"^every backend is fenced$"):
        act("fence", "b1")


def test_a_fence_of_the_configuration_is_lifted_only_by_the_configuration(configure):
    configure("b1", "b2", b1={"fenced": True})
    assert Backend.objects.get(name="b1").fenced_by == "configuration"
    with pytest.raises(Refused, match="configuration fences b1"):
        act("unfence")
    configure("b1", "b2")
    assert not Backend.objects.get(name="b1").fenced


def test_a_fence_of_an_operator_outlives_syncs_and_configurations(configure):
    act("fence")
    configure("b1", "b2", b1={"fenced": True})
    configure("b1", "b2")
    assert Backend.objects.get(name="b1").fenced
    assert act("unfence")


def test_a_fence_of_the_configuration_can_be_made_an_operators(configure):
    configure("b1", "b2", b1={"fenced": True})
    assert act("fence")
    configure("b1", "b2")
    assert Backend.objects.get(name="b1").fenced


def test_draining_takes_new_leases_away_and_nothing_else(configure):
    assert act("drain")
    row = Backend.objects.get(name="b1")
    assert (row.drained, row.takes_calls) == (True, True)
    assert act("undrain")
    assert not Backend.objects.get(name="b1").drained


def named_by(kind):
    backend = Backend.objects.get(name="b1")
    lease = LeaseFactory(chain_state=LeaseState.ACTIVE)
    match kind:
        case "placement(s)":
            PlacementFactory(lease=lease, backend=backend)
        case "open operation(s)":
            OperationFactory(lease=lease, backend=backend)
        case "restart(s) or update(s) whose end is not known":
            CommandFactory(lease=lease, backend=backend)
        case "open removal(s)":
            Teardown.objects.create(lease=lease, backend=backend)
        case "operation(s) that no whole list of it is newer than":
            OperationFactory(
                lease=lease,
                backend=backend,
                state="succeeded",
                settled_at=timezone.now(),
                last_dispatched_at=timezone.now(),
            )
        case "listed provision(s)" | "kept data set(s)":
            model = Provision if kind.startswith("listed") else Retention
            model.objects.create(backend=backend, lease_uuid=lease.pk, walk_id=1, walk_started_at=timezone.now())


@pytest.mark.parametrize(
    "kind",
    [
        "placement(s)",
        "open operation(s)",
        "restart(s) or update(s) whose end is not known",
        "open removal(s)",
        "operation(s) that no whole list of it is newer than",
        "listed provision(s)",
        "kept data set(s)",
    ],
)
def test_retiring_is_refused_while_anything_names_the_backend_and_says_what(configure, kind):
    named_by(kind)
    with pytest.raises(Refused) as refusal:
        act("retire")
    assert str(refusal.value) == f"b1 is still named by 1 {kind}"
    assert Backend.objects.get(name="b1").retired_at is None


def test_what_ended_and_was_removed_names_it_no_more(configure):
    backend = Backend.objects.get(name="b1")
    lease = LeaseFactory(chain_state=LeaseState.CLOSED)
    PlacementFactory(lease=lease, backend=backend)
    OperationFactory(
        lease=lease,
        backend=backend,
        state="succeeded",
        settled_at=timezone.now(),
        last_dispatched_at=timezone.now() - timedelta(hours=1),
    )
    Teardown.objects.create(lease=lease, backend=backend, state="done")
    SweepBackend.objects.create(sweep=Sweep.objects.create(), backend="b1", complete=True)
    assert act("retire")


def test_a_retired_backend_gets_nothing_whatever_the_configuration_says(configure):
    assert act("retire")
    configure("b1", "b2")
    row = Backend.objects.get(name="b1")
    assert (row.takes_calls, "b1" in targets.configured()) == (False, False)
    assert targets.client("b1") is None
    for verb in ("fence", "unfence", "drain", "undrain", "retire"):
        with pytest.raises(Refused, match="b1 is retired"):
            act(verb)


@pytest.mark.parametrize("reason", ["", "  "])
def test_a_reason_is_needed(configure, reason):
    with pytest.raises(Refused, match="reason"):
        act("drain", reason=reason)
    assert not OperatorAction.objects.exists()


def test_an_unknown_backend_is_refused_and_that_is_written(configure):
    with pytest.raises(Refused, match="there is no backend b9"):
        act("drain", "b9")
    assert (last().target, last().result) == ("backend:b9", "refused")


@pytest.mark.parametrize("statement", ["UPDATE {} SET reason = 'x'", "DELETE FROM {}"])
def test_what_is_written_stays(configure, statement):
    act("drain")
    with pytest.raises(DatabaseError, match="never changed"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement.format(OperatorAction._meta.db_table))
    assert last().reason == "a leak"


def test_what_a_change_may_help_is_looked_at(configure):
    waiting = LeaseFactory(chain_state=LeaseState.PENDING, reason="no_backend", due_at=None)
    placed = LeaseFactory(chain_state=LeaseState.PENDING, reason="backend_fenced", due_at=None)
    PlacementFactory(lease=placed, backend=Backend.objects.get(name="b1"))
    removed = LeaseFactory(chain_state=LeaseState.CLOSED, due_at=None)
    Teardown.objects.create(lease=removed, backend=Backend.objects.get(name="b1"), state="parked")
    calm = LeaseFactory(chain_state=LeaseState.ACTIVE, due_at=None)
    act("fence")
    Lease.objects.update(due_at=None)
    act("unfence")
    due = set(Lease.objects.filter(due_at__isnull=False).values_list("pk", flat=True))
    assert due == {waiting.pk, placed.pk, removed.pk}
    assert calm.pk not in due


def test_the_command(configure):
    said = StringIO()
    call_command("backends", "drain", "b1", "--reason", "disk", stdout=said)
    call_command("backends", "drain", "b1", "--reason", "disk", stdout=said)
    assert said.getvalue().splitlines() == ["drain: b1", "b1: nothing to do"]
    assert last().actor == Operator.of_command().actor
    with pytest.raises(CommandError, match="there is no backend b9"):
        call_command("backends", "fence", "b9", "--reason", "x")
    with pytest.raises(CommandError, match="--reason"):
        call_command("backends", "fence", "b1")


def test_the_list_says_what_takes_no_calls(configure, valkey):
    act("drain")
    act("fence", "b2")
    listed = StringIO()
    call_command("backends", "list", stdout=listed)
    first, second = listed.getvalue().splitlines()[1:]
    assert first.split()[-1] == "default,drained"
    assert second.split()[-1] == "fenced,takes-no-calls"
    assert "closed" in first
