"""The callback route from request to commit: order of the checks, answers, batches, and what 200 promises."""

import asyncio
import base64
import json
import threading
import time
import uuid
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.db import DataError, OperationalError, connection

from fred import signing
from fred.conf import BackendConfig
from leases.models import Lease
from placements import callback_batches, callbacks, callbacks_asgi
from placements.callback_batches import Batcher, NotStored
from placements.callbacks_asgi import PATH, RAW_TARGET, CallbackEndpoint
from placements.models import Callback, Operation
from placements.status import OperationState
from tests import asgi
from tests.factories.placements import OperationFactory
from tests.waiting import wait_until

VECTORS = json.loads((Path(__file__).parents[2] / "fixtures" / "vectors" / "hmac.json").read_text("utf-8"))["vectors"]
LEASE = "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"
SECRET = "a callback secret of this test, of over 32 bytes"
NOW = 1_790_000_000
SAID = json.dumps({"lease_uuid": LEASE, "status": "success"}).encode()


def config(**changes):
    return django_settings.FRED.model_copy(
        update={"callback_secret": type(django_settings.FRED.callback_secret)(SECRET), **changes}
    )


def signed(body, *, query="", secret=SECRET, at=NOW):
    target = f"{PATH}?{query}" if query else PATH
    return {signing.HEADER: signing.sign(secret, timestamp=at, method="POST", target=target, body=body)}


async def post(endpoint, body=SAID, *, query="", headers=None, method="POST"):
    headers = signed(body, query=query) if headers is None else headers
    return await asgi.request(endpoint, method, PATH, body=body, headers=headers, query=query)


class Kept:
    """Applies nothing and remembers everything, one batch after the other."""

    def __init__(self, *outcomes):
        self.batches = []
        self.outcomes = list(outcomes)

    def __call__(self, batch):
        self.batches.append(list(batch))
        outcome = self.outcomes.pop(0) if self.outcomes else set()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome(batch) if callable(outcome) else outcome


def run(work, *, apply=None, **changes):
    """Run `work(endpoint)` on a loop of its own, then close the endpoint."""
    kept = apply or Kept()

    async def main():
        endpoint = CallbackEndpoint(config(**changes), Batcher(kept), clock=lambda: NOW + 2)
        try:
            return await work(endpoint)
        finally:
            await endpoint.close()

    return asyncio.run(main()), kept


def envelope(text, code):
    return {"error": text, "code": code}


@pytest.mark.parametrize(
    "entry",
    [one for one in VECTORS if one["direction"] == "backend_to_fred" and one["verify"]["method"] == "POST"],
    ids=lambda entry: f"TA-91 {entry['id']}",
)
def test_ta91_the_vectors(entry):
    verify = entry["verify"]
    path, _, query = verify["request_target"].partition("?")
    body = base64.b64decode(verify["body_base64"])

    async def work():
        kept = Kept()
        endpoint = CallbackEndpoint(
            config(
                callback_secret=type(django_settings.FRED.callback_secret)(verify["secret"]),
                callback_canonical_path_prefix=verify["canonical_path_prefix"],
            ),
            Batcher(kept),
            clock=lambda: verify["now"],
        )

        async def with_target(scope, receive, send):
            await endpoint({**scope, RAW_TARGET: verify["request_target"].encode()}, receive, send)

        headers = {} if verify["header_value"] is None else {signing.HEADER: verify["header_value"]}
        answer = await asgi.request(with_target, "POST", path, body=body, headers=headers, query=query)
        await endpoint.close()
        return answer, kept

    answer, kept = asyncio.run(work())
    if entry["expect"]["verdict"] == "reject":
        assert (answer.status, answer.json()) == (401, entry["expect"]["body"])
        assert kept.batches == []
    elif entry["id"] in {"cb-08", "cb-09"}:
        assert (answer.status, answer.json()) == (400, envelope("invalid request body", 400))
    else:
        assert (answer.status, answer.body, len(kept.batches)) == (200, b"", 1)


def test_200_has_no_body_and_says_so():
    answer, kept = run(post)
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers == {"content-type": "application/json", "content-length": "0"}
    assert str(kept.batches[0][0].lease_uuid) == LEASE


def test_ta98_the_prefix_is_part_of_what_was_signed():
    headers = {
        signing.HEADER: signing.sign(
            SECRET, timestamp=NOW, method="POST", target="/api/fred/callbacks/provision", body=SAID
        )
    }
    prefix = {"callback_canonical_path_prefix": "/api/fred"}
    assert run(lambda endpoint: post(endpoint, headers=headers), **prefix)[0].status == 200
    assert run(post, **prefix)[0].status == 401


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_ta22_another_method(method):
    answer, _ = run(lambda endpoint: post(endpoint, method=method))
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


