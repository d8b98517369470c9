"""What an answer to a mutation means: every status and body of the contract."""

from datetime import UTC, datetime

import pytest

from backends import envelope
from backends.client import (
    Accepted,
    AlreadyProvisioned,
    Ambiguous,
    CapacityClaimed,
    Deferred,
    Done,
    NotSent,
    Pulse,
    RefusalKind,
    Refused,
    classify_deprovision,
    classify_provision,
    resolve_provision,
)
from backends.contract import Absent, Dialect, ProvisionInfo, ProvisionStatus, Unknown
from backends.envelope import MALFORMED_TEXT, Empty, Envelope, Malformed
from fred.http import ErrorKind, HttpError, Response
from tests.backends.servers import LEASE

OLD, NEW = Dialect.V0_13, Dialect.CURRENT
FULL = b'{"error":"full","code":"insufficient_resources"}'
MALFORMED = [
    b"null",
    b"{}",
    b'{"message":"p"}',
    b'{"error":""}',
    b'{"error":{"a":1}}',
    b'{"error":null}',
    b'{"validation_code":"invalid_manifest"}',
    b'["x"]',
    b'"x"',
    b"<html>",
    b'{"error":"abc',
    b'{"error":"e"}{}',
    b'{"error":"e","code":5}',
    b"[" * 4000,
]


def answered(status, body=b""):
    return Response(tag=None, status=status, body=body, error=None, elapsed=0.1)


def failed(kind):
    return Response(tag=None, status=None, body=b"", error=HttpError(kind, "why"), elapsed=0.1)


@pytest.mark.parametrize("dialect", Dialect)
def test_202_is_accepted_whatever_its_body(dialect):
    assert classify_provision(answered(202, b"<html>"), dialect=dialect) == Accepted()


def test_bc12_a_validation_refusal_keeps_its_code_and_exact_text():
    body = b'{"error":"validation error: unknown SKU: x","validation_code":"unknown_sku"}'
    outcome = classify_provision(answered(400, body))
    assert outcome == Refused(RefusalKind.VALIDATION, "validation error: unknown SKU: x", "unknown_sku")
    assert (outcome.pulse, outcome.chain_reason) == (Pulse.SUCCESS, "invalid SKU")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("invalid_manifest", "invalid manifest"),
        ("image_not_allowed", "image not allowed"),
        ("brand_new", "validation error"),
        ("", "validation error"),
    ],
)
def test_bc13_chain_reasons_never_hold_the_backends_text(code, reason):
    body = b'{"error":"secret words","validation_code":"%b"}' % code.encode()
    assert classify_provision(answered(400, body)).chain_reason == reason


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("body", [b"", *MALFORMED])
def test_bc14_a_400_without_the_envelope_is_never_a_refusal(body, dialect):
    outcome = classify_provision(answered(400, body), dialect=dialect)
    assert isinstance(outcome, Ambiguous)
    assert (outcome.reason, outcome.pulse) == (MALFORMED_TEXT, Pulse.FAILURE)
    assert outcome.malformed


@pytest.mark.parametrize(
    ("body", "old"),
    [
        (b'{"error":"e","error":"f"}', Envelope("f")),
        (b'{"Error":"e"}', Envelope("e")),
        (b'{"error":"e","extra":1}', Envelope("e")),
        (b'{"error":"e","code":null}', Envelope("e")),
        (b'{"error":"\xff"}', Envelope("\N{REPLACEMENT CHARACTER}")),
        (b" \n", Empty()),
        (b'{"error":"' + b"e" * 4090 + b'"}', Malformed("body is not the JSON error envelope")),
    ],
)
def test_bc15_what_the_older_dialect_forgives_the_current_one_does_not(body, old):
    assert envelope.read(body, dialect=OLD) == old
    assert isinstance(envelope.read(body, dialect=NEW), Malformed)


def test_an_envelope_at_the_size_limit_is_read():
    body = b'{"error":"' + b"e" * (4096 - 12) + b'"}'
    assert len(body) == envelope.MAX_BYTES
    assert isinstance(envelope.read(body, dialect=NEW), Envelope)
    assert isinstance(envelope.read(body + b" ", dialect=NEW), Malformed)


def test_texts_of_an_envelope_can_always_be_stored():
    found = envelope.read(b'{"error":"a\\u0000b\\ud800c"}', dialect=NEW)
    assert found == Envelope("ab?c")


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"error":"lease already provisioned"}', FULL])
def test_bc22_a_409_of_the_older_dialect_says_only_that_the_lease_is_known(body):
    assert isinstance(classify_provision(answered(409, body), dialect=OLD), AlreadyProvisioned)


def test_bc22_a_malformed_409_of_the_current_dialect_is_malformed():
    outcome = classify_provision(answered(409, b"<html>"), dialect=NEW)
    assert (outcome.reason, outcome.pulse) == (MALFORMED_TEXT, Pulse.FAILURE)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"error":"x","code":"operation_completion_pending"}', "x"),
        (b'{"error":"y","code":"invalid_state"}', "y"),
        (b'{"error":"z","code":"new"}', "lease already provisioned: z"),
        (b"", "lease already provisioned"),
    ],
)
def test_bc23_every_409_of_the_current_dialect_is_ambiguous_and_healthy(body, reason):
    assert classify_provision(answered(409, body), dialect=NEW) == Ambiguous(reason, pulse=Pulse.SUCCESS)


