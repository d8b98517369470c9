"""Who is let in to the lease routes, in which order things are checked, and what a refusal looks like."""

import base64
import hashlib
import json
import time
import uuid
from datetime import timedelta

import pytest
from django.db import connection, connections
from django.utils import timezone

from fred.budget import Budget, spending
from leases.chain.client import Doubt, Unknown
from leases.models import Lease
from leases.status import LeaseState
from reconciliation.sources import NOBODY
from tenants_api import lease_route
from tenants_api.models import UsedToken
from tests.factories.leases import LeaseFactory
from tests.tenants_api.calls import PROVIDER, bearer, envelope, token
from tests.tenants_api.placed import placed
from tests.tenants_api.vectors import ALICE, BOB, LEASE, VECTORS, vector

pytestmark = pytest.mark.django_db
ACCESS = ["status", "provision", "connection", "logs", "releases"]
BODIES = {
    "data": b"x",
    "restart": b"",
    "update": b'{"payload":"e30="}',
    "restore": b'{"from_lease_uuid":"0190a1b2-c3d4-7e5f-8a9b-ffffffffffff"}',
}
ROUTES = [*ACCESS, *BODIES]
PENDING_ONLY = {"data", "restore"}
ACTIVE_ONLY = ["connection", "restart", "update"]
DIGEST = hashlib.sha256(BODIES["data"]).digest()
UNAUTHORIZED = envelope("unauthorized", 401)


@pytest.mark.parametrize(
    "entry", [one for one in VECTORS["accept"] if one["variant"] == "access"], ids=lambda e: e["id"]
)
def test_ta1_accepted_vectors_are_served(entry, ask, at, watcher, settings):
    at(entry["now"])
    tenant = next(key for key in VECTORS["keys"] if key["id"] == entry["key"])["address"][entry["bech32_prefix"]]
    settings.FRED = settings.FRED.model_copy(update={"bech32_prefix": entry["bech32_prefix"]})
    LeaseFactory(uuid=entry["request_path_lease_uuid"].lower(), tenant=tenant, provider_uuid=PROVIDER)
    found = ask("status", path=entry["request_path_lease_uuid"], headers={"Authorization": f"Bearer {entry['token']}"})
    assert (found.status, found.body["lease_uuid"]) == (200, entry["request_path_lease_uuid"])


@pytest.mark.parametrize(
    "entry", [one for one in VECTORS["reject"] if one["variant"] == "access"], ids=lambda entry: entry["id"]
)
def test_ta1_refused_vectors_are_401(entry, ask, at, lease, settings):
    at(entry["now"])
    settings.FRED = settings.FRED.model_copy(update={"bech32_prefix": entry["bech32_prefix"]})
    found = ask("status", path=entry["request_path_lease_uuid"], headers={"Authorization": f"Bearer {entry['token']}"})
    assert (found.status, found.body) == (401, UNAUTHORIZED)
    assert found.raw == b'{"error":"unauthorized","code":401}\n'
    assert set(found.headers) == {"Content-Type"}


def fitting(route, **fields):
    """Headers with a token of the kind that a route takes."""
    return bearer(**{**({"meta_hash": "00" * 32} if route == "data" else {}), **fields})


@pytest.mark.parametrize("route", ROUTES)
def test_no_header_is_401(route, ask, lease):
    found = ask(route, headers={}, body=BODIES.get(route))
    assert (found.status, found.body) == (401, UNAUTHORIZED)


@pytest.mark.parametrize("entry", VECTORS["replay_sequences"], ids=lambda entry: f"TA-4 {entry['id']}")
def test_ta4_a_token_is_good_once_on_checked_routes(entry, ask, at, lease, backends):
    """A restart is another checked route of the same store; `connection` stands for all of them here."""
    backends.one.says(f"/info/{LEASE}", {"host": "h"})
    for step in entry["steps"]:
        at(step["at"])
        route = "status" if step["replay_verdict"] == "not_checked" else "connection"
        found = ask(route, headers={"Authorization": f"Bearer {vector(step['token_of'])['token']}"})
        assert found.status == (401 if step["replay_verdict"] == "used" else 200)


