"""Restart and update: what a tenant asks of the workload of its ACTIVE lease.

With a command key the request names its command: recorded before anything is sent, never run twice, answered alike for
every repeat. Without one each request is a command of its own.
"""

from __future__ import annotations

import hashlib
from typing import Final
from uuid import UUID

import structlog
from django.conf import settings
from django.db import Error
from django.http import HttpResponse

from fred import metrics
from fred.decoding import DecodeError, decode_object
from leases.status import LeaseState
from placements import command_waits
from placements.command_status import CommandKind
from placements.command_waits import AwaitedCommand
from reconciliation.command_admission import Admitted, CommandWish, NotAdmitted, admit_command
from tenants_api import backend_reads, command_answers, command_keys, idempotency, lease_reads
from tenants_api.errors import ApiError, forbidden, internal, lease_not_found, request_id_of, unavailable
from tenants_api.lease_reads import LeaseFacts
from tenants_api.lease_route import Call, lease_route

INVALID_BODY: Final = "invalid request body"

log = structlog.get_logger(__name__)


@lease_route("POST", once=True, early=command_keys.check_header)
def restart(call: Call) -> HttpResponse:
    """Have a lease's workload started anew."""
    return _route(call, CommandKind.RESTART)


@lease_route("POST", once=True, early=command_keys.check_header)
def update(call: Call) -> HttpResponse:
    """Have a lease's workload replaced by that of another payload."""
    return _route(call, CommandKind.UPDATE)


def _route(call: Call, kind: CommandKind) -> HttpResponse:
    until = call.waits_until()
    key = command_keys.command_key(call.request)
    if key is not None:
        call.note(key)
        return _keyed(call, kind, key, until=until)
    if idempotency.keys_of(call.request):
        body = INVALID_BODY if kind is CommandKind.UPDATE else None
        return idempotency.answered(
            call, lambda attempt: _keyless(call, kind, attempt.operation_id, until=until), otherwise=body
        )
    _check_keyless(call.token.tenant)
    id_ = command_keys.derived_id(call.token, kind)
    call.note(id_)
    return _keyless(call, kind, id_, until=until)


def _check_keyless(tenant: str) -> None:
    """Where keys are required only listed tenants may leave theirs out."""
    if not settings.FRED.maintenance_require_idempotency_key:
        return
    if tenant not in settings.FRED.maintenance_legacy_idempotency_tenants:
        raise command_keys.missing()
    metrics.MAINTENANCE_LEGACY_KEYS.inc()
    log.warning("command.without_key", tenant=tenant)


def _keyless(call: Call, kind: CommandKind, id_: UUID, *, until: float) -> HttpResponse:
    facts = call.active_lease(anew=True)
    target = backend_reads.owner(facts)
    payload = _payload(call, kind)
    # A lease that is placed nowhere is asked for where its items would be served, as for every read.
    wish = _wish(call, kind, id_, payload=payload, keyed=False, backend="" if facts.placement else target.name)
    try:
        call.let_out()
        found = admit_command(wish)
        if isinstance(found, NotAdmitted):
            raise command_answers.not_admitted(found, kind=kind, is_keyed=False)
        claimed = found.claimed if isinstance(found, Admitted) else None
        return command_answers.keyless(command_waits.outcome(found.command, claimed, until=until))
    except Error as error:
        log.error("command.not_recorded", lease_uuid=str(call.lease_uuid), error=type(error).__name__)  # noqa: TRY400
        raise internal() from None


def _keyed(call: Call, kind: CommandKind, key: UUID, *, until: float) -> HttpResponse:
    payload = _payload(call, kind)
    try:
        known = command_waits.find(call.lease_uuid, key)
        if known is None:
            _check_lease(call)
            wish = _wish(call, kind, key, payload=payload, keyed=True)
            call.let_out()
            found = admit_command(wish)
            if isinstance(found, NotAdmitted):
                raise command_answers.not_admitted(found, kind=kind, is_keyed=True)
            if isinstance(found, Admitted):
                mine = command_waits.outcome(found.command, found.claimed, until=until)
                return command_answers.keyed(mine, replayed=False)
            known = command_waits.find(call.lease_uuid, key)
        return _joined(call, kind, payload, known, until=until)
    except Error as error:
        log.error("command.not_recorded", lease_uuid=str(call.lease_uuid), error=type(error).__name__)  # noqa: TRY400
        raise unavailable() from None


def _joined(
    call: Call, kind: CommandKind, payload: bytes, known: AwaitedCommand | None, *, until: float
) -> HttpResponse:
    """The answer of a command that an earlier request brought."""
    if known is None:
        raise unavailable()
    if known.tenant != call.token.tenant:
        raise forbidden()
    if (known.kind, known.payload_sha256) != (kind, hashlib.sha256(payload).digest()):
        raise command_answers.conflict()
    found = command_waits.outcome(known.id, None, until=until) if known.is_open else known
    return command_answers.keyed(found, replayed=True)


def _check_lease(call: Call) -> None:
    """Raise unless the lease is the tenant's, ACTIVE, and settled at one backend that takes calls."""
    facts = _lease(call)
    if facts.tenant != call.token.tenant or facts.provider_uuid != settings.FRED.provider_uuid:
        raise forbidden()
    if facts.state != LeaseState.ACTIVE:
        raise command_answers.ended()
    backend_reads.refuse_lost(facts)


def _lease(call: Call) -> LeaseFacts:
    try:
        facts = lease_reads.current(call.lease_uuid, anew=True)
    except ApiError:
        raise unavailable() from None
    if facts is not None:
        return facts
    stored = lease_reads.load(call.lease_uuid)
    if stored is None or stored.provider_uuid is None:
        raise lease_not_found()  # nothing was ever admitted for it
    raise unavailable()


def _payload(call: Call, kind: CommandKind) -> bytes:
    """The payload of an update; of a restart nothing is read."""
    if kind is CommandKind.RESTART:
        return b""
    try:
        found: bytes = decode_object(call.body(otherwise=INVALID_BODY), {"payload": bytes}, more=True)["payload"]
    except DecodeError:
        raise ApiError(400, INVALID_BODY, error_code="invalid_body") from None
    if not found:
        raise ApiError(400, "payload is required", error_code="payload_required")
    return found


def _wish(call: Call, kind: CommandKind, id_: UUID, *, payload: bytes, keyed: bool, backend: str = "") -> CommandWish:
    return CommandWish(
        lease_uuid=call.lease_uuid,
        tenant=call.token.tenant,
        kind=kind,
        maintenance_id=id_,
        keyed=keyed,
        payload=payload,
        backend=backend or None,
        request_id=request_id_of(call.request),
    )
