"""Requests named by an Idempotency-Key: one effect, one stored answer, and nobody blocked by who died."""

import hashlib
import json
import threading
import time
from datetime import timedelta
from types import SimpleNamespace
from uuid import uuid4

import pytest
from django.db import DatabaseError, connection
from django.test import Client
from django.utils import timezone

from leases.models import Lease
from leases.status import LeaseState
from placements import transitions
from placements.models import Operation, Placement
from placements.status import OperationState
from reconciliation import cleaning
from tenants_api import idempotency, idempotency_sql
from tenants_api.errors import ApiError
from tenants_api.models import IdempotencyKey, TenantRequest
from tests.factories.placements import OperationFactory
from tests.scripted_backend import Hang, Reset
from tests.tenants_api.restores.keys import REPLAYED, age, counted, in_threads
from tests.tenants_api.restores.restoring import ROWS, any_key, error
from tests.tenants_api.vectors import ALICE, BOB
from tests.waiting import wait_until

pytestmark = ROWS
S = OperationState
BAD_KEY = error("invalid idempotency key", 400)
MISMATCH = error("idempotency key was used with a different request", 422)
RUNNING = error("a request with this idempotency key is still being processed", 409)


def test_ta104_of_twenty_requests_with_one_key_one_runs_and_all_get_its_answer(restoring):
    source, target, key = restoring.source(), restoring.lease(), any_key()
    hang = Hang()
    restoring.backend.script["restore"].append(hang)
    claimed, replayed = counted("claimed"), counted("replayed")
    threading.Thread(target=lambda: (wait_until(restoring.posts), hang.release())).start()
    headers = [restoring.token("alice", target.pk) for _ in range(20)]
    found = in_threads(20, lambda n: restoring.ask(target, source, key=key, client=Client(), headers=headers[n]))
    assert {(one.status, one.raw) for one in found} == {(202, b'{"status":"provisioning"}\n')}
    assert sorted(one.headers.get(REPLAYED, "") for one in found) == [""] + ["true"] * 19
    assert {one.headers["Content-Type"] for one in found} == {"application/json"}
    assert len(restoring.posts()) == Operation.objects.count() == 1
    row = IdempotencyKey.objects.get()
    assert (row.state, row.status, row.attempt) == ("done", 202, 1)
    assert row.operation_id == Operation.objects.get().pk
    assert (counted("claimed") - claimed, counted("replayed") - replayed) == (1, 19)


def test_ta102_ta107_a_repeat_gets_the_stored_answer_whatever_became_of_the_lease(restoring):
    source, target, key = restoring.source(), restoring.lease(), any_key()
    first = restoring.ask(target, source, key=key)
    Lease.objects.filter(pk=target.pk).update(chain_state=LeaseState.ACTIVE)
    again = restoring.ask(target, source, key=key)
    assert (again.status, again.raw, again.headers[REPLAYED]) == (202, first.raw, "true")
    assert REPLAYED not in first.headers
    assert len(restoring.posts()) == 1
    assert [one.operation_id for one in TenantRequest.objects.order_by("id")] == [Operation.objects.get().pk, None]


def test_ta103_another_body_under_the_key_is_422_and_reaches_nobody(restoring):
    source, target, key = restoring.source(), restoring.lease(), any_key()
    restoring.ask(target, source, key=key)
    found = restoring.ask(target, restoring.source(), key=key)
    assert (found.status, found.body) == (422, MISMATCH)
    assert len(restoring.posts()) == 1
    problem = restoring.ask(target, restoring.source(), key=key, headers={"Accept": "application/problem+json"})
    assert problem.body["error_code"] == "idempotency_key_mismatch"


def test_ta105_a_refusal_is_forgotten_and_the_repeat_is_another_operation(restoring):
    source, target, key = restoring.source(), restoring.lease(), any_key()
    restoring.backend.script["restore"].append((422, b""))
    assert restoring.ask(target, source, key=key).status == 404
    assert IdempotencyKey.objects.count() == 0
    assert restoring.ask(target, source, key=key).status == 202
    urls = [body["callback_url"] for body in restoring.posts()]
    assert len(set(urls)) == 2


def test_an_unknown_outcome_is_forgotten_too_and_the_lease_stays_in_flight(restoring):
    source, target, key = restoring.source(), restoring.lease(), any_key()
    restoring.backend.script["restore"].append(Reset)
    assert restoring.ask(target, source, key=key).status == 500
    again = restoring.ask(target, source, key=key)
    assert (again.status, again.body["reason"]) == (409, "target_busy")


def held(target, source, key, *, attempt=1):
    """The claim of a process that runs this request and died."""
    body = json.dumps({"from_lease_uuid": str(source.pk)}).encode()
    scope = idempotency_sql.Scope(ALICE, "POST", f"/v1/leases/{target.pk}/restore", key)
    claim = idempotency_sql.claim(scope, sha256=hashlib.sha256(body).digest(), operation_id=uuid4(), request_id="dead")
    assert claim.attempt == attempt
    return claim


