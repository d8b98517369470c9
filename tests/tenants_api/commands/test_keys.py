"""Which keys may, must or must not come with a restart or update, and what other keys than command keys do."""

import io
import json
import threading
import time
from datetime import timedelta

import pytest
from django.core.handlers.asgi import ASGIRequest
from django.db import connection
from django.test import Client
from django.utils import timezone
from structlog.testing import capture_logs

from fred import metrics
from placements.models import MaintenanceCommand
from tenants_api import command_keys, commands, tokens
from tenants_api.models import IdempotencyKey
from tests.scripted_backend import Hang
from tests.tenants_api.calls import PROVIDER, bearer, envelope
from tests.tenants_api.commands.named import K1
from tests.tenants_api.vectors import ALICE, BOB, LEASE, vector
from tests.waiting import wait_until

ONCE = envelope("Idempotency-Key header must occur exactly once", 400)
CANONICAL = envelope("Idempotency-Key must be a canonical UUIDv4", 400)
ODD = [K1.upper(), K1.replace("-", ""), "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b", f"{{{K1}}}", f"{K1} "[:36].upper()]
NEW = b"the new manifest"


@pytest.fixture
def keys_are_required(settings, backend):
    """`keys_are_required(ALICE)`: from now on, of all but the listed tenants."""

    def require(*listed):
        changes = {"maintenance_require_idempotency_key": True, "maintenance_legacy_idempotency_tenants": listed}
        settings.FRED = settings.FRED.model_copy(update=changes)

    return require


def ask_twice(headers, route="restart"):
    """Ask over ASGI with these headers, which may be several of one name."""
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers]
    scope = {
        "type": "http",
        "method": "POST",
        "path": f"/v1/leases/{LEASE}/{route}",
        "query_string": b"",
        "headers": pairs,
    }
    response = getattr(commands, route)(ASGIRequest(scope, io.BytesIO()), LEASE)
    return response.status_code, json.loads(response.content)


def test_ta120_a_bad_header_costs_no_token(ask, lease, backend, keys_are_required):
    headers = bearer()
    authorization = ("Authorization", headers["Authorization"])
    for required in (False, True):
        if required:
            keys_are_required()
            for odd in ODD:
                assert ask("restart", headers=headers, key=odd).body == CANONICAL
            assert ask("restart", headers=headers).body == ONCE
        assert ask("restart", headers=headers, key="").body == ONCE
        assert ask_twice([authorization, ("Idempotency-Key", K1), ("Idempotency-Key", K1)]) == (400, ONCE)
        assert ask_twice([authorization, ("Idempotency-Key", "")], "update") == (400, ONCE)
    assert backend.seen == []
    assert ask("restart", headers=headers, key=K1).status == 202


def test_ta121_listed_tenants_may_leave_the_key_out(ask, lease, make_lease, backend, keys_are_required):
    keys_are_required(ALICE)
    counter = metrics.MAINTENANCE_LEGACY_KEYS._value
    before, headers = counter.get(), bearer()
    with capture_logs() as lines:
        assert ask("restart", headers=headers).status == 202
    assert counter.get() == before + 1
    assert [line["tenant"] for line in lines if line["event"] == "command.without_key"] == [ALICE]
    assert ask("restart", headers=headers).body == envelope("unauthorized", 401)
    assert ask("restart").status == 202
    ids = MaintenanceCommand.objects.values_list("maintenance_id", flat=True)
    assert len(set(ids)) == 2
    assert {id_.version for id_ in ids} == {4}
    bobs = "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5c"
    make_lease(bobs, tenant=BOB)
    spent = bearer("bob", bobs)
    assert ask("restart", path=bobs, headers=spent).body == ONCE
    assert ask("restart", path=bobs, headers=spent, key=K1).body == envelope("unauthorized", 401)
    unspent = bearer(timestamp=int(time.time()) - 20)
    assert ask("restart", headers=unspent, key="no-uuid").body == CANONICAL
    assert ask("restart", headers=unspent, key=K1).status == 202


