"""Reading a callback: limits, ids of the URL, meaning; which texts its sender gets."""

import json
import uuid

import pytest

from placements.callback_request import Refused, Selector, limits_hold, parse, read

LEASE = "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"
ID = "4f0c2f6e-0d5a-4a57-9a3b-6f2a1c0b9d8e"
STORAGE = "5a0f2d54-7a1c-4e0e-9b57-0f5a3e9c1d22"


def body(**fields):
    return json.dumps({"lease_uuid": LEASE, "status": "success", **fields}).encode()


def reading(raw, query=b"", *, identity_required=False):
    return read(parse(raw, identity_required=identity_required), raw, query=query)


def refusal(raw, query=b"", *, identity_required=False):
    with pytest.raises(Refused) as refused:
        reading(raw, query, identity_required=identity_required)
    assert refused.value.status == 400
    return refused.value.text


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(b'{"a":"' + b"{" * 1000 + b'"}', True, id="LC-63 inside a string nothing counts"),
        pytest.param(b'{"a":"\\"' + b"[" * 1000 + b'"}', True, id="an escaped quote ends no string"),
        pytest.param(b'{"error":"' + b'\\"{}' * 5000 + b'"}', True, id="BC-87 5000 of them"),
        pytest.param(b'{"a":"\\\\"' + b"[" * 17, False, id="an escaped backslash does not hide the quote"),
        pytest.param(b"[" * 16, True, id="16 levels"),
        pytest.param(b"[" * 17, False, id="LC-63 17 levels"),
        pytest.param(b"[[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[]]", True, id="many lists side by side"),
        pytest.param(b"," * 256, True, id="256 tokens"),
        pytest.param(b"," * 257, False, id="LC-63 257 tokens"),
        pytest.param(b'"x"' * 256, True, id="a string counts once"),
        pytest.param(b'"x"' * 257, False, id="257 strings"),
        pytest.param(b'"' + b"x" * 1000, True, id="a string without end"),
        pytest.param(bytes(range(256)), True, id="any bytes"),
    ],
)
def test_limits_count_structure_outside_strings(raw, expected):
    assert limits_hold(raw) is expected


def test_a_backtracking_trap_is_quick():
    assert limits_hold(b'"' + b"\\" * 1_000_001 + b"{" * 300)


@pytest.mark.parametrize(
    ("query", "selector", "id_"),
    [
        (b"", Selector.TOKENLESS, None),
        (b"trace=x", Selector.TOKENLESS, None),
        (b"operation_id=" + ID.encode(), Selector.OPERATION, ID),
        (b"lifecycle_id=" + ID.encode(), Selector.LIFECYCLE, ID),
        (b"trace=x&lifecycle_id=" + ID.encode(), Selector.LIFECYCLE, ID),
        (b"x=%2F&operation%5Fid=" + ID.replace("-", "%2D").encode() + b"&", Selector.OPERATION, ID),
    ],
)
def test_ta94_the_url_says_what_a_callback_is_about(query, selector, id_):
    """P26, BC-97"""
    found = reading(body(operation_id=str(uuid.uuid4()), lifecycle_id="x"), query)
    assert (found.selector, found.selector_id) == (selector, id_ and uuid.UUID(id_))


ONE = "{} must be a single canonical UUIDv4"


@pytest.mark.parametrize("kind", ["operation_id", "lifecycle_id"])
@pytest.mark.parametrize(
    "value",
    [
        "",
        ID.upper(),
        ID.replace("-", ""),
        f"{{{ID}}}",
        f"urn:uuid:{ID}",
        str(uuid.UUID(int=0)),
        "4f0c2f6e-0d5a-1a57-9a3b-6f2a1c0b9d8e",
        "4f0c2f6e-0d5a-4a57-ca3b-6f2a1c0b9d8e",
        f"{ID}%20",
        f"{ID}+",
        "%FF",
    ],
)
def test_lc54_ta135_a_bad_id_is_never_read_as_none(kind, value):
    """BC-83"""
    assert refusal(body(), f"{kind}={value}".encode()) == ONE.format(kind)


@pytest.mark.parametrize("kind", ["operation_id", "lifecycle_id"])
def test_lc54_ta135_an_id_given_twice(kind):
    """BC-83"""
    assert refusal(body(), f"{kind}={ID}&{kind}={ID}".encode()) == ONE.format(kind)


def test_lc54_both_kinds():
    """BC-83"""
    text = refusal(body(), f"operation_id={ID}&lifecycle_id={ID}".encode())
    assert text == "callback URL must carry exactly one capability kind"