def test_ta5_the_same_token_twice(ask, lease, backends):
    backends.one.says(f"/info/{LEASE}", {"host": "h"})
    headers = bearer()
    assert ask("connection", headers=headers).status == 200
    again = ask("connection", headers=headers)
    assert (again.status, again.body) == (401, UNAUTHORIZED)
    assert backends.one.calls == [f"/info/{LEASE}"]


def test_the_used_token_is_kept_until_no_host_takes_it(ask, at, lease):
    entry = vector("acc-01")
    at(entry["now"])
    ask("connection", headers={"Authorization": f"Bearer {entry['token']}"})
    row = UsedToken.objects.get()
    assert row.key == entry["expect"]["replay_key"]
    assert row.expires_at.timestamp() == 1790000000 + 35


@pytest.mark.django_db(transaction=True)
def test_ta7_of_equal_requests_at_one_moment_one_gets_through(run_in_threads, lease, chain, backends, ask, unlimited):
    backends.one.says(f"/info/{LEASE}", {"host": "h"})
    from django.test import Client

    begun = int(time.time())  # read once: the rounds' tokens differ by their timestamps alone
    for round_ in range(5):
        headers = bearer(timestamp=begun - round_)

        def call(headers=headers):
            return Client().get(f"/v1/leases/{LEASE}/connection", headers=headers).status_code

        assert sorted(run_in_threads(4, call)) == [200, 401, 401, 401]


