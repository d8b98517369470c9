"""Answers to restore, restart, update and domains: what refuses, what proves nothing, and what the breaker hears."""

import json

import pytest

from backends import change_requests as requests
from backends.change_outcomes import (
    Conflict,
    RouteMissing,
    classify_domains,
    classify_maintenance,
    classify_restore,
    resolve_restore,
)
from backends.contract import Absent, Dialect, LeaseItem, ProvisionInfo, ProvisionStatus, Unknown
from backends.envelope import MALFORMED_TEXT
from backends.outcomes import Accepted, Ambiguous, CapacityClaimed, Category, NotSent, Pulse, RefusalKind, Refused
from fred.http import ErrorKind, HttpError, Response
from tests.backends.servers import LEASE, PROVIDER, target, uuid_number

OLD, NEW = Dialect.V0_13, Dialect.CURRENT
BOTH = pytest.mark.parametrize("dialect", [OLD, NEW])
NO_ENVELOPE = [b"null", b"{}", b'{"message":"p"}', b'{"error":""}', b'{"error":{"a":1}}', b'["x"]', b"<html>", b'{"er']


def said(status, body=b""):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Response(None, status, raw, None, 0.1)


def coded(text, code="", **more):
    return {"error": text, **({"code": code} if code else {}), **more}


def seen(outcome):
    """Kind of outcome, its text, and its pulse."""
    text = outcome.message if isinstance(outcome, Refused | CapacityClaimed | RouteMissing) else outcome.reason
    kind = outcome.kind if isinstance(outcome, Refused) else type(outcome)
    return kind, text, outcome.pulse


@BOTH
@pytest.mark.parametrize("status", [409, 422])
@pytest.mark.parametrize("body", NO_ENVELOPE)
def test_bc16_bc17_a_restore_without_readable_error_body_refuses_nothing(dialect, status, body):
    outcome = classify_restore(said(status, body), dialect=dialect)
    assert (outcome.reason, outcome.category, outcome.pulse) == (MALFORMED_TEXT, Category.MALFORMED, Pulse.FAILURE)
    assert outcome.malformed


@BOTH
@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        (422, b"", RefusalKind.NOT_RETAINED, "no retained data for lease"),
        (422, coded("nope"), RefusalKind.NOT_RETAINED, "nope"),
        (422, coded("too big", "demote_exceeds_tier"), RefusalKind.DEMOTE_EXCEEDS_TIER, "too big"),
        (409, b"", RefusalKind.INVALID_STATE, "invalid state for operation"),
        (409, coded("reaping"), RefusalKind.INVALID_STATE, "reaping"),
        (400, coded("other shape"), RefusalKind.VALIDATION, "other shape"),
    ],
)
def test_bc16_bc17_what_a_restore_refuses(dialect, status, body, kind, text):
    assert seen(classify_restore(said(status, body), dialect=dialect)) == (kind, text, Pulse.SUCCESS)


@pytest.mark.parametrize(
    ("status", "code", "category", "unknown"),
    [
        (422, "draining", Category.RESTORE_REFUSED, "draining"),
        (422, "already_provisioned", Category.RESTORE_REFUSED, "already_provisioned"),
        (409, "draining", Category.INVALID_STATE, "draining"),
        (409, "demote_exceeds_tier", Category.INVALID_STATE, "demote_exceeds_tier"),
        (409, "already_provisioned", Category.ALREADY_PROVISIONED, ""),
        (409, "operation_completion_pending", Category.COMPLETION_PENDING, ""),
    ],
)
def test_p7_bc16_bc17_other_codes_of_the_current_dialect_settle_nothing(status, code, category, unknown):
    outcome = classify_restore(said(status, coded("words", code)), dialect=NEW)
    assert isinstance(outcome, Ambiguous)
    assert (outcome.reason, outcome.category, outcome.unknown_code) == ("words", category, unknown)
    assert (outcome.pulse, outcome.malformed) == (Pulse.SUCCESS, "")


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (422, "draining", RefusalKind.RESTORE_REFUSED),
        (422, "already_provisioned", RefusalKind.RESTORE_REFUSED),
        (409, "draining", RefusalKind.INVALID_STATE),
        (409, "demote_exceeds_tier", RefusalKind.INVALID_STATE),
        (409, "operation_completion_pending", RefusalKind.INVALID_STATE),
    ],
)
def test_p7_bc16_bc17_other_codes_of_the_older_dialect_refuse_and_keep_their_text(status, code, kind):
    outcome = classify_restore(said(status, coded("words", code)), dialect=OLD)
    assert seen(outcome) == (kind, "words", Pulse.SUCCESS)
    assert outcome.unknown_code == code


