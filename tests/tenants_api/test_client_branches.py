"""Answers on whose status, bytes or headers the network's TypeScript client branches: errors, tokens and reads.

docs/tenant-clients.md lists the branches. What a route's own tests hold already is not repeated here.
"""

import hashlib
import json
import re
import uuid

import pytest

from backends.contract import ProvisionStatus
from leases.models import Lease
from leases.status import LeaseState
from tenants_api import answers
from tests.tenants_api.calls import bearer
from tests.tenants_api.placed import HASH, placed
from tests.tenants_api.vectors import ALICE, BOB, LEASE

pytestmark = pytest.mark.django_db

SHOWN_CHARACTERS = 4096
"""So much of an error's body the client keeps."""
KNOWN_STATES = {
    "LEASE_STATE_UNSPECIFIED",
    "LEASE_STATE_PENDING",
    "LEASE_STATE_ACTIVE",
    "LEASE_STATE_CLOSED",
    "LEASE_STATE_REJECTED",
    "LEASE_STATE_EXPIRED",
}
RFC3339 = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:Z|[+-]\d{2}:\d{2})")
"""Another form of `retained_until` is dropped by the client."""

EXPLAINED = (
    "ContainerExited",
    "ImagePullFailed",
    "Internal",
    "RestartFailed",
    "UpdateFailed",
    "RestoreFailed",
    "VolumeCleanupExhausted",
    "CleanupFailed",
    "Unknown",
)

MINTED_BY = "manifest19rl4cm2hmr8afy4kldpxz3fka4jguq0aaz02ta"
MINTED_AT = 1_790_000_000
ACCESS = (
    "eyJ0ZW5hbnQiOiJtYW5pZmVzdDE5cmw0Y20yaG1yOGFmeTRrbGRweHozZmthNGpndXEwYWF6MDJ0YSIsImxlYXNlX3V1aWQiOiIwMTkwYTFiMi1j"
    "M2Q0LTdlNWYtOGE5Yi0wYzFkMmUzZjRhNWIiLCJ0aW1lc3RhbXAiOjE3OTAwMDAwMDAsInB1Yl9rZXkiOiJBazlPS3RtY05OWUxtNllvUEpReHFF"
    "R0srR2N5RXBZZmw2ZDdZM2Y4MEZ0aSIsInNpZ25hdHVyZSI6IjlUNG9vMHRhOG1TQzh3RnptVEljZnZ4T3NqbDFEZ3gxZ29zUGUxaDErWEJ0M2VY"
    "ODRBYzZIdEJiQjJLRDNjaVRzMGhpVlBGQUU5NWZIU00xei9hcXNnPT0ifQ=="
)
PAYLOAD = (
    "eyJ0ZW5hbnQiOiJtYW5pZmVzdDE5cmw0Y20yaG1yOGFmeTRrbGRweHozZmthNGpndXEwYWF6MDJ0YSIsImxlYXNlX3V1aWQiOiIwMTkwYTFiMi1j"
    "M2Q0LTdlNWYtOGE5Yi0wYzFkMmUzZjRhNWIiLCJ0aW1lc3RhbXAiOjE3OTAwMDAwMDAsInB1Yl9rZXkiOiJBazlPS3RtY05OWUxtNllvUEpReHFF"
    "R0srR2N5RXBZZmw2ZDdZM2Y4MEZ0aSIsInNpZ25hdHVyZSI6IklqZjN1S2dYL05FUHVJSEZhR2h5ZGo5dDI2MHN4N0ZJRnlLcFduZXVqNjBWM1U0"
    "aFpBSDdCVnU0QVhSRnNlZXJPQnhMYUFXdDhMQ0pIdE1nYmNtT3pRPT0iLCJtZXRhX2hhc2giOiI0MjVmNjdlYTE1NzQ4M2Q3MjQyMTYxMTM2Mzcw"
    "YjA4YzM1M2EzNTU4YjRiYmVmNjY4YjQ1YjE2OTA2YTNlY2M3In0="
)
"""Tokens as the client itself minted them, for lease L and the words `abandon` eleven times and `about`."""
UPLOADED = b'{"image":"nginx:1.27"}'


