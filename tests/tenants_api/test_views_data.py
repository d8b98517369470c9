"""The payload upload: order of its checks, one winner, nothing half stored."""

import hashlib
import threading
import time

import pytest
from django.db import OperationalError, connection, connections, transaction

from fred import metrics
from fred.budget import Budget, spending
from leases import payloads, sql
from leases.models import Lease, Payload
from leases.status import LeaseState
from tenants_api.models import IdempotencyKey
from tests.tenants_api.calls import bearer, envelope
from tests.tenants_api.vectors import LEASE, VECTORS

pytestmark = pytest.mark.django_db
BODY = VECTORS["payload_text"].encode()
DIGEST = hashlib.sha256(BODY).digest()


@pytest.fixture
def pending(lease):
    """Lease L, PENDING, waiting for the payload of the vectors."""
    Lease.objects.update(chain_state=LeaseState.PENDING, meta_hash=DIGEST)
    return lease


@pytest.fixture
def upload(ask):
    """`upload(body)`: send it with a fresh payload token, perhaps under a key."""

    def send(body=BODY, key=None, **fields):
        named = {} if key is None else {"Idempotency-Key": key}
        return ask("data", headers={**bearer(**{"meta_hash": DIGEST.hex(), **fields}), **named}, body=body)

    return send


def test_ta58_a_good_upload_is_kept_and_its_lease_looked_at(upload, pending):
    found = upload()
    assert (found.status, found.raw) == (202, b"")
    assert found.headers["Content-Length"] == "0"
    assert found.headers["Content-Type"] == "application/json"
    row = Payload.objects.get()
    assert (bytes(row.body), bytes(row.sha256), row.state) == (BODY, DIGEST, "current")
    woken = Lease.objects.get()
    assert (woken.epoch, woken.due_at is None) == (1, False)


def test_ta59_lc16_the_second_upload_is_a_conflict_and_wakes_nobody(upload, pending):
    upload()
    found = upload()
    assert (found.status, found.body) == (409, envelope("payload already received", 409))
    assert Lease.objects.get().epoch == 1


@pytest.mark.django_db(transaction=True)
def test_lc16_of_two_uploads_at_one_moment_one_wins(run_in_threads, pending, house, chain):
    from django.test import Client

    headers = bearer(meta_hash=DIGEST.hex())

    def send():
        url = f"/v1/leases/{LEASE}/data"
        return Client().post(url, BODY, content_type="application/octet-stream", headers=headers).status_code

    assert sorted(run_in_threads(4, send)) == [202, 409, 409, 409]
    assert Payload.objects.count() == 1
    assert Lease.objects.get().epoch == 1


@pytest.mark.parametrize(
    ("change", "fields", "body", "expected"),
    [
        ({"chain_state": LeaseState.ACTIVE}, {}, BODY, (404, "lease not pending")),
        ({"chain_state": LeaseState.CLOSED}, {}, BODY, (404, "lease not pending")),
        ({"chain_state": LeaseState.ACTIVE, "meta_hash": b""}, {}, BODY, (404, "lease not pending")),
        ({"meta_hash": b""}, {}, BODY, (400, "lease does not expect payload")),
        ({"meta_hash": bytes(32)}, {}, BODY, (401, "unauthorized")),
        ({}, {"meta_hash": "00" * 32}, BODY, (401, "unauthorized")),
        ({}, {}, b"", (400, "payload is empty")),
        ({}, {}, BODY + b" ", (400, "payload hash does not match meta_hash")),
        ({}, {"meta_hash": DIGEST.hex().upper()}, BODY, (202, None)),
    ],
)
def test_ta60_the_order_of_refusals(change, fields, body, expected, upload, pending):
    Lease.objects.update(**change)
    found = upload(body, **fields)
    assert (found.status, found.body) == (expected[0], expected[1] and envelope(expected[1], expected[0]))
    assert Payload.objects.exists() == (expected[0] == 202)


def test_a_lease_the_chain_does_not_know(upload, watcher):
    found = upload()
    assert (found.status, found.body) == (404, envelope("lease not found", 404))


@pytest.mark.parametrize("length", [31, 64])
def test_lc22_a_hash_of_another_length_is_met_by_no_upload(length, upload, pending):
    Lease.objects.update(meta_hash=bytes(length))
    assert upload().status == 401
    with pytest.raises(payloads.HashMismatch):
        payloads.store(pending.pk, BODY, expected=bytes(length))
    assert not Payload.objects.exists()


@pytest.fixture
def fails():
    """No payload can be committed, until the function is called."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'disk full'; END $$;
            CREATE CONSTRAINT TRIGGER fails AFTER INSERT ON leases_payload
                DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fails();
            """
        )

    def mend():
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER IF EXISTS fails ON leases_payload; DROP FUNCTION IF EXISTS fails()")

    yield mend
    mend()


@pytest.mark.django_db(transaction=True)
def test_ta61_ta62_when_the_commit_fails_nothing_is_there_and_a_later_upload_succeeds(upload, pending, fails):
    found = upload()
    assert (found.status, found.body) == (500, envelope("internal server error", 500))
    assert not Payload.objects.exists()
    assert Lease.objects.get().epoch == 0
    fails()
    assert upload().status == 202


