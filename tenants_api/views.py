"""The tenant routes that stand: who calls, which lease, then one answer. Everything else is in the modules beside."""

from hmac import compare_digest
from typing import Final

from django.http import HttpResponse

from backends.contract import Absent, ProvisionInfo, ProvisionStatus, Reason, Unknown
from fred import metrics
from leases import payloads
from leases.status import LeaseState
from tenants_api import answers, backend_reads, idempotency
from tenants_api.errors import ApiError, answer, empty, internal, lease_not_found, unauthorized, unavailable
from tenants_api.idempotency import Attempt
from tenants_api.lease_route import Call, lease_route

UNREADABLE: Final = "failed to read request body"


@lease_route("GET")
def status(call: Call) -> HttpResponse:
    """What the chain says of a lease, what was done for it, and what a backend says, if one does."""
    facts = call.lease()
    found: ProvisionInfo | Absent | Unknown | None = None
    if facts is None:
        found = backend_reads.retained_by(call.token.tenant, call.lease_uuid)
        if found is None:
            raise lease_not_found()
        state, meta_hash = int(LeaseState.UNSPECIFIED), b""
    else:
        if not backend_reads.is_lost(facts):
            found = backend_reads.provision_of(facts)
        state, meta_hash = facts.state, facts.meta_hash
    body = {
        **call.head,
        "state": answers.state_name(state),
        "requires_payload": bool(meta_hash),
        **answers.present({"meta_hash_hex": meta_hash.hex()}),
        "payload_received": facts is not None and facts.payload_received,
        "provisioning_started": facts is not None and facts.is_in_flight,
    }
    if isinstance(found, ProvisionInfo):
        body |= answers.present({"provision_status": answers.status_word(found), "fail_count": found.fail_count})
        body |= answers.provision_fields(found)
    elif found is None:
        body |= {
            "provision_status": ProvisionStatus.FAILED,
            "reason": Reason.BACKEND_STORAGE_LOST,
            "message": backend_reads.LOST_TEXT,
        }
    return answer(body)


@lease_route("GET")
def provision(call: Call) -> HttpResponse:
    """What a backend says of a lease."""
    facts = call.lease()
    if facts is None:
        retained = backend_reads.retained_by(call.token.tenant, call.lease_uuid)
        if retained is None:
            raise lease_not_found()
        found = retained
    else:
        backend_reads.refuse_lost(facts)
        match backend_reads.provision_of(facts):
            case Absent():
                raise ApiError(404, "provision not found", error_code="not_provisioned")
            case backend_reads.Unresolved():
                raise unavailable("backend_unresolvable")
            case Unknown():
                raise internal()
            case found:
                pass
    return answer(
        {
            **call.head,
            "status": answers.status_word(found),
            "fail_count": found.fail_count,
            **answers.provision_fields(found),
        }
    )


@lease_route("GET", once=True)
def connection(call: Call) -> HttpResponse:
    """How a lease is reached; a token is good for one such call."""
    facts = call.active_lease()
    match backend_reads.info(backend_reads.owner(facts), call.lease_uuid):
        case Absent():
            raise ApiError(404, "lease not yet provisioned", error_code="not_provisioned")
        case Unknown():
            raise internal()
        case info:
            return answer({**call.head, "connection": answers.connection(info)})


@lease_route("POST", kind="payload")
def data(call: Call) -> HttpResponse:
    """Take the payload that a PENDING lease announced by its hash; the first upload wins."""
    return idempotency.answered(call, lambda attempt: _take(call, attempt), otherwise=UNREADABLE)


def _take(call: Call, attempt: Attempt) -> HttpResponse:
    facts = call.known_lease()
    if facts.state != LeaseState.PENDING:
        raise ApiError(404, "lease not pending", error_code="lease_not_pending")
    if not facts.meta_hash:
        raise ApiError(400, "lease does not expect payload", error_code="payload_not_expected")
    if call.token.meta_hash is None or not compare_digest(call.token.meta_hash, facts.meta_hash):
        metrics.PAYLOAD_UPLOADS.labels(outcome="invalid_auth").inc()
        raise unauthorized()
    body = call.body(otherwise=UNREADABLE)
    if not body:
        raise ApiError(400, "payload is empty", error_code="payload_empty")
    taken = empty(202)
    call.let_out()
    try:
        is_first = payloads.store(call.lease_uuid, body, expected=facts.meta_hash, within=lambda: attempt.keep(taken))
    except payloads.HashMismatch:
        metrics.PAYLOAD_UPLOADS.labels(outcome="hash_mismatch").inc()
        raise ApiError(400, "payload hash does not match meta_hash", error_code="payload_hash_mismatch") from None
    except payloads.NotStored:
        attempt.is_kept = False  # it was rolled back with the payload
        metrics.PAYLOAD_UPLOADS.labels(outcome="error").inc()
        raise internal() from None
    if not is_first:
        metrics.PAYLOAD_UPLOADS.labels(outcome="conflict").inc()
        raise ApiError(409, "payload already received", error_code="payload_exists")
    metrics.PAYLOAD_UPLOADS.labels(outcome="success").inc()
    metrics.PAYLOAD_BYTES.observe(len(body))
    return taken
