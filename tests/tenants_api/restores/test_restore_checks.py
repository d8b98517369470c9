"""POST restore: the checks in their order, and what the backend is asked."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, connections
from django.test import Client
from django.utils import timezone

from backends import targets
from backends.models import Backend
from leases.chain.client import Doubt, Unknown
from leases.models import Lease, StatusEvent
from leases.status import LeaseState
from placements.models import Operation, Placement, Teardown
from placements.status import OperationState
from tenants_api.models import TenantRequest
from tests.factories.placements import CommandFactory, OperationFactory, PlacementFactory
from tests.scripted_backend import Hang
from tests.tenants_api.calls import PROVIDER, bearer
from tests.tenants_api.restores.restoring import BUSY, ITEMS, ROWS, error, number
from tests.tenants_api.vectors import ALICE
from tests.waiting import wait_until

pytestmark = ROWS
S = OperationState
NOT_KEPT = error("no retained data found for that lease", 404)
INTERNAL = error("internal server error", 500)
UNAVAILABLE = error("service temporarily unavailable", 503)


def test_ta71_a_restore_goes_to_the_backend_of_the_source_and_its_acceptance_is_told(restoring):
    source, target = restoring.source(), restoring.lease()
    found = restoring.ask(target, source)
    assert (found.status, found.raw) == (202, b'{"status":"provisioning"}\n')
    (sent,) = restoring.posts()
    operation = restoring.operation(target)
    assert sent == {
        "lease_uuid": str(target.pk),
        "from_lease_uuid": str(source.pk),
        "tenant": ALICE,
        "provider_uuid": str(PROVIDER),
        "items": ITEMS,
        "callback_url": operation.callback_url,
    }
    assert str(operation.pk) in operation.callback_url
    assert (operation.kind, operation.state, operation.source_lease_id) == ("restore", S.ACCEPTED, source.pk)
    assert restoring.placed(target) == ("docker-1", "attempted")
    assert restoring.placed(source) == ("docker-1", "confirmed")
    assert list(StatusEvent.objects.values_list("lease_id", "status", "error")) == [(target.pk, "restarting", "")]
    assert restoring.in_flight(target)


def test_ta71_the_body_may_be_followed_by_anything_and_names_match_in_any_case(restoring):
    source, target = restoring.source(), restoring.lease()
    body = f'{{"From_Lease_UUID":"{{{str(source.pk).upper()}}}","tenant":"mallory","x":[1]}} and more'
    assert restoring.ask(target, body=body).status == 202
    assert restoring.posts()[0]["tenant"] == ALICE


def test_ta72_only_a_pending_lease_can_be_restored_into(restoring):
    text = "lease is not pending; only a fresh lease can be restored into"
    source = restoring.source()
    for state in (LeaseState.ACTIVE, LeaseState.CLOSED, LeaseState.EXPIRED, LeaseState.REJECTED):
        found = restoring.ask(restoring.lease(state), source)
        assert (found.status, found.body) == (409, error(text, 409, "target_not_pending")), state
    assert restoring.backend.seen == []


BODIES = {
    "not json": "invalid request body",
    '"not json"': "invalid request body",
    "[]": "invalid request body",
    "": "invalid request body",
    '{"from_lease_uuid":5}': "invalid request body",
    "{}": "from_lease_uuid is required",
    "null": "from_lease_uuid is required",
    '{"from_lease_uuid":null}': "from_lease_uuid is required",
    '{"from_lease_uuid":""}': "from_lease_uuid is required",
    '{"from_lease_uuid":"not-a-uuid"}': "from_lease_uuid is not a valid UUID",
}


def test_ta72_bodies_that_name_no_source(restoring):
    target = restoring.lease()
    found = {body: restoring.ask(target, body=body) for body in BODIES}
    assert {body: one.body for body, one in found.items()} == {body: error(text, 400) for body, text in BODIES.items()}
    assert {one.status for one in found.values()} == {400}


def test_ta72_a_lease_can_not_be_restored_into_itself(restoring):
    target = restoring.lease()
    for spelt in (str(target.pk), str(target.pk).upper(), f"urn:uuid:{target.pk}", target.pk.hex):
        found = restoring.ask(target, body=f'{{"from_lease_uuid":"{spelt}"}}')
        text = "from_lease_uuid must differ from the restore target UUID"
        assert (found.status, found.body) == (400, error(text, 400)), spelt


def test_a_body_over_the_cap_is_400_and_ends_the_connection(restoring, settings):
    settings.FRED = settings.FRED.model_copy(update={"max_request_body_size": 20})
    found = restoring.ask(restoring.lease(), restoring.source())
    assert (found.status, found.body) == (400, error("invalid request body", 400))
    assert found.headers["Connection"] == "close"


def test_ta73_lc116_without_a_placement_nothing_is_known_to_be_kept(restoring):
    source = restoring.lease(LeaseState.CLOSED)
    found = restoring.ask(restoring.lease(), source)
    assert (found.status, found.body) == (404, NOT_KEPT)


@pytest.mark.parametrize("how", ["gone", "fenced", "retired"])
def test_ta73_lc116_a_backend_that_is_unknown_or_takes_no_calls_is_503(restoring, how):
    source, target = restoring.source(), restoring.lease()
    changes = {"gone": {"configured": False}, "fenced": {"fenced": True}, "retired": {"retired_at": timezone.now()}}
    Backend.objects.filter(pk="docker-1").update(**changes[how])
    targets.forget()
    found = restoring.ask(target, source)
    assert (found.status, found.body, found.headers["Retry-After"]) == (503, UNAVAILABLE, "1")
    assert restoring.backend.seen == []
    assert restoring.placed(target) is None


def test_op97_a_drained_backend_goes_on_restoring_what_it_keeps(restoring):
    source, target = restoring.source(), restoring.lease()
    Backend.objects.filter(pk="docker-1").update(drained=True)
    targets.forget()
    assert restoring.ask(target, source).status == 202


def test_ta73_a_source_whose_owner_is_not_settled_is_503(restoring):
    target = restoring.lease()
    for status in ("conflict", "quarantined", "open attempt"):
        source = restoring.source()
        if status == "open attempt":
            OperationFactory(lease=source, backend_id="docker-1")
        else:
            Placement.objects.filter(lease=source).update(status=status)
        found = restoring.ask(target, source)
        assert (found.status, found.body) == (503, UNAVAILABLE), status


def test_ta73_a_source_whose_storage_is_lost_is_410(restoring):
    source = restoring.source()
    Placement.objects.filter(lease=source).update(status="lost")
    found = restoring.ask(restoring.lease(), source)
    text = "the backend storage holding this lease was irrecoverably lost"
    assert (found.status, found.body) == (410, error(text, 410, "backend_storage_lost"))


def busy_targets(restoring, source):
    """New leases with something of their own, by what it is."""
    leases = {what: restoring.lease() for what in ("provision", "restore", "command", "placement", "teardown", "wish")}
    backend = Placement.objects.get(lease=source).backend
    OperationFactory(lease=leases["provision"], backend=backend)
    OperationFactory(lease=leases["restore"], backend=backend, kind="restore", source_lease=source)
    CommandFactory(lease=leases["command"], backend=backend)
    PlacementFactory(lease=leases["placement"], backend=backend)
    Teardown.objects.create(lease=leases["teardown"], backend=backend)
    leases["wish"].chainaction_set.create(verb="reject")
    return leases


def test_ta74_a_target_with_anything_of_its_own_is_busy_and_left_alone(restoring):
    leases = busy_targets(restoring, restoring.source())
    before = list(Operation.objects.order_by("pk").values())
    source = restoring.source()
    for what, target in leases.items():
        found = restoring.ask(target, source)
        assert (found.status, found.body) == (409, error(BUSY, 409, "target_busy")), what
    assert restoring.backend.seen == []
    assert list(Operation.objects.order_by("pk").values()) == before


def busy_sources(restoring):
    """Sources with which something else still goes on, by what it is."""
    names = ("restore elsewhere", "teardown", "parked", "command", "not torn down", "still live")
    leases = {what: restoring.source(torn_down=False) for what in names}
    backend = Backend.objects.get(pk="docker-1")
    OperationFactory(lease=restoring.lease(), backend=backend, kind="restore", source_lease=leases["restore elsewhere"])
    Teardown.objects.create(lease=leases["teardown"], backend=backend)
    Teardown.objects.create(lease=leases["parked"], backend=backend, state="parked")
    CommandFactory(lease=leases["command"], backend=backend)
    Lease.objects.filter(pk=leases["not torn down"].pk).update(due_at=timezone.now())
    # The chain has this one as closed, which our row has yet to hear: its read is older than the row.
    Lease.objects.filter(pk=leases["still live"].pk).update(chain_state=LeaseState.ACTIVE, chain_height=200)
    restoring.chain.add(leases["still live"].pk, state=LeaseState.CLOSED, height=100)
    return leases


def test_ta74_a_source_that_something_else_owns_is_busy(restoring):
    target = restoring.lease()
    for what, source in busy_sources(restoring).items():
        found = restoring.ask(target, source)
        assert (found.status, found.body) == (409, error(BUSY, 409, "source_busy")), what
    assert restoring.backend.seen == []
    assert restoring.placed(target) is None


def test_ta74_lc115_two_restores_from_one_source_at_once_one_is_taken(restoring):
    source, targets_ = restoring.source(), [restoring.lease() for _ in range(4)]
    hang = Hang()
    restoring.backend.script["restore"].append(hang)

    def ask(target):
        try:
            return restoring.ask(target, source, client=Client())
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(ask, target) for target in targets_]
        wait_until(lambda: sum(one.done() for one in asked) == 3)
        hang.release()
        found = [one.result() for one in asked]
    assert sorted(one.status for one in found) == [202, 409, 409, 409]
    assert {one.body["reason"] for one in found if one.status == 409} == {"source_busy"}
    assert len(restoring.posts()) == 1


def test_lc115_two_restores_into_one_lease_at_once_one_is_taken(restoring):
    sources, target = [restoring.source() for _ in range(4)], restoring.lease()

    def ask(source):
        try:
            return restoring.ask(target, source, client=Client())
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ask, sources))
    assert sorted(one.status for one in found) == [202, 409, 409, 409]
    assert {one.body["reason"] for one in found if one.status == 409} == {"target_busy"}
    assert Operation.objects.filter(lease=target).count() == len(restoring.posts()) == 1


def live(restoring):
    """A source that is stored as ACTIVE although its backend has let go of it."""
    return restoring.source(state=LeaseState.ACTIVE)


def test_ta137_a_source_whose_end_is_not_stored_is_read_from_the_chain(restoring):
    for state in (LeaseState.CLOSED, LeaseState.EXPIRED):
        source = live(restoring)
        restoring.chain.add(source.pk, state=state, height=200)
        assert restoring.ask(restoring.lease(), source).status == 202
        assert restoring.chain.asked[-1] == source.pk
        source.refresh_from_db()
        assert source.chain_state == state


def test_ta137_a_source_that_has_not_ended_or_is_anothers_is_404(restoring):
    for changes in (
        {"state": LeaseState.ACTIVE},
        {"state": LeaseState.PENDING},
        {"state": LeaseState.REJECTED},
        {"state": LeaseState.CLOSED, "tenant": "manifest1another"},
    ):
        source = live(restoring)
        restoring.chain.add(source.pk, height=200, **changes)
        found = restoring.ask(restoring.lease(), source)
        assert (found.status, found.body) == (404, NOT_KEPT), changes
    assert restoring.backend.seen == []


def test_ta137_a_stored_source_of_another_tenant_or_rejected_is_404_without_a_read(restoring):
    for source in (restoring.source(tenant="manifest1another"), restoring.source(state=LeaseState.REJECTED)):
        found = restoring.ask(restoring.lease(), source)
        assert (found.status, found.body) == (404, NOT_KEPT)
    assert restoring.chain.asked == []


def test_ta137_when_the_source_can_not_be_read_it_is_503(restoring):
    source = live(restoring)
    restoring.chain.fails = True
    found = restoring.ask(restoring.lease(), source)
    assert (found.status, found.body) == (503, UNAVAILABLE)


def test_ta137_a_source_of_another_provider_is_404(restoring):
    source = live(restoring)
    restoring.chain.known[source.pk] = Unknown("another provider", Doubt.FOREIGN, LeaseState.CLOSED)
    found = restoring.ask(restoring.lease(), source)
    assert (found.status, found.body) == (404, NOT_KEPT)


def test_a_source_that_the_chain_forgot_goes_on_to_its_placement(restoring):
    forgotten = restoring.source(chain_state=None)
    assert restoring.ask(restoring.lease(), forgotten).status == 202
    unknown = restoring.ask(restoring.lease(), number(5))
    assert (unknown.status, unknown.body) == (404, NOT_KEPT)


def test_after_the_admission_no_look_provisions_the_lease(restoring, looker_of):
    """A lease without a payload to wait for is provisioned at once: a look and a restore can't both win."""
    source, target = restoring.source(), restoring.lease(meta_hash=b"")
    claimed = looker_of(target)
    assert restoring.ask(target, source).status == 202
    claimed()
    assert [one.kind for one in Operation.objects.filter(lease=target)] == ["restore"]


