"""Bodies of `status` and `provision`, and whom they ask."""

import pytest
from django.utils import timezone

from leases.models import Lease
from leases.status import LeaseState
from tenants_api import answers
from tests.factories.leases import PayloadFactory
from tests.factories.placements import OperationFactory
from tests.tenants_api.calls import PROVIDER, SKU, envelope
from tests.tenants_api.placed import HASH, placed
from tests.tenants_api.vectors import ALICE, LEASE

pytestmark = pytest.mark.django_db
HEAD = {"lease_uuid": LEASE, "tenant": ALICE, "provider_uuid": str(PROVIDER)}


def test_ta44_a_pending_lease_without_payload(ask, lease):
    Lease.objects.update(chain_state=LeaseState.PENDING)
    found = ask("status")
    assert found.raw.decode() == (
        f'{{"lease_uuid":"{LEASE}","tenant":"{ALICE}","provider_uuid":"{PROVIDER}","state":"LEASE_STATE_PENDING",'
        '"requires_payload":false,"payload_received":false,"provisioning_started":false}\n'
    )


def test_ta45_a_pending_lease_with_payload_under_way(ask, lease):
    Lease.objects.update(chain_state=LeaseState.PENDING, meta_hash=HASH)
    PayloadFactory(lease=lease)
    OperationFactory(lease=lease)
    assert ask("status").body == {
        **HEAD,
        "state": "LEASE_STATE_PENDING",
        "requires_payload": True,
        "meta_hash_hex": HASH.hex(),
        "payload_received": True,
        "provisioning_started": True,
    }


@pytest.mark.parametrize(("state", "received"), [(1, True), (2, True), (3, False), (4, False), (5, False)], ids=str)
def test_the_payload_of_an_ended_lease_counts_as_gone(state, received, ask, lease):
    Lease.objects.update(chain_state=state, meta_hash=HASH)
    PayloadFactory(lease=lease)
    assert ask("status").body["payload_received"] is received


def test_a_settled_operation_is_not_in_flight(ask, lease):
    OperationFactory(lease=lease, settled_at=timezone.now())
    assert ask("status").body["provisioning_started"] is False


@pytest.mark.parametrize(
    ("state", "name"),
    [
        (2, "LEASE_STATE_ACTIVE"),
        (3, "LEASE_STATE_CLOSED"),
        (4, "LEASE_STATE_REJECTED"),
        (5, "LEASE_STATE_EXPIRED"),
    ],
)
def test_every_state_has_its_name(state, name, ask, lease):
    Lease.objects.update(chain_state=state)
    assert ask("status").body["state"] == name


def test_an_unknown_state_is_its_number():
    assert answers.state_name(9) == "9"


def test_ta46_an_active_lease_that_is_ready(ask, lease, backends):
    placed(lease)
    backends.one.holds(fail_count=0)
    body = ask("status").body
    assert body["provision_status"] == "ready"
    assert "fail_count" not in body


@pytest.mark.parametrize("answer", [(500, b"{}"), (200, b"no json"), (200, b"[]"), (404, b"{}")])
def test_ta47_a_failing_backend_only_leaves_its_fields_out(answer, ask, lease, backends):
    placed(lease)
    backends.one.answers[f"/provisions/{LEASE}"] = answer
    found = ask("status")
    assert found.status == 200
    assert list(found.body)[-1] == "provisioning_started"


def test_ta47_a_dead_backend_only_leaves_its_fields_out(ask, lease, backends):
    placed(lease)
    backends.one.close()
    found = ask("status")
    assert found.status == 200
    assert "provision_status" not in found.body


@pytest.mark.parametrize("route", ["status", "provision"])
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"status": "failed", "fail_count": 2}, {"reason": "Unknown", "fail_count": 2}),
        (
            {"status": "ready", "reason": "UpdateFailed", "message": "rolled back"},
            {"reason": "UpdateFailed", "message": "rolled back"},
        ),
        ({"status": "failed", "reason": "ImagePullFailed"}, {"reason": "ImagePullFailed"}),
    ],
)
def test_ta48_reasons_are_passed_on(route, fields, expected, ask, lease, backends):
    placed(lease)
    backends.one.holds(**fields)
    body = ask(route).body
    assert expected.items() <= body.items()
    if "message" not in expected:
        assert "message" not in body


@pytest.mark.parametrize("route", ["status", "provision"])
def test_ta49_what_a_backend_adds_is_not_shown(route, ask, lease, backends):
    placed(lease)
    backends.one.holds(last_error="/var/lib/host/path", status="failed")
    assert b"/var/lib" not in ask(route).raw