@pytest.mark.parametrize(
    ("code", "repeated", "category"),
    [
        ("already_provisioned", False, Category.ALREADY_PROVISIONED),
        ("already_provisioned", True, Category.ALREADY_PROVISIONED),
        ("", True, Category.INVALID_STATE),
        ("draining", True, Category.INVALID_STATE),
    ],
)
def test_bc17_a_conflict_that_may_be_about_this_restore_is_settled_by_a_read_of_the_target(code, repeated, category):
    outcome = classify_restore(said(409, coded("dup", code)), dialect=OLD, repeated=repeated)
    assert (type(outcome), outcome.category, outcome.pulse) == (Conflict, category, Pulse.SUCCESS)
    refused = resolve_restore(outcome, read=Absent())
    assert (refused.kind, refused.message) == (RefusalKind.INVALID_STATE, "dup")
    for read in (Unknown("silent"), ProvisionInfo(LEASE, ProvisionStatus.READY)):
        kept = resolve_restore(outcome, read=read)
        assert (type(kept), kept.category) == (Ambiguous, category)


def test_bc18_white_space_is_empty_only_to_the_older_dialect():
    assert seen(classify_restore(said(422, b" \n"), dialect=OLD))[0] is RefusalKind.NOT_RETAINED
    assert classify_restore(said(422, b" \n"), dialect=NEW).category is Category.MALFORMED


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"error":"full"}', b'{"error":"x","code":"y"}'])
def test_bc19_a_503_of_the_older_dialect_claims_no_room_whatever_its_body(body):
    outcome = classify_restore(said(503, body), dialect=OLD)
    assert (type(outcome), outcome.pulse) == (CapacityClaimed, Pulse.SUCCESS)
    assert isinstance(resolve_restore(outcome, read=Absent()), Refused)


@pytest.mark.parametrize(
    "classify", [classify_restore, lambda *a, **k: classify_maintenance(*a, operation="update", **k)]
)
@pytest.mark.parametrize(
    ("body", "kind", "pulse", "category"),
    [
        (coded("full", "insufficient_resources"), Refused, Pulse.SUCCESS, Category.CAPACITY_REFUSED),
        (coded("full"), Ambiguous, Pulse.SUCCESS, Category.INSUFFICIENT_RESOURCES),
        (coded("full", "new"), Ambiguous, Pulse.SUCCESS, Category.INSUFFICIENT_RESOURCES),
        (coded("p", "lifecycle_pending"), Ambiguous, Pulse.SUCCESS, Category.LIFECYCLE_PENDING),
        (b"", Ambiguous, Pulse.SUCCESS, Category.INSUFFICIENT_RESOURCES),
        (b"<html>", Ambiguous, Pulse.FAILURE, Category.MALFORMED),
    ],
)
def test_bc19_bc25_a_503_of_the_current_dialect_says_more(classify, body, kind, pulse, category):
    outcome = classify(said(503, body), dialect=NEW)
    assert (type(outcome), outcome.pulse, outcome.category) == (kind, pulse, category)


@BOTH
def test_bc20_any_other_status_of_a_restore_is_a_fault(dialect):
    outcome = classify_restore(said(500, b"boom"), dialect=dialect)
    assert seen(outcome) == (Ambiguous, "restore failed with status 500: boom", Pulse.FAILURE)


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (Absent(), NotSent),
        (Unknown("silent"), Ambiguous),
        (ProvisionInfo(LEASE, ProvisionStatus.FAILED), Ambiguous),
    ],
)
def test_a_route_that_is_missing_is_proven_by_a_read_of_the_target_alone(read, expected):
    outcome = classify_restore(said(404, b"404 page not found"), dialect=OLD)
    assert (type(outcome), outcome.pulse) == (RouteMissing, Pulse.FAILURE)
    assert isinstance(resolve_restore(outcome, read=read), expected)
    assert isinstance(classify_restore(said(404), dialect=NEW), Ambiguous)