def test_ta92_without_any_key():
    empty = type(django_settings.FRED.callback_secret)("")
    answer, _ = run(post, callback_secret=empty)
    assert (answer.status, answer.json()) == (503, envelope("service not configured", 503))


@pytest.mark.parametrize(
    ("body", "query", "text"),
    [
        (b"{", "", "invalid request body"),
        (b'{"status":"success"}', "", "lease_uuid is required"),
        (b'{"lease_uuid":"x"}', "", "lease_uuid must be a valid UUID"),
        (SAID.replace(b"success", b"done"), "", "status must be 'success', 'failed', or 'deprovisioned'"),
        (SAID, "operation_id=x", "operation_id must be a single canonical UUIDv4"),
        (SAID, "%zz", "callback query is malformed"),
    ],
)
def test_lc53_lc54_ta92_what_is_wrong_is_said_only_after_the_signature(body, query, text):
    answer, kept = run(lambda endpoint: post(endpoint, body, query=query))
    assert (answer.status, answer.json(), kept.batches) == (400, envelope(text, 400), [])
    assert answer.body.endswith(b"}\n")
    answer, _ = run(lambda endpoint: post(endpoint, body, query=query, headers=signed(body, at=1)))
    assert (answer.status, answer.json()) == (401, envelope("unauthorized", 401))


def test_ta92_a_teardown_report_is_taken():
    answer, _ = run(lambda endpoint: post(endpoint, SAID.replace(b"success", b"deprovisioned")))
    assert answer.status == 200


def deep(levels):
    return SAID[:-1] + b',"x":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def wide(tokens):
    """A body with this many structural tokens."""
    start = SAID[:-1] + b',"x":[' + b"1"  # 1 brace, 5 strings, 3 colons, 2 commas, 1 bracket
    return start + b"," * 0 + b",1" * (tokens - 14) + b"]}"


@pytest.mark.parametrize(
    ("body", "expected"),
    [(deep(16), 200), (deep(17), 401), (wide(256), 200), (wide(257), 401)],
    ids=["16 levels", "17 levels", "256 tokens", "257 tokens"],
)
def test_lc63_limits_hold_also_for_signed_bodies(body, expected):
    assert run(lambda endpoint: post(endpoint, body))[0].status == expected


def long(length):
    return SAID[:-1] + b',"x":"' + b"y" * (length - len(SAID) - 7) + b'"}'


