"""Acts about maintenance commands: see ``act``, whose table has them too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from placements import command_sql, command_transitions
from placements.command_status import CommandState
from reconciliation import act_sql as sql
from reconciliation import decisions as d
from reconciliation.command_admission import VALID_FOR

if TYPE_CHECKING:
    from reconciliation.act import Decided, Outcome


def conclude(leases: Sequence[Decided], outcome: Outcome) -> None:
    """Write how commands went, their payloads' versions with it; tell subscribers, and mark the reports as used."""
    _move([result for one in leases for result in one.act.results])
    sql.apply_callbacks([id_ for one in leases for id_ in one.act.callbacks])
    for one in leases:
        for status, error in one.act.events:
            outcome.tell(one.uuid, status, error)


def push_command(leases: Sequence[Decided], outcome: Outcome) -> None:
    """Let commands that were never sent be sent for another while."""
    command_sql.make_due([one.act.command for one in leases], valid_for=VALID_FOR)
    outcome.dispatch = True


def end_commands(leases: Sequence[Decided], _outcome: Outcome) -> None:
    """The lease ended first: nothing of its commands is sent or expected any more; answers that were given stay."""
    _move([result for one in leases for result in one.act.ended])
    command_sql.finish_unheard([one.uuid for one in leases])


def _move(results: Sequence[d.CommandResult]) -> None:
    groups: dict[tuple[CommandState, str], dict[UUID, str]] = {}
    for one in results:
        groups.setdefault((one.to, one.refusal), {})[one.command] = one.error
    for (to, refusal), errors in groups.items():
        command_transitions.move(dict.fromkeys(errors), to, refusal=refusal, errors=errors)


ACTS: Mapping[type, Callable[[Sequence[Decided], Outcome], None]] = {
    d.Conclude: conclude,
    d.PushCommand: push_command,
    d.EndCommands: end_commands,
}