@pytest.mark.django_db(transaction=True)
def test_a_named_upload_whose_commit_fails_runs_again(upload, pending, fails):
    assert upload(key="k1").status == 500
    assert not IdempotencyKey.objects.exists()
    fails()
    assert "Idempotency-Replayed" not in upload(key="k1").headers


def test_a_named_upload_is_answered_alike_ever_after(upload, pending):
    first, again = upload(key="k1"), upload(key="k1", timestamp=int(time.time()) - 1)
    assert (first.status, again.status, again.raw) == (202, 202, b"")
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.headers["Content-Length"] == "0"
    assert upload(key="k2").body == envelope("payload already received", 409)
    assert Lease.objects.get().epoch == 1


def test_the_answer_of_a_name_outlives_the_state_of_its_lease(upload, pending):
    upload(key="k1")
    Lease.objects.update(chain_state=LeaseState.ACTIVE)
    assert (upload(key="k1").status, upload(key="k2").status) == (202, 404)


def test_a_name_of_another_upload_is_refused(upload, pending):
    upload(key="k1")
    other = upload(BODY + b" ", key="k1")
    assert (other.status, other.body) == (422, envelope("idempotency key was used with a different request", 422))


def test_ta28_an_upload_whose_caller_was_told_that_nothing_happened_stores_nothing(upload, pending, monkeypatch):
    """Its time ends while the chain is asked."""
    from tenants_api import lease_reads

    whole = Budget(60, changes=True)
    read = lease_reads.current

    def slow(*args, **options):
        assert whole.end()
        return read(*args, **options)

    monkeypatch.setattr(lease_reads, "current", slow)
    with spending(whole):
        found = upload(key="k1")
    assert (found.status, found.raw) == (503, b'{"error":"request timeout","code":503}')
    assert not Payload.objects.exists()
    assert not IdempotencyKey.objects.exists()


@pytest.mark.parametrize("key", ["", "a b", "x" * 256])
def test_ta109_a_bad_name(key, upload, pending):
    found = upload(key=key)
    assert (found.status, found.body) == (400, envelope("invalid idempotency key", 400))
    assert not Payload.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_lock_that_is_held_for_too_long_is_no_failed_upload(upload, pending, monkeypatch):
    """Somebody else holds the lease's row until the first try has given up."""
    gave_up, held = threading.Event(), threading.Event()

    def hold():
        with transaction.atomic():
            Lease.objects.select_for_update().get()
            held.set()
            gave_up.wait(10)
        connections.close_all()

    tried = sql.lock_or_stub

    def lock(*args, **options):
        try:
            return tried(*args, **options)
        except OperationalError:
            gave_up.set()
            holder.join(10)
            raise

    monkeypatch.setattr(sql, "lock_or_stub", lock)
    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(10)
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = 50")
    try:
        assert upload().status == 202
    finally:
        connection.close()
    assert gave_up.is_set()
    assert Payload.objects.count() == 1


def test_ta63_a_payload_token_is_never_used_up(ask, pending):
    Lease.objects.update(chain_state=LeaseState.ACTIVE)
    headers = bearer(meta_hash=DIGEST.hex())
    assert [ask("data", headers=headers, body=BODY).status for _ in range(3)] == [404, 404, 404]


def test_ta29_a_body_over_the_cap(upload, pending, house):
    house.FRED = house.FRED.model_copy(update={"max_request_body_size": len(BODY) - 1})
    found = upload()
    assert (found.status, found.body) == (400, envelope("failed to read request body", 400))
    assert found.headers["Connection"] == "close"


def test_ta29_a_body_over_the_cap_of_the_framework(upload, pending, house):
    house.DATA_UPLOAD_MAX_MEMORY_SIZE = len(BODY) - 1
    found = upload()
    assert (found.status, found.body) == (400, envelope("failed to read request body", 400))


def test_ta19_without_a_token_the_size_does_not_matter(ask, pending, house):
    house.FRED = house.FRED.model_copy(update={"max_request_body_size": 1})
    assert ask("data", headers={}, body=BODY).status == 401


@pytest.mark.parametrize(
    ("body", "fields", "outcome"),
    [
        (BODY, {}, "success"),
        (BODY + b" ", {}, "hash_mismatch"),
        (BODY, {"timestamp": 1}, "invalid_auth"),
        (BODY, {"meta_hash": "00" * 32}, "invalid_auth"),
    ],
)
def test_each_outcome_is_counted(body, fields, outcome, upload, pending):
    counter = metrics.PAYLOAD_UPLOADS.labels(outcome=outcome)
    before = counter._value.get()
    upload(body, **fields)
    assert counter._value.get() == before + 1


def test_a_form_is_taken_as_bytes(client, pending, house, chain):
    found = client.post(
        f"/v1/leases/{LEASE}/data",
        BODY,
        content_type="multipart/form-data; boundary=x",
        headers=bearer(meta_hash=DIGEST.hex()),
    )
    assert found.status_code == 202
