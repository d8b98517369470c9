"""What an operator may do to a backend (fence, unfence, drain, undrain, retire), and to a chain that is suspect.

Each leaves a row that nobody changes.

The row is written in the transaction of the effect; what is refused is written too. Nothing here contacts a backend.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now

from backends import targets
from backends.models import Backend
from fred import metrics
from fred.errors import FredError
from leases import wake
from reconciliation import suspect_sql, suspicion
from reconciliation.models import OperatorAction

log = structlog.get_logger(__name__)


class Refused(FredError):
    """The operator's wish can't be met; the text says why and is for the operator."""


@dataclass(frozen=True, slots=True)
class Operator:
    """Who acts: ``actor`` as user@host or the admin site's user, ``source`` as command or admin."""

    actor: str
    source: str

    @classmethod
    def of_command(cls) -> Operator:
        """Whoever runs this process."""
        return cls(f"{getpass.getuser()}@{socket.gethostname()}", "command")


Change = Callable[[Backend], Mapping[str, Any]]


def fence(name: str, *, reason: str, operator: Operator) -> bool:
    """Contact this backend no more and refuse its callbacks, in all processes within five seconds.

    Returns whether that was new. Raises `Refused` if backends share a key, or no other would be left unfenced.
    """

    def change(row: Backend) -> Mapping[str, Any]:
        for text in _against_fencing(row):
            raise Refused(text)
        return {"fenced": True, "fenced_by": Backend.BY_OPERATOR}

    return _act("fence", name, change, reason=reason, operator=operator)


def unfence(name: str, *, reason: str, operator: Operator) -> bool:
    """Contact it again; what waited for it goes on. Raises `Refused` while the configuration fences it."""

    def change(row: Backend) -> Mapping[str, Any]:
        if any(one.name == row.name and one.fenced for one in settings.FRED.backends):
            raise Refused(f"the configuration fences {row.name}: take `fenced` out of it, then sync")
        return {"fenced": False, "fenced_by": ""}

    return _act("unfence", name, change, reason=reason, operator=operator)


def drain(name: str, *, reason: str, operator: Operator) -> bool:
    """Give it no new lease; everything else of it goes on."""
    return _act("drain", name, lambda _: {"drained": True}, reason=reason, operator=operator)


def undrain(name: str, *, reason: str, operator: Operator) -> bool:
    """Give it new leases again."""
    return _act("undrain", name, lambda _: {"drained": False}, reason=reason, operator=operator)


def retire(name: str, *, reason: str, operator: Operator) -> bool:
    """Never contact it again, whatever the configuration says; its name is burnt.

    Raises `Refused` while anything names it, saying what.
    """

    def change(row: Backend) -> Mapping[str, Any]:
        if named := users_of(row.name):
            counted = ", ".join(f"{number} {what}" for what, number in named.items())
            raise Refused(f"{row.name} is still named by {counted}")
        return {"retired_at": Now()}

    return _act("retire", name, change, reason=reason, operator=operator)


def believe_chain(chain_id: str, *, reason: str, operator: Operator) -> bool:
    """End the suspicion of a chain: the operator vouches for what its node shows now.

    Returns whether it was suspect. Raises `Refused` without a reason, and for a chain that is not the configured one.
    A node that is still far behind is suspected anew after a minute: heights never go back.
    """
    if not reason.strip():
        raise Refused("a reason is needed")
    record = OperatorAction(
        actor=operator.actor, source=operator.source, action="believe_chain", target=f"chain:{chain_id}", reason=reason
    )
    if chain_id != settings.FRED.chain_id:
        record.result, record.error = "refused", f"the configured chain is {settings.FRED.chain_id}"
        record.save(force_insert=True)
        raise Refused(record.error)
    why, detail, since = suspect_sql.standing(chain_id)
    record.before = {"suspect_reason": why, "detail": detail, "since": since.isoformat() if since else None}
    ended = suspicion.end(operator=True, record=record)
    metrics.AUDIT_EVENTS.labels("believe_chain", operator.source).inc()
    log.warning("operator.acted", action="believe_chain", chain=chain_id, actor=operator.actor, result=record.result)
    return ended