@BOTH
@pytest.mark.parametrize("operation", ["restart", "update"])
@pytest.mark.parametrize(
    "body", [b"", b"<html>", b'{"error":"old","code":"maintenance_expired","validation_code":"x"}']
)
def test_bc24_a_409_is_an_invalid_state_whatever_its_body(dialect, operation, body):
    outcome = classify_maintenance(said(409, body), operation=operation, dialect=dialect)
    assert (outcome.kind, outcome.pulse) == (RefusalKind.INVALID_STATE, Pulse.SUCCESS)


@pytest.mark.parametrize(("dialect", "kind"), [(NEW, RefusalKind.EXPIRED), (OLD, RefusalKind.INVALID_STATE)])
def test_bc24_only_the_current_dialect_knows_expired_commands(dialect, kind):
    body = coded("old", "maintenance_expired")
    assert classify_maintenance(said(409, body), operation="restart", dialect=dialect).kind is kind


@pytest.mark.parametrize(
    ("operation", "body", "expected"),
    [
        ("restart", coded("x"), (Ambiguous, 'restart failed with status 400: {"error": "x"}', Pulse.FAILURE)),
        ("update", coded("bad manifest"), (RefusalKind.VALIDATION, "bad manifest", Pulse.SUCCESS)),
        ("update", b"<html>", (Ambiguous, MALFORMED_TEXT, Pulse.FAILURE)),
    ],
)
def test_p4_a_400_of_the_older_dialect(operation, body, expected):
    assert seen(classify_maintenance(said(400, body), operation=operation, dialect=OLD)) == expected


@pytest.mark.parametrize("operation", ["restart", "update"])
def test_bc25_a_503_of_the_older_dialect_is_a_fault(operation):
    outcome = classify_maintenance(said(503, coded("p", "lifecycle_pending")), operation=operation, dialect=OLD)
    assert (type(outcome), outcome.pulse) == (Ambiguous, Pulse.FAILURE)


@BOTH
@pytest.mark.parametrize(
    ("status", "kind", "pulse"),
    [
        (202, Accepted, Pulse.SUCCESS),
        (204, Accepted, Pulse.SUCCESS),
        (404, Refused, Pulse.SUCCESS),
        (409, Refused, Pulse.SUCCESS),
        (500, Ambiguous, Pulse.FAILURE),
    ],
)
def test_bc27_domains(dialect, status, kind, pulse):
    outcome = classify_domains(said(status), dialect=dialect)
    assert (type(outcome), outcome.pulse) == (kind, pulse)


@pytest.mark.parametrize(
    "classify", [classify_restore, classify_domains, lambda *a: classify_maintenance(*a, operation="restart")]
)
def test_only_what_left_nothing_was_not_sent(classify):
    for kind, expected in ((ErrorKind.REFUSED, NotSent), (ErrorKind.TIMEOUT, Ambiguous)):
        assert isinstance(classify(Response(None, None, b"", HttpError(kind, "x"), 0.1)), expected)


def test_bc89_request_forms_of_the_older_dialect():
    """P1"""
    backend, items = target("http://b"), [LeaseItem("sku-1", 2, "web", "x.example")]
    restart = requests.restart_request(backend, LEASE, callback_url="http://cp/x")
    update = requests.update_request(backend, LEASE, b"{}", callback_url="http://cp/x")
    restore = requests.restore_request(
        backend,
        LEASE,
        source=uuid_number(7),
        tenant="m1",
        provider_uuid=PROVIDER,
        items=items,
        callback_url="http://cp",
    )
    domains = requests.domains_request(backend, LEASE, items)
    releases = requests.releases_request(backend, LEASE)
    made = [restart, update, restore, domains, releases]
    assert [one.url.removeprefix("http://b") for one in made] == [
        "/restart",
        "/update",
        "/restore",
        "/reconcile_custom_domain",
        f"/releases/{LEASE}",
    ]
    assert json.loads(restart.body) == {"lease_uuid": str(LEASE), "callback_url": "http://cp/x"}
    assert json.loads(update.body) == {
        "lease_uuid": str(LEASE),
        "callback_url": "http://cp/x",
        "payload": "e30=",
        "payload_hash": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
    }
    assert json.loads(restore.body)["from_lease_uuid"] == str(uuid_number(7))
    assert json.loads(domains.body)["items"][0]["custom_domain"] == "x.example"
    assert (releases.method, releases.max_body) == ("GET", 8 * 1024 * 1024)
    assert all("X-Fred-Signature" in dict(one.headers) for one in made)