def test_ta122_the_name_of_a_command_without_a_key(settings):
    settings.FRED = settings.FRED.model_copy(update={"provider_uuid": PROVIDER})
    found = vector("acc-01")
    token = tokens.access_token(found["token"], prefix=found["bech32_prefix"], now=found["now"])
    assert str(command_keys.derived_id(token, "restart")) == "979b9b41-bf74-41a0-b6b0-7aac430b1e23"
    assert str(command_keys.derived_id(token, "update")) == "22658cfc-8a29-498c-a2b4-26b485d3a152"


def test_ta102_another_key_is_replayed_for_a_day(ask, lease, backend):
    first, second = ask("restart", key="k1"), ask("restart", key="k1")
    assert (first.status, first.replayed) == (202, None)
    assert (second.status, second.replayed, second.raw) == (202, "true", first.raw)
    assert backend.routes() == ["restart"]
    command = MaintenanceCommand.objects.get()
    assert (command.keyed, command.maintenance_id) == (False, IdempotencyKey.objects.get().operation_id)


def test_ta103_another_key_with_another_body_is_422(ask, lease, backend):
    assert ask("update", key="k1", payload=NEW).status == 202
    text = "idempotency key was used with a different request"
    assert ask("update", key="k1", payload=b"others").body == envelope(text, 422)
    assert backend.routes() == ["update"]


def test_ta105_a_refusal_is_forgotten_and_runs_again_under_another_name(ask, lease, backend):
    backend.script["restart"].append((409, b""))
    assert ask("restart", key="k1").body == envelope("invalid state for restart", 409)
    again = ask("restart", key="k1")
    assert (again.status, again.replayed, len(backend.routes())) == (202, None, 2)
    assert len(set(MaintenanceCommand.objects.values_list("maintenance_id", flat=True))) == 2


def test_ta104_twenty_requests_with_one_key_are_one_call(lease, backend, run_in_threads):
    moments = iter(range(20))
    now = int(time.time())
    hang = Hang()
    backend.script["restart"].append(hang)

    def call():
        headers = {**bearer(timestamp=now + 8 - next(moments)), "Idempotency-Key": "k1"}
        return Client().post(f"/v1/leases/{LEASE}/restart", headers=headers)

    letting_go = threading.Thread(target=lambda: (wait_until(backend.routes), hang.release()))
    letting_go.start()
    answers = run_in_threads(20, call)
    letting_go.join(10)
    assert {(one.status_code, one.content) for one in answers} == {(202, b'{"status":"restarting"}\n')}
    assert sum("Idempotency-Replayed" in one.headers for one in answers) == 19
    assert backend.routes() == ["restart"]


def test_ta106_whoever_takes_a_key_over_joins_the_command_that_its_holder_left(ask, lease, backend):
    assert ask("restart", key="k1").status == 202
    command = MaintenanceCommand.objects.get()
    # As a process leaves it that is killed before it stores its answer, when its claim has run out.
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE tenants_api_idempotencykey SET state = 'in_progress', status = NULL, claim_expires_at = %s",
            [timezone.now() - timedelta(seconds=1)],
        )
    again = ask("restart", key="k1")
    assert (again.status, again.replayed, backend.routes()) == (202, None, ["restart"])
    kept = MaintenanceCommand.objects.get()
    assert (kept.maintenance_id, kept.admitted_at) == (command.maintenance_id, command.admitted_at)


def test_ta108_a_key_is_of_one_lease_and_tenant(ask, lease, make_lease, backend):
    bobs = "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5c"
    make_lease(bobs, tenant=BOB)
    assert ask("restart", key="k1").replayed is None
    assert ask("restart", "bob", path=bobs, key="k1").replayed is None
    assert [one.lease for one in backend.seen] == [LEASE, bobs]


def test_a_malformed_key_is_400(ask, lease, backend):
    for key in ("k" * 256, "a b"):
        assert ask("restart", key=key).body == envelope("invalid idempotency key", 400)
    assert backend.seen == []