def test_ta106_while_a_killed_holders_claim_lasts_the_repeat_waits_and_then_is_409(restoring, monkeypatch):
    source, target, key = restoring.source(), restoring.lease(), any_key()
    held(target, source, key)
    monkeypatch.setattr(idempotency, "JOIN_S", 0.3)
    began = time.monotonic()
    found = restoring.ask(target, source, key=key)
    assert (found.status, found.body, found.headers["Retry-After"]) == (409, RUNNING, "1")
    assert time.monotonic() - began >= 0.3
    assert restoring.posts() == []
    other = restoring.ask(target, restoring.source(), key=key)
    assert (other.status, other.body) == (422, MISMATCH)


def test_ta106_after_the_claims_end_one_of_many_takes_it_over_with_the_same_operation(restoring):
    source, target, key = restoring.source(), restoring.lease(), any_key()
    dead = held(target, source, key)
    age(timedelta(seconds=121))
    taken_over = counted("taken_over")
    other = restoring.ask(target, restoring.source(), key=key)
    assert (other.status, other.body) == (422, MISMATCH)
    headers = [restoring.token("alice", target.pk) for _ in range(5)]
    found = in_threads(5, lambda n: restoring.ask(target, source, key=key, client=Client(), headers=headers[n]))
    assert {one.status for one in found} == {202}
    assert sum(REPLAYED not in one.headers for one in found) == 1
    assert Operation.objects.get().pk == dead.operation_id
    assert counted("taken_over") - taken_over == 1
    before = IdempotencyKey.objects.values().get()
    assert before["attempt"] == 2
    idempotency_sql.finish(dead, status=200, content_type="text/plain", body=b"late")
    idempotency_sql.release(dead)
    idempotency_sql.renew([dead])
    assert IdempotencyKey.objects.values().get() == before


EARLIER = [
    ({"state": S.ACCEPTED}, 202, {"status": "provisioning"}),
    ({"state": S.SUCCEEDED}, 202, {"status": "provisioning"}),
    ({"state": S.FAILED, "error": "volume broken"}, 202, {"status": "provisioning"}),
    ({"state": S.FAILED, "refusal": "callback_timeout"}, 500, error("internal server error", 500)),
    ({"state": S.IN_DOUBT}, 500, error("internal server error", 500)),
    (
        {"state": S.REFUSED, "refusal": "not_retained"},
        404,
        error("no retained data found for that lease", 404),
    ),
    (
        {"state": S.REFUSED, "refusal": "demote_exceeds_tier", "error": "too big"},
        422,
        error("too big", 422),
    ),
    ({"state": S.REFUSED, "refusal": "unknown_sku", "error": "unknown SKU"}, 400, error("unknown SKU", 400)),
    ({"state": S.REFUSED, "refusal": "already_provisioned"}, 409, error("lease already provisioned", 409)),
    (
        {"state": S.REFUSED, "refusal": "insufficient_resources"},
        503,
        error("insufficient resources to restore", 503),
    ),
    (
        {"state": S.ENDED, "refusal": "not_sent"},
        503,
        error("restore backend is temporarily unavailable", 503),
    ),
    (
        {"state": S.ENDED, "refusal": "lease_ended"},
        409,
        error("lease is not pending; only a fresh lease can be restored into", 409, "target_not_pending"),
    ),
]


def test_ta106_a_run_after_a_take_over_answers_as_the_broken_off_one_would_have(restoring, monkeypatch):
    monkeypatch.setattr("tenants_api.lease_route.WAIT_S", 0.3)
    for fields, status, body in EARLIER:
        source, target, key = restoring.source(), restoring.lease(), any_key()
        dead = held(target, source, key)
        OperationFactory(
            id=dead.operation_id, lease=target, kind="restore", source_lease=source, backend_id="docker-1", **fields
        )
        age(timedelta(seconds=121))
        Lease.objects.filter(pk=target.pk).update(chain_state=LeaseState.ACTIVE)
        found = restoring.ask(target, source, key=key)
        assert (found.status, found.body) == (status, body), fields
    assert restoring.posts() == []


def test_ta106_a_run_after_a_take_over_waits_for_what_a_worker_sends_meanwhile(restoring):
    source, target, key = restoring.source(), restoring.lease(), any_key()
    dead = held(target, source, key)
    operation = OperationFactory(
        id=dead.operation_id, lease=target, kind="restore", source_lease=source, backend_id="docker-1", state=S.IN_DOUBT
    )
    age(timedelta(seconds=121))
    answers = []
    waiting = threading.Thread(
        target=lambda: answers.append(
            in_threads(1, lambda _: restoring.ask(target, source, key=key, client=Client()))[0]
        )
    )
    waiting.start()
    wait_until(lambda: IdempotencyKey.objects.filter(attempt=2).exists())
    transitions.move({operation.pk: None}, S.ACCEPTED)
    waiting.join(10)
    assert (answers[0].status, REPLAYED in answers[0].headers) == (202, False)