@pytest.mark.parametrize(
    ("dialect", "body", "expected"),
    [
        pytest.param(NEW, FULL, Refused(RefusalKind.CAPACITY, "full", "insufficient_resources"), id="coded"),
        pytest.param(NEW, b'{"error":"full"}', Ambiguous("insufficient resources", Pulse.SUCCESS), id="code-less"),
        pytest.param(NEW, b"", Ambiguous("insufficient resources", Pulse.SUCCESS), id="empty"),
        pytest.param(OLD, FULL, CapacityClaimed("full"), id="older, coded"),
        pytest.param(OLD, b'{"error":"full"}', CapacityClaimed("full"), id="older, envelope"),
        pytest.param(OLD, b"", Ambiguous("insufficient resources", Pulse.SUCCESS), id="older, empty"),
        pytest.param(OLD, b"<html>", Ambiguous("insufficient resources", Pulse.SUCCESS), id="older, malformed"),
    ],
)
def test_503_is_a_refusal_only_when_it_proves_so(dialect, body, expected):
    assert classify_provision(answered(503, body), dialect=dialect) == expected


@pytest.mark.parametrize("status", [200, 204, 301, 307, 401, 403, 404, 413, 429, 500, 502])
@pytest.mark.parametrize("dialect", Dialect)
def test_any_other_status_is_ambiguous_and_unhealthy(status, dialect):
    outcome = classify_provision(answered(status, b"why"), dialect=dialect)
    assert outcome == Ambiguous(f"provision failed with status {status}: why")
    assert outcome.pulse is Pulse.FAILURE


@pytest.mark.parametrize("kind", ErrorKind)
@pytest.mark.parametrize("classify", [classify_provision, classify_deprovision])
def test_only_what_left_nothing_counts_as_not_sent(kind, classify):
    outcome = classify(failed(kind))
    sent_nothing = kind in ("invalid", "dns", "refused", "tls", "connect_timeout")
    assert isinstance(outcome, NotSent if sent_nothing else Ambiguous)
    assert outcome.pulse is Pulse.FAILURE


AT = datetime(2026, 3, 2, tzinfo=UTC)
ROW = ProvisionInfo(LEASE, ProvisionStatus.FAILED, AT, fail_count=2)


@pytest.mark.parametrize(
    ("outcome", "read", "before", "expected"),
    [
        pytest.param(CapacityClaimed("full"), Absent(), None, Refused, id="no room and nothing there"),
        pytest.param(AlreadyProvisioned("dup"), Absent(), None, NotSent, id="conflict and nothing there"),
        pytest.param(CapacityClaimed("full"), ROW, ROW, Refused, id="no room, same failed row as before"),
        pytest.param(
            CapacityClaimed("full"),
            ProvisionInfo(LEASE, ProvisionStatus.FAILED, AT, fail_count=3),
            ROW,
            Ambiguous,
            id="no room, it failed once more",
        ),
        pytest.param(CapacityClaimed("full"), ROW, None, Ambiguous, id="no room, not known before"),
        pytest.param(AlreadyProvisioned("dup"), ROW, ROW, Ambiguous, id="conflict and a row"),
        pytest.param(
            CapacityClaimed("full"),
            ProvisionInfo(LEASE, ProvisionStatus.READY, AT),
            ProvisionInfo(LEASE, ProvisionStatus.READY, AT),
            Ambiguous,
            id="no room but ready",
        ),
        pytest.param(CapacityClaimed("full"), Unknown("silent"), ROW, Ambiguous, id="no answer"),
        pytest.param(AlreadyProvisioned("dup"), Unknown("silent"), None, Ambiguous, id="conflict, no answer"),
    ],
)
def test_a_point_read_settles_what_the_older_dialect_left_open(outcome, read, before, expected):
    settled = resolve_provision(outcome, read=read, before=before)
    assert type(settled) is expected
    if isinstance(settled, Refused):
        assert settled.kind is RefusalKind.CAPACITY


@pytest.mark.parametrize("dialect", Dialect)
def test_deprovision_is_done_by_an_exact_200(dialect):
    assert classify_deprovision(answered(200), dialect=dialect) == Done()


@pytest.mark.parametrize(
    ("dialect", "status", "body", "expected"),
    [
        pytest.param(NEW, 503, b'{"error":"p","code":"lifecycle_pending"}', Deferred("p"), id="bc26 pending"),
        pytest.param(NEW, 409, b'{"error":"c","code":"close_deferred"}', Deferred("c"), id="bc26 deferred"),
        pytest.param(
            NEW, 409, b'{"error":"c"}', Ambiguous('deprovision returned unknown conflict code ""'), id="bc26 no code"
        ),
        pytest.param(
            NEW,
            503,
            b'{"error":"c","code":"x"}',
            Ambiguous('deprovision returned unknown unavailable code "x"'),
            id="unknown code",
        ),
        pytest.param(
            NEW, 404, b"", Ambiguous("deprovision failed with status 404: "), id="bc26 absence is not said with 404"
        ),
        pytest.param(
            OLD,
            503,
            b'{"error":"p","code":"lifecycle_pending"}',
            Ambiguous('deprovision failed with status 503: {"error":"p","code":"lifecycle_pending"}'),
            id="older dialect has no codes",
        ),
        pytest.param(OLD, 202, b"", Ambiguous("deprovision failed with status 202: "), id="202"),
        pytest.param(OLD, 204, b"", Ambiguous("deprovision failed with status 204: "), id="204"),
    ],
)
def test_deprovision_answers(dialect, status, body, expected):
    assert classify_deprovision(answered(status, body), dialect=dialect) == expected


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}"])
@pytest.mark.parametrize("status", [409, 503])
def test_a_malformed_deprovision_answer_is_malformed(status, body):
    outcome = classify_deprovision(answered(status, body), dialect=NEW)
    assert (outcome.reason, outcome.pulse) == (MALFORMED_TEXT, Pulse.FAILURE)