@pytest.fixture
def without_store(lease):
    """The table of used tokens is gone until the test ends."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE tenants_api_usedtoken RENAME TO away")


@pytest.mark.parametrize("route", ["connection", "restart", "update", "restore"])
def test_ta8_without_the_store_nothing_is_done(route, ask, without_store, backends, chain):
    with connection.cursor() as cursor:
        cursor.execute("SAVEPOINT before")
    found = ask(route, body=BODIES.get(route))
    connections["default"].needs_rollback = False
    with connection.cursor() as cursor:
        cursor.execute("ROLLBACK TO before")
    assert (found.status, found.body) == (503, envelope("service temporarily unavailable", 503))
    assert found.headers["Retry-After"] == "1"
    assert (backends.one.calls, chain.asked) == ([], [])


@pytest.mark.parametrize(("route", "status"), [("status", 200), ("provision", 404), ("logs", 404), ("releases", 404)])
def test_ta8_what_needs_no_store_works_without(route, status, ask, without_store):
    assert ask(route).status == status


def test_ta9_a_failing_request_spends_its_token(ask, chain, watcher):
    chain.fails = True
    headers = bearer()
    found = ask("connection", headers=headers)
    assert (found.status, found.body) == (500, envelope("internal server error", 500))
    assert ask("connection", headers=headers).status == 401


def test_ta11_token_and_path_must_be_the_same_text(ask, lease, chain, backends):
    other = "0190a1b2-c3d4-7e5f-8a9b-ffffffffffff"
    assert ask("status", headers=bearer(lease=other)).status == 401
    assert ask("status", path=LEASE.upper(), headers=bearer(lease=LEASE)).status == 401
    backends.one.holds()
    found = ask("status", path=LEASE.upper())
    assert (found.status, found.body["lease_uuid"]) == (200, LEASE.upper())
    assert backends.one.calls[-1] == f"/provisions/{LEASE}"
    assert Lease.objects.count() == 1


def test_ta11_the_chain_is_asked_for_the_one_form_of_a_lease(ask, chain, watcher):
    chain.add(uuid.UUID(LEASE))
    assert ask("status", path=LEASE.upper()).body["lease_uuid"] == LEASE.upper()
    assert chain.asked == [uuid.UUID(LEASE)]
    assert [str(one.pk) for one in Lease.objects.all()] == [LEASE]


def test_a_token_for_another_lease_is_not_spent(ask, lease):
    ask("connection", headers=bearer(lease="0190a1b2-c3d4-7e5f-8a9b-ffffffffffff"))
    assert not UsedToken.objects.exists()


@pytest.mark.parametrize("path", [f"{{{LEASE}}}", f"urn:uuid:{LEASE}", LEASE.replace("-", "")])
def test_every_spelling_of_a_lease_is_the_same_lease(path, ask, lease):
    found = ask("status", path=path)
    assert (found.status, found.body["lease_uuid"], found.body["state"]) == (200, path, "LEASE_STATE_ACTIVE")


@pytest.mark.parametrize(("rps", "expected"), [(5.0, 401), (0.0, 400)])
def test_ta13_without_a_token_the_form_of_the_path_counts_only_with_the_limiter_off(rps, expected, ask, settings):
    settings.FRED = settings.FRED.model_copy(update={"tenant_rate_limit_rps": rps})
    found = ask("status", path="not-a-uuid", headers={})
    assert found.status == expected
    if expected == 400:
        assert found.body == envelope("invalid lease UUID format", 400)


def test_ta14_a_valid_token_for_no_uuid(ask):
    found = ask("status", path="not-a-uuid")
    assert (found.status, found.body) == (400, envelope("invalid lease UUID format", 400))


@pytest.mark.parametrize(
    ("route", "state", "expected"),
    [
        ("connection", LeaseState.CLOSED, (404, "lease not found or not active")),
        ("connection", LeaseState.PENDING, (404, "lease not found or not active")),
        ("connection", LeaseState.ACTIVE, (403, "forbidden")),
        ("status", LeaseState.CLOSED, (403, "forbidden")),
        ("provision", LeaseState.ACTIVE, (403, "forbidden")),
        ("data", LeaseState.ACTIVE, (403, "forbidden")),
        ("restart", LeaseState.CLOSED, (404, "lease not found or not active")),
        ("restart", LeaseState.ACTIVE, (403, "forbidden")),
        ("update", LeaseState.PENDING, (404, "lease not found or not active")),
        ("restore", LeaseState.PENDING, (403, "forbidden")),
        ("restore", LeaseState.ACTIVE, (403, "forbidden")),
        ("logs", LeaseState.CLOSED, (403, "forbidden")),
        ("releases", LeaseState.CLOSED, (403, "forbidden")),
    ],
)
def test_ta15_a_foreign_lease(route, state, expected, ask, chain, lease):
    Lease.objects.update(chain_state=state, tenant=BOB)
    chain.add(uuid.UUID(LEASE), tenant=BOB, state=state)
    found = ask(route, headers=fitting(route), body=BODIES.get(route))
    assert (found.status, found.body) == (expected[0], envelope(expected[1], expected[0]))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("stored", [True, False])
def test_ta16_a_lease_of_another_provider_is_403(route, stored, ask, chain, lease):
    state = LeaseState.PENDING if route in PENDING_ONLY else LeaseState.ACTIVE
    chain.known[uuid.UUID(LEASE)] = Unknown("another provider's", Doubt.FOREIGN, state)
    if stored:
        Lease.objects.update(provider_uuid="0190a1b2-0000-7000-8000-00000000000b", chain_state=state)
    else:
        Lease.objects.all().delete()
    found = ask(route, headers=fitting(route), body=BODIES.get(route))
    assert (found.status, found.body) == (403, envelope("forbidden", 403))


@pytest.mark.parametrize("state", [LeaseState.PENDING, LeaseState.CLOSED])
@pytest.mark.parametrize("route", ACTIVE_ONLY)
def test_ta15_who_asks_about_an_inactive_lease_of_another_provider_learns_no_more(route, state, ask, chain, watcher):
    chain.known[uuid.UUID(LEASE)] = Unknown("another provider's", Doubt.FOREIGN, state)
    found = ask(route, headers=fitting(route), body=BODIES.get(route))
    assert (found.status, found.body) == (404, envelope("lease not found or not active", 404))


@pytest.mark.parametrize("route", ROUTES)
def test_ta17_a_silent_chain_is_500(route, ask, chain, watcher, backends):
    chain.fails = True
    found = ask(route, headers=fitting(route), body=BODIES.get(route))
    assert (found.status, found.body) == (500, envelope("internal server error", 500))
    assert backends.one.calls == []


def test_a_chain_known_to_be_silent_is_not_asked_again_at_once(ask, chain, watcher):
    chain.fails = True
    assert [ask("status").status for _ in range(3)] == [500, 500, 500]
    assert chain.asked == [uuid.UUID(LEASE), NOBODY]


@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT", "OPTIONS"])
@pytest.mark.parametrize("route", ACCESS)
def test_ta22_another_method_is_405_before_any_token(method, route, ask):
    found = ask(route, headers={}, method=method)
    assert (found.status, found.body) == (405, envelope("method not allowed", 405))
    assert found.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
@pytest.mark.parametrize("route", BODIES)
def test_ta22_what_changes_something_takes_only_post(method, route, ask):
    found = ask(route, headers={}, method=method)
    assert (found.status, found.headers["Allow"]) == (405, "POST")


@pytest.mark.parametrize(
    "path", [f"/v1/leases/{LEASE}/nope", f"/v1/leases/{LEASE}/status/", f"/v1/leases/{LEASE}/info"]
)
def test_ta22_an_unknown_path_is_404(path, client, house):
    found = client.get(path)
    assert (found.status_code, found.json()) == (404, envelope("not found", 404))
    assert "Allow" not in found.headers


def test_a_head_request_spends_the_token(ask, lease, backends):
    backends.one.says(f"/info/{LEASE}", {"host": "h"})
    headers = bearer()
    assert ask("connection", headers=headers, method="HEAD").status == 200
    assert ask("connection", headers=headers).status == 401


def test_an_access_token_opens_no_upload(ask, lease):
    Lease.objects.update(chain_state=LeaseState.PENDING)
    assert ask("data", body=b"x").body == UNAUTHORIZED


@pytest.mark.parametrize("route", [route for route in ROUTES if route != "data"])
def test_a_payload_token_opens_only_the_upload(route, ask, lease):
    assert ask(route, headers=bearer(meta_hash="00" * 32), body=BODIES.get(route)).body == UNAUTHORIZED


@pytest.mark.parametrize("route", ["connection", "restart", "update", "restore"])
def test_ta6_the_other_form_of_a_signature_is_the_same_token(route, ask, lease, backends):
    """Its text differs, its bytes in low-S form don't."""
    first = token()
    fields = json.loads(base64.b64decode(first))
    raw = base64.b64decode(fields["signature"])
    order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
    high = raw[:32] + (order - int.from_bytes(raw[32:])).to_bytes(32)
    fields["signature"] = base64.b64encode(high).decode()
    twin = base64.b64encode(json.dumps(fields).encode()).decode()
    UsedToken.objects.create(key=base64.b64encode(raw).decode(), expires_at=timezone.now() + timedelta(seconds=30))
    assert ask("status", headers={"Authorization": f"Bearer {twin}"}).status == 200
    backends.one.calls.clear()
    for text in (first, twin):
        assert ask(route, headers={"Authorization": f"Bearer {text}"}, body=BODIES.get(route)).body == UNAUTHORIZED
    assert backends.one.calls == []