def limited(settings):
    settings.FRED = settings.FRED.model_copy(update={"tenant_rate_limit_rps": 0.1, "tenant_rate_limit_burst": 1})


def no_token(ask, **_):
    return ask("status", headers={})


def no_uuid(ask, **_):
    return ask("status", path="not-a-uuid")


def anothers(ask, **_):
    Lease.objects.update(tenant=BOB)
    return ask("status")


def unknown(ask, **_):
    Lease.objects.all().delete()
    return ask("status")


def nothing_there(ask, **_):
    return ask("provision")


def ended(ask, **_):
    Lease.objects.update(chain_state=LeaseState.CLOSED)
    return ask("connection")


def other_method(ask, **_):
    return ask("connection", method="POST")


def too_often(ask, settings, **_):
    limited(settings)
    ask("status")
    return ask("status")


def silent_chain(ask, chain, **_):
    Lease.objects.all().delete()
    chain.fails = True
    return ask("status")


def failing_backend(ask, lease, backends, **_):
    placed(lease)
    backends.one.holds(code=500)
    return ask("provision")


def unsettled_owner(ask, lease, **_):
    placed(lease, status="conflict")
    return ask("connection")


@pytest.mark.parametrize(
    ("fault", "status", "text", "wait"),
    [
        (no_token, 401, "unauthorized", None),
        (no_uuid, 400, "invalid lease UUID format", None),
        (anothers, 403, "forbidden", None),
        (unknown, 404, "lease not found", None),
        (nothing_there, 404, "provision not found", None),
        (ended, 404, "lease not found or not active", None),
        (other_method, 405, "method not allowed", None),
        (too_often, 429, "rate limit exceeded", "10"),
        (silent_chain, 500, "internal server error", None),
        (failing_backend, 500, "internal server error", None),
        (unsettled_owner, 503, "service unavailable", "1"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_an_error_is_one_short_line_of_json_and_says_when_to_come_back(
    fault, status, text, wait, ask, lease, chain, backends, settings
):
    """The client shows the body as it is, tries again at 429 and from 500 on, and waits for `Retry-After`."""
    found = fault(ask=ask, lease=lease, chain=chain, backends=backends, settings=settings)
    assert found.status == status
    assert found.raw == f'{{"error":"{text}","code":{status}}}\n'.encode()
    assert len(found.raw) < SHOWN_CHARACTERS
    assert found.headers["Content-Type"] == "application/json"
    assert found.headers.get("Retry-After") == wait


@pytest.mark.parametrize("route", ["status", "provision", "connection"])
def test_a_success_is_json_with_a_body(route, ask, lease, backends):
    """An empty or broken success would count as a passing fault and be asked for again."""
    placed(lease)
    backends.one.holds()
    backends.one.says(f"/info/{LEASE}", {})
    found = ask(route)
    assert found.status == 200
    assert found.headers["Content-Type"] == "application/json"
    assert json.loads(found.raw)["lease_uuid"] == LEASE


def test_the_clients_own_access_token_is_good_for_any_number_of_reads_and_one_connection(ask, at, lease, backends):
    """The token that opened the stream of events also reads the status, then and later."""
    at(MINTED_AT + 29)
    Lease.objects.update(tenant=MINTED_BY)
    backends.one.says(f"/info/{LEASE}", {"host": "h"})
    headers = {"Authorization": f"Bearer {ACCESS}"}
    assert [ask("status", headers=headers).status for _ in range(3)] == [200, 200, 200]
    assert [ask("connection", headers=headers).status for _ in range(2)] == [200, 401]
    assert ask("status", headers=headers).status == 200


def test_the_clients_own_payload_token_uploads(ask, at, lease):
    at(MINTED_AT)
    digest = hashlib.sha256(UPLOADED).digest()
    Lease.objects.update(tenant=MINTED_BY, chain_state=LeaseState.PENDING, meta_hash=digest)
    headers = {"Authorization": f"Bearer {PAYLOAD}"}
    assert [ask("data", headers=headers, body=UPLOADED).status for _ in range(2)] == [202, 409]


def test_no_state_is_one_that_the_client_does_not_know():
    """An unknown name ends its wait as a failure."""
    assert {answers.state_name(state) for state in LeaseState} == KNOWN_STATES


@pytest.mark.parametrize("status", [*(one.value for one in ProvisionStatus), "paused"])
def test_a_provision_status_reaches_the_client_as_the_backend_said_it(status, ask, lease, backends):
    """`ready` is done, `failed` and `deprovisioning` have failed, all others mean to wait; the client may know more."""
    placed(lease)
    backends.one.holds(status=status)
    assert ask("status").body["provision_status"] == status
    assert ask("provision").body["status"] == status


def test_the_states_of_a_lease_on_its_way_are_those_that_keep_the_client_waiting(ask, watcher, chain, backends):
    """Right after it was made a lease may not be known yet: 404 counts as a passing fault of this read alone."""
    assert ask("status").status == 404
    chain.add(uuid.UUID(LEASE), state=LeaseState.PENDING, meta_hash=HASH)
    found = ask("status")
    assert (found.status, found.body["state"]) == (200, "LEASE_STATE_PENDING")
    assert "provision_status" not in found.body


@pytest.mark.parametrize("failed_before", [0, 2])
def test_a_healthy_lease_has_the_keys_that_the_client_expects_and_no_others(failed_before, ask, lease, backends):
    placed(lease)
    backends.one.holds(fail_count=failed_before, tenant=ALICE, partition="blue")
    more = {"fail_count"} if failed_before else set()
    assert set(ask("status").body) == more | {
        "lease_uuid",
        "tenant",
        "provider_uuid",
        "state",
        "requires_payload",
        "payload_received",
        "provisioning_started",
        "provision_status",
    }
    provision = ask("provision").body
    assert set(provision) == {"lease_uuid", "tenant", "provider_uuid", "status", "fail_count"}
    assert (provision["status"], provision["fail_count"]) == ("ready", failed_before)


@pytest.mark.parametrize("until", ["2026-10-01T12:00:00.987654321+02:00", "2026-10-01T10:00:00Z"])
def test_what_is_kept_of_a_closed_lease_has_a_time_in_the_form_the_client_takes(until, ask, lease, backends):
    Lease.objects.update(chain_state=LeaseState.CLOSED)
    placed(lease)
    backends.one.holds(status="retained", tenant=ALICE, retained_until=until, items=[{"sku": "s", "quantity": 1}])
    for route in ("status", "provision"):
        found = ask(route).body
        assert RFC3339.fullmatch(found["retained_until"])
        assert (found["items"], bool(found["restore_hint"])) == ([{"sku": "s", "quantity": 1}], True)


def test_a_failure_that_was_rolled_back_stands_beside_ready(ask, lease, backends):
    """The client takes the status for the verdict, the reason for an explanation; it reads no `last_error`."""
    placed(lease)
    backends.one.holds(reason="UpdateFailed", message="rolled back", last_error="panic", error="panic")
    for route in ("status", "provision"):
        found = ask(route).body
        assert (found["reason"], found["message"]) == ("UpdateFailed", "rolled back")
        assert not {"last_error", "error"} & found.keys()


@pytest.mark.usefixtures("unlimited")
def test_every_reason_reaches_the_client_as_the_backend_said_it(ask, lease, backends):
    """It explains those that it knows, and passes on those that it does not."""
    placed(lease)
    for reason in (*EXPLAINED, "HealthCheckFailed", "FlewAway"):
        backends.one.holds(status="failed", reason=reason, message="it flew away")
        for route in ("status", "provision"):
            found = ask(route).body
            assert (found["reason"], found["message"]) == (reason, "it flew away")


def test_a_token_of_another_lease_is_refused_like_any_other(ask, lease):
    found = ask("status", headers=bearer(lease="0190a1b2-c3d4-7e5f-8a9b-ffffffffffff"))
    assert (found.status, found.raw) == (401, b'{"error":"unauthorized","code":401}\n')