@pytest.mark.parametrize(("length", "expected"), [(1_048_576, 200), (1_048_577, 401)])
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("parts", [1, 3])
def test_lc63_ta29_a_body_over_the_cap(length, expected, declared, parts):
    body = long(length)
    assert len(body) == length
    headers = signed(body) | ({"Content-Length": str(length)} if declared else {})
    step = -(-length // parts)
    pieces = [body[start : start + step] for start in range(0, length, step)]
    answer, _ = run(lambda endpoint: asgi.request(endpoint, "POST", PATH, body=pieces, headers=headers))
    assert answer.status == expected
    assert answer.headers.get("connection") == (None if expected == 200 else "close")


def test_a_missing_header_is_refused_before_the_body_is_read():
    async def work(endpoint):
        sent = []

        async def never():
            raise AssertionError("the body was read")

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": PATH, "raw_path": PATH.encode(), "query_string": b""}
        await endpoint({**scope, "headers": []}, never, send)
        return sent[0]["status"]

    assert run(work)[0] == 401


def test_a_sender_that_goes_away_is_not_stored():
    async def work(endpoint):
        messages = [{"type": "http.request", "body": SAID[:5], "more_body": True}, {"type": "http.disconnect"}]

        async def receive():
            return messages.pop(0)

        async def send(_):
            pass

        headers = [(signing.HEADER.lower().encode(), signed(SAID)[signing.HEADER].encode())]
        scope = {"type": "http", "method": "POST", "path": PATH, "raw_path": PATH.encode(), "query_string": b""}
        await endpoint({**scope, "headers": headers}, receive, send)

    assert run(work)[1].batches == []


def keyed(name, secret, **fields):
    return BackendConfig(name=name, url="http://127.0.0.1:2", hmac_secret=secret, **fields)


OWN, PREVIOUS, OTHER = ("the key of one backend, over 32 bytes", "its key before that, over 32 bytes.", "b" * 40)


@pytest.mark.parametrize(
    ("secret", "status", "senders"),
    [
        (OWN, 200, {"mock-1"}),
        (PREVIOUS, 200, {"mock-1"}),
        (OTHER, 200, {"mock-2"}),
        ("c" * 40, 401, None),
        ("d" * 40, 401, None),
        (SECRET, 200, set()),
    ],
)
def test_a_key_tells_its_backend(secret, status, senders):
    backends = (
        keyed("mock-1", OWN, hmac_secret_previous=PREVIOUS),
        keyed("mock-2", OTHER),
        keyed("mock-3", "c" * 40, fenced=True),
        keyed("mock-4", "d" * 40, contract="current"),
    )
    answer, kept = run(lambda endpoint: post(endpoint, headers=signed(SAID, secret=secret)), backends=backends)
    assert answer.status == status
    if senders is not None:
        assert kept.batches[0][0].senders == senders


def test_a_body_without_identity_when_every_backend_has_one():
    backends = (keyed("mock-4", OWN, contract="current"),)
    answer, _ = run(post, backends=backends)
    assert (answer.status, answer.json()) == (400, envelope("invalid request body", 400))


def test_a_claimed_identity_that_no_backend_has_proved():
    body = SAID[:-1] + b',"backend_storage_id":"5a0f2d54-7a1c-4e0e-9b57-0f5a3e9c1d22"}'
    assert run(lambda endpoint: post(endpoint, body))[0].status == 401


# --- batches


def test_what_arrives_during_a_commit_is_one_batch():
    started, go_on = threading.Event(), threading.Event()

    def first(_):
        started.set()
        assert go_on.wait(10)
        return set()

    async def work(endpoint):
        one = asyncio.create_task(post(endpoint))
        await asyncio.to_thread(started.wait, 10)
        more = [asyncio.create_task(post(endpoint)) for _ in range(50)]
        await asyncio.to_thread(wait_until, lambda: len(endpoint.batcher._waiting) == 50)
        go_on.set()
        return {answer.status for answer in await asyncio.gather(one, *more)}

    statuses, kept = run(work, apply=Kept(first))
    assert statuses == {200}
    assert [len(batch) for batch in kept.batches] == [1, 50]


def test_busy_ones_go_into_the_next_batch(monkeypatch):
    monkeypatch.setattr(callback_batches, "BUSY_PAUSE_S", 0.0)
    answer, kept = run(post, apply=Kept(set, set, lambda _: set()))
    assert (answer.status, len(kept.batches)) == (200, 3)


@pytest.mark.parametrize("error", [OperationalError("gone"), RuntimeError("bug")])
def test_lc62_without_a_commit_there_is_no_200(error):
    answer, kept = run(post, apply=Kept(error))
    assert (answer.status, answer.json()) == (503, envelope("service temporarily unavailable", 503))
    assert len(kept.batches) == 1


def test_a_callback_that_breaks_its_batch_hurts_only_itself():
    def apply(batch):
        if any(callback.error == "poison" for callback in batch):
            raise DataError("no such text")
        return set()

    async def work(endpoint):
        bodies = [
            json.dumps({"lease_uuid": LEASE, "status": "failed", "error": e}).encode() for e in ("a", "poison", "b")
        ]
        return [answer.status for answer in await asyncio.gather(*(post(endpoint, body) for body in bodies))]

    assert run(work, apply=apply)[0] == [200, 503, 200]


def test_no_answer_is_later_than_the_limit(monkeypatch):
    monkeypatch.setattr("placements.callbacks_asgi.ANSWER_WITHIN_S", 0.05)
    go_on = threading.Event()

    def slow(_):
        go_on.wait(10)
        return set()

    async def work(endpoint):
        first = asyncio.create_task(post(endpoint))
        second = asyncio.create_task(post(endpoint))
        statuses = [(await one).status for one in (first, second)]
        go_on.set()
        return statuses

    statuses, _ = run(work, apply=slow)
    assert statuses == [503, 503]


def test_who_gave_up_waiting_is_not_stored_later(monkeypatch):
    monkeypatch.setattr("placements.callbacks_asgi.ANSWER_WITHIN_S", 0.05)
    go_on = threading.Event()

    def slow(_):
        go_on.wait(10)
        return set()

    async def work(endpoint):
        answers = await asyncio.gather(*(post(endpoint) for _ in range(2)), post(endpoint))
        go_on.set()
        return [answer.status for answer in answers]

    kept = Kept(slow)
    monkeypatch.setattr(callback_batches, "BATCH", 1)
    assert run(work, apply=kept)[0] == [503, 503, 503]
    assert len(kept.batches) == 1


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(callback_batches, "MOST_WAITING", 3)

    async def work(endpoint):
        return sorted(answer.status for answer in await asyncio.gather(*(post(endpoint) for _ in range(5))))

    assert run(work)[0] == [200, 200, 200, 503, 503]


def test_after_the_end_nothing_is_taken():
    async def work(endpoint):
        await endpoint.close()
        with pytest.raises(NotStored):
            await endpoint.batcher.store(None, within=1.0)
        return (await post(endpoint)).status

    async def main():
        endpoint = CallbackEndpoint(config(), Batcher(Kept()), clock=lambda: NOW)
        return await work(endpoint)

    assert asyncio.run(main()) == 503


def test_ta96_the_same_signed_request_again_is_answered_and_not_stored():
    async def work(endpoint):
        return [(await post(endpoint)).status for _ in range(2)]

    statuses, kept = run(work)
    assert statuses == [200, 200]
    assert len(kept.batches) == 1


def test_ta96_a_request_that_was_not_stored_is_not_remembered():
    async def work(endpoint):
        return [(await post(endpoint)).status for _ in range(2)]

    assert run(work, apply=Kept(OperationalError("gone")))[0] == [503, 200]


def test_ta96_the_same_words_with_a_fresh_signature_are_a_new_report():
    async def work(endpoint):
        return [(await post(endpoint, headers=signed(SAID, at=NOW + n))).status for n in range(2)]

    statuses, kept = run(work)
    assert (statuses, len(kept.batches)) == ([200, 200], 2)


def test_ta96_memory_of_signatures_is_bounded(monkeypatch):
    monkeypatch.setattr(callbacks_asgi, "MOST_REMEMBERED", 2)
    remembered = callbacks_asgi.Remembered()
    for n in range(3):
        remembered.add(b"%d" % n, NOW)
    assert [remembered.has(b"%d" % n, NOW) for n in range(3)] == [False, True, True]
    assert not remembered.has(b"2", NOW + 361)


# --- with the database


@pytest.mark.django_db(transaction=True)
def test_lc59_ta96_five_deliveries_through_three_processes_are_one_effect():
    operation = OperationFactory()
    body = json.dumps({"lease_uuid": str(operation.lease_id), "status": "success"}).encode()

    async def main():
        endpoints = [CallbackEndpoint(config(), clock=lambda: NOW) for _ in range(3)]
        query = f"operation_id={operation.pk}"
        answers = await asyncio.gather(*(post(endpoints[n % 3], body, query=query) for n in range(5)))
        for endpoint in endpoints:
            await endpoint.close()
        return [answer.status for answer in answers]

    assert asyncio.run(main()) == [200] * 5
    assert Callback.objects.count() == 1
    assert Lease.objects.get().epoch == 1
    assert Operation.objects.get().state == OperationState.SUCCEEDED


@pytest.mark.django_db(transaction=True)
def test_lc62_a_lost_connection_is_503_and_the_next_callback_is_stored():
    operation = OperationFactory()
    body = json.dumps({"lease_uuid": str(operation.lease_id), "status": "success"}).encode()
    kills = iter([True, False])

    def apply(batch):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            pid = cursor.fetchone()[0]
        if next(kills):
            killer = connection.copy()
            with killer.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
            killer.close()
        return callbacks.apply(batch)

    async def work(endpoint):
        query = f"operation_id={operation.pk}"
        return [(await post(endpoint, body, query=query)).status for _ in range(2)]

    assert run(work, apply=apply)[0] == [503, 200]
    assert Operation.objects.get().state == OperationState.SUCCEEDED


@pytest.mark.django_db(transaction=True)
def test_ta93_ta95_a_callback_of_an_unknown_lease_needs_neither_chain_nor_backend():
    body = json.dumps({"lease_uuid": str(uuid.uuid4()), "status": "success"}).encode()
    answer, _ = run(lambda endpoint: post(endpoint, body), apply=callbacks.apply)
    assert answer.status == 200
    assert Lease.objects.get().due_at is not None


@pytest.mark.django_db(transaction=True)
def test_many_callbacks_of_many_leases_land_in_few_transactions():
    operations = OperationFactory.create_batch(300)
    batches = []

    def apply(batch):
        batches.append(len(batch))
        return callbacks.apply(batch)

    async def work(endpoint):
        def one(operation):
            body = json.dumps({"lease_uuid": str(operation.lease_id), "status": "success"}).encode()
            return post(endpoint, body, query=f"operation_id={operation.pk}")

        started = time.monotonic()
        answers = await asyncio.gather(*(one(operation) for operation in operations))
        return {answer.status for answer in answers}, time.monotonic() - started

    (statuses, seconds), _ = run(work, apply=apply)
    assert statuses == {200}
    assert sum(batches) == 300
    assert len(batches) < 10
    assert seconds < 5
    assert Operation.objects.filter(state=OperationState.SUCCEEDED).count() == 300
