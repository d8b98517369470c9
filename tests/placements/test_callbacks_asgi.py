"""The callback route up to the commit: order of the checks, caps, keys, answers."""

import asyncio
import base64
import json
from pathlib import Path

import pytest
from django.conf import settings as django_settings

from fred import signing
from placements.callback_batches import Batcher
from placements.callbacks_asgi import PATH, RAW_TARGET, CallbackEndpoint
from tests import asgi
from tests.placements.callback_posts import (
    LEASE,
    NOW,
    OTHER,
    OWN,
    PREVIOUS,
    SAID,
    SECRET,
    Kept,
    config,
    envelope,
    keyed,
    post,
    run,
    signed,
)

VECTORS = json.loads((Path(__file__).parents[2] / "fixtures" / "vectors" / "hmac.json").read_text("utf-8"))["vectors"]


@pytest.mark.parametrize(
    "entry",
    [one for one in VECTORS if one["direction"] == "backend_to_fred" and one["verify"]["method"] == "POST"],
    ids=lambda entry: f"TA-91 {entry['id']}",
)
def test_ta91_the_vectors(entry):
    """BC-80"""
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
    """P25, BC-80, BC-81, BC-82, BC-83"""
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
    """BC-87"""
    assert run(lambda endpoint: post(endpoint, body))[0].status == expected


def long(length):
    return SAID[:-1] + b',"x":"' + b"y" * (length - len(SAID) - 7) + b'"}'


@pytest.mark.parametrize(("length", "expected"), [(1_048_576, 200), (1_048_577, 401)])
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("parts", [1, 3])
def test_lc63_ta29_a_body_over_the_cap(length, expected, declared, parts):
    """BC-87"""
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
    """BC-86"""
    body = SAID[:-1] + b',"backend_storage_id":"5a0f2d54-7a1c-4e0e-9b57-0f5a3e9c1d22"}'
    assert run(lambda endpoint: post(endpoint, body))[0].status == 401