def test_ta108_a_key_is_its_tenants_own_and_that_of_one_lease_and_route(restoring):
    key = any_key()
    source, target = restoring.source(), restoring.lease()
    assert restoring.ask(target, source, key=key).status == 202
    assert restoring.ask(restoring.lease(), restoring.source(), key=key).status == 202
    of_bob = restoring.lease(tenant=BOB), restoring.source(tenant=BOB)
    found = restoring.ask(*of_bob, who="bob", key=key)
    assert (found.status, REPLAYED in found.headers) == (202, False)
    assert len(restoring.posts()) == 3


@pytest.mark.parametrize("key", ["x" * 256, "a b", "", "a\x7f", "é"])
def test_ta109_keys_of_another_form_are_400(restoring, key):
    found = restoring.ask(restoring.lease(), restoring.source(), key=key)
    assert (found.status, found.body) == (400, BAD_KEY)
    assert restoring.posts() == []


def test_ta109_two_keys_are_400_and_a_comma_is_no_second_key():
    def request(*values):
        return SimpleNamespace(scope={"headers": [(b"host", b"x"), *((b"idempotency-key", one) for one in values)]})

    assert idempotency.key_of(request()) is None
    assert idempotency.key_of(request(b"a,b")) == "a,b"
    assert idempotency.key_of(request(b"x" * 255)) == "x" * 255
    for several in ((b"a", b"a"), (b"", b"")):
        with pytest.raises(ApiError) as refused:
            idempotency.key_of(request(*several))
        assert (refused.value.status, refused.value.text) == (400, "invalid idempotency key")
        assert refused.value.error_code == "idempotency_key_invalid"


def test_ta110_after_a_day_the_request_runs_again(restoring):
    source, target, key = restoring.source(), restoring.lease(), any_key()
    restoring.ask(target, source, key=key)
    age(timedelta(hours=24))
    again = restoring.ask(target, source, key=key)
    assert (again.status, again.body["reason"]) == (409, "target_busy")
    restoring.ask(restoring.lease(), restoring.source(), key=(second := any_key()))
    age(timedelta(hours=23))
    assert IdempotencyKey.objects.filter(key=second).exists()
    age(timedelta(hours=2))
    cleaning.request_rows()
    assert IdempotencyKey.objects.count() == 0


def test_a_body_over_the_cap_claims_nothing(restoring, settings):
    settings.FRED = settings.FRED.model_copy(update={"max_request_body_size": 20})
    found = restoring.ask(restoring.lease(), restoring.source(), key=any_key())
    assert (found.status, found.body) == (400, error("invalid request body", 400))
    assert IdempotencyKey.objects.count() == 0


def test_without_the_table_it_is_503_and_nothing_was_done(restoring):
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE tenants_api_idempotencykey RENAME TO away")
    try:
        found = restoring.ask(restoring.lease(), restoring.source(), key=any_key())
        assert (found.status, found.body) == (503, error("service temporarily unavailable", 503))
        assert restoring.posts() == []
        assert restoring.ask(restoring.lease(), restoring.source()).status == 202
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE away RENAME TO tenants_api_idempotencykey")


def test_when_the_answer_can_not_be_kept_it_is_given_and_the_claim_ends_by_itself(restoring, monkeypatch):
    source, target, key = restoring.source(), restoring.lease(), any_key()

    def fails(*_, **__):
        raise DatabaseError

    with monkeypatch.context() as patched:
        patched.setattr(idempotency_sql, "finish", fails)
        assert restoring.ask(target, source, key=key).status == 202
    assert IdempotencyKey.objects.get().state == "in_progress"
    age(timedelta(seconds=121))
    assert restoring.ask(target, source, key=key).status == 202
    assert len(restoring.posts()) == 1


def test_rows_of_requests_have_an_end_and_a_bound(restoring, monkeypatch, settings):
    for _ in range(4):
        restoring.ask(restoring.lease(), restoring.source(), key=any_key())
    assert TenantRequest.objects.count() == IdempotencyKey.objects.count() == 4
    monkeypatch.setattr(cleaning, "MOST_REQUESTS", 3)
    assert cleaning.request_rows() == 2
    assert TenantRequest.objects.count() == IdempotencyKey.objects.count() == 3
    TenantRequest.objects.update(at=timezone.now() - settings.HOUSE.fred_retention_history - timedelta(hours=1))
    assert cleaning.old_rows()["tenants_api_tenantrequest"] == 3
    assert Placement.objects.exists()