def users_of(name: str) -> dict[str, int]:
    """What still names this backend: kinds with their number, without those of which there is none.

    A placement of a lease that ended and was removed here names it no more, a row of its last list does.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT 'placement(s)', count(*)
              FROM placements_placement AS p JOIN leases_lease AS l ON l.uuid = p.lease_uuid
             WHERE p.backend = %(name)s AND NOT (COALESCE(l.chain_state, 0) IN (3, 4, 5) AND EXISTS (
                   SELECT FROM placements_teardown AS t
                    WHERE t.lease_uuid = p.lease_uuid AND t.backend = %(name)s AND t.state = 'done'))
            UNION ALL SELECT 'open operation(s)', count(*) FROM placements_operation
             WHERE backend = %(name)s AND settled_at IS NULL
            UNION ALL SELECT 'restart(s) or update(s) whose end is not known', count(*)
              FROM placements_maintenancecommand WHERE backend = %(name)s AND finished_at IS NULL
            UNION ALL SELECT 'open removal(s)', count(*) FROM placements_teardown
             WHERE backend = %(name)s AND state <> 'done'
            UNION ALL SELECT 'operation(s) that no whole list of it is newer than', count(*)
              FROM placements_operation AS o
             WHERE o.backend = %(name)s AND o.last_dispatched_at IS NOT NULL AND NOT EXISTS (
                   SELECT FROM reconciliation_sweepbackend AS s
                    WHERE s.backend = %(name)s AND s.complete AND s.started_at > o.last_dispatched_at)
            UNION ALL SELECT 'listed provision(s)', count(*) FROM placements_provision WHERE backend = %(name)s
            UNION ALL SELECT 'kept data set(s)', count(*) FROM placements_retention WHERE backend = %(name)s
            """,
            {"name": name},
        )
        return {what: number for what, number in cursor.fetchall() if number}


def _against_fencing(row: Backend) -> Iterator[str]:
    entries = settings.FRED.backends
    if not all(one.hmac_secret for one in entries):
        at = next((at for at, one in enumerate(entries) if one.name == row.name), row.position)
        yield f"backends[{at}].fenced requires a per-backend hmac_secret on every backend"
    others = Backend.objects.filter(configured=True, fenced=False, retired_at__isnull=True).exclude(pk=row.pk)
    if not others.exists():
        yield "every backend is fenced"


def _act(action: str, name: str, change: Change, *, reason: str, operator: Operator) -> bool:
    """Change one row and write down who did it and why, in one transaction; a refusal is written down alone."""
    if not reason.strip():
        raise Refused("a reason is needed")
    record = OperatorAction(
        actor=operator.actor, source=operator.source, action=action, target=f"backend:{name}", reason=reason
    )
    try:
        with transaction.atomic():
            changed = _change(name, change, record)
            record.result = "done" if changed else "unchanged"
            record.save(force_insert=True)
    except Refused as refusal:
        record.result, record.error, record.after = "refused", str(refusal), record.before
        record.save(force_insert=True)
        raise
    finally:
        metrics.AUDIT_EVENTS.labels(action, operator.source).inc()
    targets.forget()
    log.warning("operator.acted", action=action, backend=name, actor=operator.actor, result=record.result)
    if changed:
        wake.leases(_concerned(name))
    return changed


def _change(name: str, change: Change, record: OperatorAction) -> bool:
    row = Backend.objects.select_for_update(no_key=True).filter(pk=name).first()
    if row is None:
        raise Refused(f"there is no backend {name}")
    record.before = _state(row)
    if row.retired_at is not None:
        raise Refused(f"{name} is retired")
    wanted = change(row)
    if all(getattr(row, field) == value for field, value in wanted.items()):
        record.after = record.before
        return False
    Backend.objects.filter(pk=name).update(**wanted, updated_at=Now())
    row.refresh_from_db()
    record.after = _state(row)
    return True


def _state(row: Backend) -> dict[str, Any]:
    return {
        "fenced": row.fenced,
        "fenced_by": row.fenced_by,
        "drained": row.drained,
        "retired_at": row.retired_at.isoformat() if row.retired_at else None,
        "key_id": row.key_id,
    }


def _concerned(name: str) -> list[Any]:
    """Live work that a change of this backend may help or hold up: leases placed or removed there, or without any."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT lease_uuid FROM placements_operation WHERE backend = %(name)s AND settled_at IS NULL
            UNION SELECT lease_uuid FROM placements_maintenancecommand
                   WHERE backend = %(name)s AND finished_at IS NULL
            UNION SELECT lease_uuid FROM placements_teardown WHERE backend = %(name)s AND state <> 'done'
            UNION SELECT p.lease_uuid FROM placements_placement AS p JOIN leases_lease AS l ON l.uuid = p.lease_uuid
                   WHERE p.backend = %(name)s AND l.chain_state IN (1, 2) AND l.reason <> ''
            UNION SELECT uuid FROM leases_lease
                   WHERE reason IN ('no_backend', 'backend_fenced', 'backend_dialect', 'inventory_pending')
            """,
            {"name": name},
        )
        return [row[0] for row in cursor.fetchall()]