@pytest.mark.parametrize("route", BODIES)
def test_ta28_a_request_whose_time_ends_while_it_is_let_in_sent_nothing(
    route, ask, lease, chain, backends, monkeypatch
):
    whole = Budget(60, changes=True)
    let_in = lease_route.admit

    def slow(**asked):
        assert whole.end()
        return let_in(**asked)

    monkeypatch.setattr(lease_route, "admit", slow)
    pending = route in PENDING_ONLY
    Lease.objects.update(chain_state=LeaseState.PENDING if pending else LeaseState.ACTIVE, meta_hash=DIGEST)
    chain.add(uuid.UUID(LEASE))
    with spending(whole):
        found = ask(
            route,
            headers=fitting(route, **({"meta_hash": DIGEST.hex()} if route == "data" else {})),
            body=BODIES[route],
        )
    assert (found.status, found.raw) == (503, b'{"error":"request timeout","code":503}')
    assert backends.one.calls == []


def test_ta19_an_oversize_update_without_a_token_is_401(ask, lease):
    assert ask("update", headers={}, body=b"x" * (1_048_576 + 1)).body == UNAUTHORIZED


def test_an_answer_never_shows_another_tenants_address(ask, lease, backends):
    backends.one.holds(tenant=BOB)
    assert ALICE in str(ask("status").body)
    assert BOB not in str(ask("status").body)


@pytest.mark.parametrize("route", ["status", "provision"])
@pytest.mark.parametrize("status", ["ready", "failed", "retained"])
def test_p37_the_tenant_of_a_backends_row_is_in_no_answer(route, status, ask, lease, backends):
    placed(lease)
    backends.one.holds(tenant=BOB, status=status, reason="Internal", message="it died", fail_count=1)
    found = ask(route)
    assert found.status == 200
    assert status in found.raw.decode()
    assert BOB not in found.raw.decode()
