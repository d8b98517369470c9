"""The one writer of ``MaintenanceCommand.state``, beside the claim that sends it; and of what hangs on it.

An update's bytes are a proposal until its backend took them. They are in force from then on, since an older backend
says no more; what was in force before stays, and is so again when the update is shown to have failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from uuid import UUID

from leases import payload_versions
from placements import command_sql as sql
from placements.command_sql import Moved
from placements.command_status import FINAL, OPEN, CommandState, sources


def move(
    commands: Mapping[UUID, int | None],
    to: CommandState,
    *,
    refusal: str = "",
    errors: Mapping[UUID, str] | None = None,
    delays: Mapping[UUID, timedelta] | None = None,
) -> list[Moved]:
    """Move each command that may go there and is still at this epoch (None: any); return those that went.

    Leaving the open states decides the tenant's answer (``settled_at``), a final one says how it went
    (``finished_at``). Back in ``reserved`` it is due again after its one of ``delays``. Lease rows are locked by the
    caller; payload versions follow in the same transaction.
    """
    moved = sql.update_state(
        commands,
        to=to,
        from_=sources(to),
        is_open=to in OPEN,
        is_final=to in FINAL,
        refusal=refusal,
        errors=errors or {},
        delays=delays or {},
    )
    versions = [one.payload_id for one in moved if one.payload_id is not None]
    match to:
        case CommandState.ACCEPTED:
            payload_versions.promote(versions)
        case CommandState.SUCCEEDED:
            payload_versions.promote(versions)
            payload_versions.confirm(versions)
        case CommandState.FAILED:
            payload_versions.take_back(versions)
        case CommandState.REFUSED | CommandState.ENDED:
            payload_versions.discard(versions)
    return moved
