"""Rules for restarts and updates that tenants asked for: sending them once, and finding out how they went.

An older backend names no command when it reports, and runs one again each time it hears of it. So what may have arrived
is never sent again: the next report of the lease says how it went, or what the backend shows of it. While a command is
open nothing else is decided for its lease, unless the chain ends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from placements.command_status import LEASE_ENDED, PROGRESS, UNDELIVERED, UNHEARD, CommandState
from placements.status import NOT_SENT
from reconciliation.command_facts import CommandFact, MaintenanceFact, ReleaseFact
from reconciliation.decisions import CommandResult, Conclude, Decision, EndCommands, Need, PushCommand, Wait
from reconciliation.facts_types import Absent, CallbackFact, LeaseFacts, Limits, NeedKind, NotRead, Unknown

S = CommandState
CLOCKS_DIFFER = timedelta(seconds=5)
"""How much a backend's clock may be behind ours when it dates a release."""
RUNNING = frozenset({"active", "superseded"})
"""What a backend calls a release that came up."""


def command_on_wire(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """live, a command may be on the wire | wait for its answer; a report that is there already waits too"""
    command = facts.command
    if facts.is_ended or command is None or command.on_wire_until is None or not command.is_on_wire(now):
        return None
    return Decision(Wait(), "maintaining", "", min(command.on_wire_until - now, limits.longest))


def command_reported(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """live, a report, and a command that was sent
    | that is its result: tell subscribers; an update's failure must show in the backend's releases too
    """
    heard = [one for one in facts.callbacks if one.status in {"success", "failed"}]
    sent = [one for one in facts.commands if one.state is not S.RESERVED]
    if facts.is_ended or facts.operation is not None or not heard or not sent:
        return None
    if any(one.is_update for one in sent):
        if isinstance(facts.maintenance, NotRead):
            return Decision(Need(NeedKind.MAINTENANCE_READ), after=limits.watch_first)
        failed = any(one.status == "failed" for one in heard)
        if isinstance(facts.maintenance, Unknown) and failed and _age(sent[0], now) <= limits.maintenance_timeout:
            return Decision(Wait(), "maintaining", facts.maintenance.reason, limits.watch_first)
    results = tuple(_reported(facts, heard, sent))
    events = tuple(("ready", "") if one.status == "success" else ("failed", one.error) for one in heard)
    return Decision(Conclude(results, events, tuple(one.id for one in heard)), after=limits.at_once)


def command_reserved(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """live, a command that was not sent yet
    | wait for the sender; stale: renew it; past its time limit: it failed
    """
    command = facts.command
    if facts.is_ended or command is None or command.state is not S.RESERVED:
        return None
    if now - command.admitted_at > limits.undelivered:
        result = CommandResult(command.id, S.FAILED, UNDELIVERED)
        return Decision(Conclude((result,)), reason="not_delivered", after=limits.at_once)
    backend = facts.world.backend(command.backend)
    if backend is None:
        return Decision(Wait(), "maintaining", "backend_unconfigured", limits.longest)
    if not backend.takes_calls:
        reason = "backend_fenced" if backend.fenced else "backend_dialect"
        return Decision(Wait(), "maintaining", reason, limits.longest)
    reason = "backend_silent" if command.refusal == NOT_SENT else ""
    if command.due_at is None or command.valid_until is None or command.valid_until <= now:
        return Decision(PushCommand(command.id), "maintaining", reason, limits.longest)
    # Who takes it to send it does not wake the lease: should that process die, the look has to find out.
    longest = limits.longest if reason else limits.watch_first
    return Decision(Wait(), "maintaining", reason, min(command.valid_until - now, longest))


def command_in_doubt(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """live, a command in doubt
    | read the backend: at work, or a new release: that is the answer; nothing in time: it failed
    """
    command = facts.command
    if facts.is_ended or command is None or command.state is not S.IN_DOUBT:
        return None
    if isinstance(facts.maintenance, NotRead):
        return Decision(Need(NeedKind.MAINTENANCE_READ), after=limits.watch_first)
    if (shown := _shown(command, facts)) is not None:
        return Decision(shown, after=limits.at_once)
    age = _age(command, now)
    if age > limits.maintenance_timeout:
        result = CommandResult(command.id, S.FAILED, UNHEARD)
        return Decision(Conclude((result,)), reason="outcome_unknown", after=limits.at_once)
    reason = facts.maintenance.reason if isinstance(facts.maintenance, Unknown) else "in_doubt"
    wait = min(max(age / 2, limits.watch_first), limits.watch_longest)
    return Decision(Wait(), "maintaining", reason, wait)


def command_unreported(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """live, an accepted command without report, and its backend's list says ready or failed, or its time is over
    | that is the result; an update failed only if the backend's releases say so
    """
    awaited = [one for one in facts.commands if one.state is S.ACCEPTED]
    if facts.is_ended or not awaited:
        return None
    age = _age(awaited[0], now)
    row = None
    if age >= limits.confirm_after:
        backend = awaited[0].backend
        listed = (one for one in facts.listed if one.is_ours and one.backend == backend)
        row = next((one for one in listed if one.status in {"ready", "failed"}), None)
    is_late = age > limits.maintenance_timeout
    if row is None and not is_late:
        return None
    if any(one.is_update for one in awaited) and isinstance(facts.maintenance, NotRead):
        return Decision(Need(NeedKind.MAINTENANCE_READ), after=limits.watch_first)
    results = tuple(_listed(facts, awaited, failed=row is not None and row.status == "failed", is_late=is_late))
    if not results:
        return None
    events: tuple[tuple[str, str], ...] = ()
    if row is not None and facts.last_status in PROGRESS:
        text = f"{awaited[-1].kind.value} failed"
        events = (("ready", ""),) if row.status == "ready" else (("failed", text),)
    return Decision(Conclude(results, events), after=limits.at_once)


def ended_with_command_on_wire(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """ended, while a command may be on the wire | wait for its answer, or for its latest end"""
    command = facts.command
    if not facts.is_ended or command is None or command.on_wire_until is None or not command.is_on_wire(now):
        return None
    return Decision(Wait(), "tearing_down", "command_on_wire", min(command.on_wire_until - now, limits.longest))


def ended_with_command(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """ended, with a command whose end is not known | end the command; of an accepted one nothing more is expected"""
    if not facts.is_ended or not facts.commands:
        return None
    command = facts.command
    ended = (CommandResult(command.id, S.ENDED, LEASE_ENDED),) if command is not None else ()
    return Decision(EndCommands(ended), "tearing_down", after=limits.at_once)


REPORTS = (command_on_wire, command_reported)
"""Before reports are announced that are about no command."""
LIVE = (command_reserved, command_in_doubt, command_unreported)
ENDED = (ended_with_command_on_wire, ended_with_command)


def _age(command: CommandFact, now: datetime) -> timedelta:
    return now - (command.first_dispatched_at or command.admitted_at)


def _reported(facts: LeaseFacts, heard: Iterable[CallbackFact], sent: Iterable[CommandFact]) -> Iterator[CommandResult]:
    """Reports in their order are about the oldest command that could have caused them; releases speak for updates."""
    left = list(sent)
    for callback in heard:
        about = next((one for one in left if _could_cause(one, callback)), None)
        if about is None:
            continue
        left.remove(about)
        if (result := _result(about, callback, facts)) is not None:
            yield result
    for one in left:
        if one.is_update and (shown := _said_by_release(one, facts)) is not None:
            yield shown


def _could_cause(command: CommandFact, callback: CallbackFact) -> bool:
    sent_at, received_at = command.first_dispatched_at, callback.received_at
    return sent_at is None or received_at is None or received_at >= sent_at


def _result(command: CommandFact, callback: CallbackFact, facts: LeaseFacts) -> CommandResult | None:
    """What a report says of a command; None: it was about something else."""
    well = callback.status == "success"
    plain = CommandResult(command.id, S.SUCCEEDED if well else S.FAILED, error="" if well else callback.error)
    if not command.is_update or isinstance(facts.maintenance, Absent):
        return plain
    if isinstance(facts.maintenance, Unknown):  # a success, or its time is over
        return plain if well or command.state is S.IN_DOUBT else CommandResult(command.id, S.SUCCEEDED)
    if _release_of(command, facts) is not None:
        return _said_by_release(command, facts)
    if isinstance(facts.maintenance, MaintenanceFact) and facts.maintenance.status == command.kind.progress:
        return None  # it is at work yet
    # Nothing new is shown: what the backend took is not shown to have failed, and a doubt stays one.
    return CommandResult(command.id, S.SUCCEEDED) if command.state is S.ACCEPTED else None


def _listed(
    facts: LeaseFacts, awaited: Iterable[CommandFact], *, failed: bool, is_late: bool
) -> Iterator[CommandResult]:
    for one in awaited:
        if not one.is_update:
            yield CommandResult(one.id, S.FAILED if failed else S.SUCCEEDED)
        elif (shown := _said_by_release(one, facts)) is not None:
            yield shown
        elif is_late or (isinstance(facts.maintenance, MaintenanceFact) and _release_of(one, facts) is None):
            yield CommandResult(one.id, S.SUCCEEDED)


def _shown(command: CommandFact, facts: LeaseFacts) -> Conclude | None:
    """What the backend shows of a command in doubt."""
    if not isinstance(facts.maintenance, MaintenanceFact):
        return None
    if (said := _said_by_release(command, facts)) is not None:
        event = ("ready", "") if said.to is S.SUCCEEDED else ("failed", said.error)
        return Conclude((said,), (event,))
    progress = command.kind.progress
    if _release_of(command, facts) is not None or facts.maintenance.status == progress:
        return Conclude((CommandResult(command.id, S.ACCEPTED),), ((progress, ""),))
    return None


def _said_by_release(command: CommandFact, facts: LeaseFacts) -> CommandResult | None:
    """How a command went as its release says; None: there is none, or it is not up yet."""
    release = _release_of(command, facts)
    if release is None or (release.status != "failed" and release.status not in RUNNING):
        return None
    if release.status == "failed":
        return CommandResult(command.id, S.FAILED, error=release.message)
    return CommandResult(command.id, S.SUCCEEDED)


def _release_of(command: CommandFact, facts: LeaseFacts) -> ReleaseFact | None:
    """The newest release made since a command was sent; for an update one with its manifest, if they are told."""
    read = facts.maintenance
    if not isinstance(read, MaintenanceFact) or command.first_dispatched_at is None:
        return None
    since = command.first_dispatched_at - CLOCKS_DIFFER
    newer = [one for one in read.releases if one.created_at is None or one.created_at >= since]
    if command.is_update and any(one.sha256 for one in read.releases):
        newer = [one for one in newer if one.sha256 == command.payload_sha256]
    elif not command.is_update:
        newer = [one for one in newer if one.created_at is not None]
    return max(newer, key=lambda one: one.version, default=None)