@pytest.mark.parametrize("query", [b"%zz", b"a=%2", b"operation_id=%", b"a;b=1"])
def test_ta135_broken_escapes(query):
    """BC-83"""
    assert refusal(body(), query) == "callback query is malformed"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "invalid request body"),
        (b"{", "invalid request body"),
        (b"[]", "invalid request body"),
        (body() + b"x", "invalid request body"),
        (body(lease_uuid=5), "invalid request body"),
        (body(retained="yes"), "invalid request body"),
        (b"{}", "lease_uuid is required"),
        (b"null", "lease_uuid is required"),
        (body(lease_uuid=""), "lease_uuid is required"),
        (body(lease_uuid="abc"), "lease_uuid must be a valid UUID"),
        (body(status="done"), "status must be 'success', 'failed', or 'deprovisioned'"),
        (body(status=""), "status must be 'success', 'failed', or 'deprovisioned'"),
        (body(status="SUCCESS"), "status must be 'success', 'failed', or 'deprovisioned'"),
    ],
)
def test_lc53_ta92_what_is_wrong_is_said(raw, text):
    """BC-81, BC-82"""
    assert refusal(raw) == text


@pytest.mark.parametrize(
    "spelling", [LEASE, LEASE.upper(), f"{{{LEASE}}}", f"urn:uuid:{LEASE}", LEASE.replace("-", "")]
)
def test_a_sender_without_identity_may_spell_the_lease_as_it_likes(spelling):
    assert reading(body(lease_uuid=spelling)).lease_uuid == uuid.UUID(LEASE)
    if spelling != LEASE:
        assert refusal(body(lease_uuid=spelling, backend_storage_id=STORAGE)) == "lease_uuid must be a valid UUID"


@pytest.mark.parametrize(
    "raw",
    [
        b'{"lease_uuid":"%s","status":"failed","status":"success"}' % LEASE.encode(),
        b'{"lease_uuid":"%s","Status":"success"}' % LEASE.encode(),
        b'{"lease_uuid":"%s","status":"failed","STATUS":"success"}' % LEASE.encode(),
    ],
)
def test_lc64_what_can_be_read_two_ways_is_refused_only_from_a_sender_with_identity(raw):
    """BC-86"""
    assert reading(raw).status == "success"
    assert refusal(raw, identity_required=True) == "invalid request body"
    with_identity = raw[:-1] + b',"backend_storage_id":"%s"}' % STORAGE.encode()
    assert refusal(with_identity) == "invalid request body"


@pytest.mark.parametrize(
    "identity", ["x", STORAGE.upper(), str(uuid.UUID(int=0)), "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"]
)
def test_a_storage_identity_is_canonical(identity):
    """BC-86"""
    assert refusal(body(backend_storage_id=identity)) == "invalid request body"


def test_a_missing_identity_is_refused_when_every_backend_has_one():
    """BC-86"""
    assert refusal(body(), identity_required=True) == "invalid request body"
    assert reading(body(backend_storage_id=STORAGE), identity_required=True).storage_id == uuid.UUID(STORAGE)


OPERATION = f"operation_id={ID}".encode()
LIFECYCLE = f"lifecycle_id={ID}".encode()


@pytest.mark.parametrize(
    ("fields", "query", "text"),
    [
        ({"extension": {"future": True}}, OPERATION, None),
        ({"retained": True}, OPERATION, "retained requires deprovisioned status"),
        ({"retained": True, "status": "failed"}, LIFECYCLE, "retained requires deprovisioned status"),
        ({"retained": True, "status": "deprovisioned"}, LIFECYCLE, None),
        ({"retained": True}, b"", None),
        ({"status": "deprovisioned"}, OPERATION, None),
        (
            {"status": "deprovisioned", "backend_storage_id": STORAGE},
            OPERATION,
            "deprovisioned status requires lifecycle or legacy callback authority",
        ),
        ({"maintenance_id": ID}, LIFECYCLE, None),
        ({"maintenance_id": ID}, OPERATION, "maintenance_id requires a result on a lifecycle URL"),
        (
            {"maintenance_id": ID, "status": "deprovisioned"},
            LIFECYCLE,
            "maintenance_id requires a result on a lifecycle URL",
        ),
        ({"maintenance_id": ID.upper()}, LIFECYCLE, "maintenance_id must be a canonical UUIDv4"),
        (
            {"maintenance_admitted_at": "2026-01-01T00:00:00Z"},
            LIFECYCLE,
            "maintenance_admitted_at must be a UTC time beside maintenance_id",
        ),
        ({"maintenance_id": ID, "maintenance_admitted_at": "2026-01-01T00:00:00.123456789Z"}, LIFECYCLE, None),
        (
            {"maintenance_id": ID, "maintenance_admitted_at": "2026-01-01T00:00:00+00:00"},
            LIFECYCLE,
            "maintenance_admitted_at must be a UTC time beside maintenance_id",
        ),
        (
            {"maintenance_id": ID, "maintenance_admitted_at": "2026-02-30T00:00:00Z"},
            LIFECYCLE,
            "maintenance_admitted_at must be a UTC time beside maintenance_id",
        ),
    ],
)
def test_ta135_combinations(fields, query, text):
    """P25, BC-84, BC-85, BC-88"""
    if text is None:
        assert reading(body(**fields), query).lease_uuid == uuid.UUID(LEASE)
    else:
        assert refusal(body(**fields), query) == text


def test_text_that_the_database_cannot_hold_is_made_storable():
    found = reading(body(status="failed", error="a\x00b\ud800", backend="x\x00"))
    assert (found.error, found.backend_label) == ("ab\ufffd", "x")
