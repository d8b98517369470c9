"""The claim of a key: ended by whatever its run came to, waited for, kept, and stored together with what was done."""

import hashlib
import threading
from datetime import timedelta
from types import SimpleNamespace
from uuid import uuid4

import pytest
from django.db import DatabaseError
from django.http import HttpResponse
from django.utils import timezone

from leases.models import Payload
from tenants_api import command_answers, idempotency, idempotency_sql
from tenants_api.errors import ApiError
from tenants_api.models import IdempotencyKey, TenantRequest
from tests.tenants_api.calls import token
from tests.tenants_api.restores.keys import REPLAYED, age, counted, in_threads
from tests.tenants_api.restores.restoring import ROWS, any_key
from tests.tenants_api.vectors import ALICE

pytestmark = ROWS


def call_of(target, body=b"{}"):
    """A request that was let in, without a route."""
    request = SimpleNamespace(
        method="POST", path=f"/v1/leases/{target}/restart", META={}, scope={"headers": [(b"idempotency-key", b"k")]}
    )
    return SimpleNamespace(
        request=request,
        token=SimpleNamespace(tenant=ALICE),
        lease_uuid=target,
        name="restart",
        body=lambda *, otherwise: body,
    )


@pytest.mark.parametrize("failure", [ApiError(409, "no"), ValueError("bug"), KeyboardInterrupt()])
def test_whatever_a_run_raises_the_key_is_free_again(transactional_db, failure):
    def raises(_):
        raise failure

    with pytest.raises(type(failure)):
        idempotency.answered(call_of(uuid4()), raises, otherwise=None)
    assert IdempotencyKey.objects.count() == 0


def test_who_waits_in_the_same_process_hears_of_the_end_at_once(transactional_db, monkeypatch):
    lease, running, waiting, go = uuid4(), threading.Event(), threading.Event(), threading.Event()
    monkeypatch.setattr(idempotency, "POLL_S", 30.0)
    monkeypatch.setattr(idempotency, "let_go", waiting.set)

    def work(_):
        running.set()
        assert go.wait(10)
        return HttpResponse(b"", status=202, content_type="application/json")

    def ask(number):
        if number:
            assert running.wait(10)
        return idempotency.answered(call_of(lease), work, otherwise=None)

    threading.Thread(target=lambda: (waiting.wait(10), go.set())).start()
    first, second = in_threads(2, ask)
    assert (first.status_code, second.status_code, second.headers[REPLAYED]) == (202, 202, "true")
    assert second.headers["Content-Length"] == "0"


def test_a_running_request_keeps_its_claim(transactional_db):
    def work(_):
        age(timedelta(seconds=100))
        idempotency._renewals.renew()
        left = IdempotencyKey.objects.get().claim_expires_at - timezone.now()
        assert left > timedelta(seconds=110)
        return HttpResponse(b"", status=202)

    idempotency.answered(call_of(uuid4()), work, otherwise=None)
    age(timedelta(seconds=100))
    before = IdempotencyKey.objects.values().get()
    idempotency._renewals.renew()
    assert IdempotencyKey.objects.values().get() == before


def test_an_answer_kept_in_a_transaction_is_there_with_it_or_not_at_all(restoring, monkeypatch):
    body, key = b"payload", any_key()
    target = restoring.lease(meta_hash=hashlib.sha256(body).digest())

    def upload():
        proof = token("alice", target.pk, meta_hash=hashlib.sha256(body).hexdigest(), timestamp=restoring.began)
        response = restoring.client.post(
            f"/v1/leases/{target.pk}/data",
            body,
            content_type="application/octet-stream",
            headers={"Authorization": f"Bearer {proof}", "Idempotency-Key": key},
        )
        return response.status_code, response.content, response.headers.get(REPLAYED)

    assert upload() == (202, b"", None)
    assert upload() == (202, b"", "true")
    assert list(TenantRequest.objects.values_list("route", "status", "operation_id")) == [("data", 202, None)] * 2
    assert Payload.objects.count() == 1
    Payload.objects.all().delete()
    IdempotencyKey.objects.all().delete()

    def fails(*_, **__):
        raise DatabaseError

    monkeypatch.setattr(idempotency_sql, "finish", fails)
    assert upload()[0] == 500
    assert (Payload.objects.count(), IdempotencyKey.objects.count()) == (0, 0)


def test_a_conflict_of_command_keys_is_counted():
    before = counted("conflict")
    assert command_answers.conflict().status == 409
    assert counted("conflict") == before + 1