def test_a_request_leaves_a_row_for_the_audit(restoring):
    source, target = restoring.source(), restoring.lease()
    restoring.ask(target, source)
    restoring.ask(target, source)
    restoring.ask(target, source, who="bob")
    operation = restoring.operation(target)
    rows = list(TenantRequest.objects.order_by("id").values_list("tenant", "lease_uuid", "route", "status"))
    assert rows[:2] == [(ALICE, target.pk, "restore", 202), (ALICE, target.pk, "restore", 409)]
    assert rows[2][2:] == ("restore", 403)
    assert TenantRequest.objects.order_by("id").first().operation_id == operation.pk


def test_a_request_whose_audit_can_not_be_written_is_answered_all_the_same(restoring):
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE tenants_api_tenantrequest RENAME TO away")
    try:
        assert restoring.ask(restoring.lease(), restoring.source()).status == 202
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE away RENAME TO tenants_api_tenantrequest")


def test_when_the_rows_can_not_be_written_it_is_500(restoring):
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE placements_teardown RENAME TO away")
    try:
        found = restoring.ask(restoring.lease(), restoring.lease(LeaseState.CLOSED))
        assert (found.status, found.body) == (500, INTERNAL)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE away RENAME TO placements_teardown")
    assert restoring.backend.seen == []


def test_a_token_is_used_up_whatever_is_answered(restoring):
    target = restoring.lease()
    headers = bearer("alice", target.pk)
    assert restoring.ask(target, body="{}", headers=headers).status == 400
    assert restoring.ask(target, restoring.source(), headers=headers).status == 401