@pytest.mark.parametrize("partition", ["blue", ""])
def test_ta50_a_closed_lease_whose_data_is_kept(partition, ask, lease, backends):
    Lease.objects.update(chain_state=LeaseState.CLOSED)
    placed(lease)
    backends.one.holds(
        status="retained",
        tenant=ALICE,
        retained_until="2026-10-01T12:00:00.987654321+02:00",
        items=[{"sku": str(SKU), "quantity": 2, "service_name": "web"}, {"sku": "x", "quantity": 0}],
        partition=partition,
    )
    for route, name in (("status", "provision_status"), ("provision", "status")):
        body = ask(route).body
        assert body[name] == "retained"
        assert body["retained_until"] == "2026-10-01T10:00:00Z"
        assert body["items"] == [
            {"sku": str(SKU), "quantity": 2, "service_name": "web"},
            {"sku": "x", "quantity": 0},
        ]
        assert "/restore" in body["restore_hint"]
        assert "from_lease_uuid" in body["restore_hint"]
        assert body.get("partition", "") == partition


def test_ta51_the_year_one_means_no_end(ask, lease, backends):
    Lease.objects.update(chain_state=LeaseState.CLOSED)
    placed(lease)
    backends.one.holds(status="retained", tenant=ALICE, retained_until="0001-01-01T00:00:00Z")
    assert "retained_until" not in ask("status").body


def test_a_live_provision_has_no_retention_fields(ask, lease, backends):
    placed(lease)
    backends.one.holds(retained_until="0001-01-01T00:00:00Z", items=[{"sku": "x", "quantity": 1}], partition="p")
    body = ask("status").body
    assert not {"retained_until", "items", "restore_hint", "partition"} & body.keys()


@pytest.mark.parametrize("route", ["status", "provision"])
@pytest.mark.parametrize(
    ("fields", "who", "expected"),
    [
        ({"status": "retained", "tenant": ALICE}, "alice", 200),
        ({"status": "retained", "tenant": ALICE}, "bob", 404),
        ({"status": "retained", "tenant": ""}, "alice", 404),
        ({"status": "ready", "tenant": ALICE}, "alice", 404),
        ({"code": 500}, "alice", 404),
        ({"code": 404}, "alice", 404),
    ],
)
def test_ta52_a_lease_the_chain_does_not_know_any_more(route, fields, who, expected, ask, watcher, backends):
    backends.two.holds(**fields)
    found = ask(route, who=who)
    assert found.status == expected
    if expected == 404:
        assert found.body == envelope("lease not found", 404)
    elif route == "status":
        assert found.body == {
            **HEAD,
            "state": "LEASE_STATE_UNSPECIFIED",
            "requires_payload": False,
            "payload_received": False,
            "provisioning_started": False,
            "provision_status": "retained",
            "restore_hint": answers.RESTORE_HINT,
        }


def test_ta53_a_hit_has_its_failures_even_when_there_are_none(ask, lease, backends):
    placed(lease)
    backends.one.holds()
    assert ask("provision").raw.decode() == (
        f'{{"lease_uuid":"{LEASE}","tenant":"{ALICE}","provider_uuid":"{PROVIDER}","status":"ready","fail_count":0}}\n'
    )


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        (404, 404, (404, "provision not found")),
        (500, 404, (500, "internal server error")),
        (404, 500, (500, "internal server error")),
        (500, 200, (200, None)),
        (404, 200, (200, None)),
    ],
    ids=str,
)
@pytest.mark.parametrize("has_placement", [True, False])
def test_ta53_the_search(one, two, expected, has_placement, ask, lease, backends):
    if has_placement:
        placed(lease)
    backends.one.holds(code=one)
    backends.two.holds(code=two)
    found = ask("provision")
    assert found.status == expected[0]
    if expected[1]:
        assert found.body == envelope(expected[1], expected[0])


def test_a_hit_at_the_placed_backend_asks_nobody_else(ask, lease, backends):
    placed(lease, "docker-2")
    backends.two.holds()
    assert ask("provision").status == 200
    assert backends.one.calls == []


def test_only_backends_of_the_sku_are_searched(ask, lease, backends):
    Lease.objects.update(items=[{"sku": str(SKU), "quantity": 1}])
    ask("provision")
    assert (backends.one.calls, len(backends.two.calls)) == ([], 1)


def test_ta53_of_an_accepted_provision_absence_everywhere_is_404(ask, lease, backends):
    placed(lease, status="attempted")
    OperationFactory(lease=lease, state="accepted")
    found = ask("provision")
    assert (found.status, found.body) == (404, envelope("provision not found", 404))


@pytest.mark.parametrize("way", ["open attempt", "unknown backend", "fenced"])
def test_ta132_without_a_settled_owner_absence_everywhere_is_no_answer(way, ask, lease, backends, house):
    if way == "open attempt":
        placed(lease, status="attempted")
        OperationFactory(lease=lease, state="in_doubt")
    elif way == "unknown backend":
        placed(lease, "old-name")
    else:
        fenced = house.FRED.backends[0].model_copy(update={"fenced": True})
        house.FRED = house.FRED.model_copy(update={"backends": (fenced, house.FRED.backends[1])})
        placed(lease)
    found = ask("provision")
    assert (found.status, found.body) == (503, envelope("service temporarily unavailable", 503))
    status = ask("status")
    assert (status.status, "provision_status" in status.body) == (200, False)
    if way == "fenced":
        assert backends.one.calls == []
