"""Decisions for leases with restarts and updates that tenants asked for."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from placements.command_status import CommandState
from reconciliation.decisions import Announce, CommandResult, Conclude, EndCommands, Need, PushCommand, Rest, Wait
from reconciliation.facts_types import Absent, LeaseFacts, NeedKind, Unknown
from tests.reconciliation.known import (
    ACTIVE,
    B1,
    CLOSED,
    COMMAND,
    NOW,
    ago,
    callback,
    case,
    command,
    exactly,
    lease,
    owner,
    release,
    row,
    seconds,
    shown,
    world,
)

S = CommandState
READ = Need(NeedKind.MAINTENANCE_READ)
OTHER = UUID("6ba7b811-9dad-41d1-80b4-00c04fd430c8")
SILENT = Unknown("backend_silent")


def maintained(*commands, **changes) -> LeaseFacts:
    """An ACTIVE lease at b1 with these commands."""
    return lease(ACTIVE, placement=owner(), commands=commands, **changes)


def result(to: S, refusal: str = "", error: str = "", command: UUID = COMMAND) -> CommandResult:
    """The result of one command."""
    return CommandResult(command, to, refusal, error)


def concluded(*results: CommandResult, events=(), callbacks=()) -> Conclude:
    """The act, with one event or none."""
    return Conclude(results, events, callbacks)


WELL, BADLY = callback("success", received_at=ago(1)), callback("failed", error="it died", received_at=ago(1))
READY, FAILED = (("ready", ""),), (("failed", "it died"),)
sent = {"on_wire_until": ago(5)}

ON_WIRE = [
    case(
        "command_on_wire",
        "also with a report, which waits with it",
        maintained(command(S.IN_DOUBT, on_wire_until=NOW + seconds(20)), callbacks=(WELL,)),
        Wait(),
        phase="maintaining",
        after=20,
    ),
    case(
        "ended_with_command_on_wire",
        "LC-112: nothing is torn down under a call",
        exactly(CLOSED, placement=owner(), commands=(command(S.IN_DOUBT, on_wire_until=NOW + seconds(20)),)),
        Wait(),
        phase="tearing_down",
        reason="command_on_wire",
        after=20,
    ),
    case(
        "ended_with_command",
        "one that was not sent, and one whose result is awaited",
        exactly(
            CLOSED,
            placement=owner(),
            commands=(command(S.ACCEPTED, id=OTHER), command(S.RESERVED, due_at=NOW)),
        ),
        EndCommands((result(S.ENDED, "lease_ended"),)),
        phase="tearing_down",
        after=0,
    ),
    case(
        "ended_with_command",
        "of an accepted one only nothing more is expected",
        exactly(CLOSED, placement=owner(), commands=(command(S.ACCEPTED),)),
        EndCommands(()),
        phase="tearing_down",
        after=0,
    ),
]

RESERVED = [
    case(
        "command_reserved",
        "due at the sender",
        maintained(command(S.RESERVED, due_at=NOW, valid_until=NOW + seconds(30))),
        Wait(),
        phase="maintaining",
        after=5,
    ),
    case(
        "command_reserved",
        "its backend can't be reached",
        maintained(command(S.RESERVED, due_at=NOW + seconds(9), valid_until=NOW + seconds(30), refusal="not_sent")),
        Wait(),
        phase="maintaining",
        reason="backend_silent",
        after=30,
    ),
    *(
        case(
            "command_reserved",
            name,
            maintained(command(S.RESERVED, **fields)),
            PushCommand(COMMAND),
            phase="maintaining",
            after=60,
        )
        for name, fields in {
            "stale": {"due_at": NOW, "valid_until": ago(1)},
            "forgotten": {"due_at": None, "valid_until": NOW + seconds(30)},
        }.items()
    ),
    *(
        case(
            "command_reserved",
            reason,
            maintained(command(S.RESERVED, due_at=NOW), world=world(backends=(backend,))),
            Wait(),
            phase="maintaining",
            reason=reason,
            after=60,
        )
        for reason, backend in {
            "backend_fenced": replace(B1, fenced=True),
            "backend_dialect": replace(B1, is_understood=False),
            "backend_unconfigured": replace(B1, configured=False),
        }.items()
    ),
    case(
        "command_reserved",
        "nobody could be told of it for an hour",
        maintained(command(S.RESERVED, due_at=NOW, admitted_at=ago(3601))),
        concluded(result(S.FAILED, "not_delivered")),
        reason="not_delivered",
        after=0,
    ),
]

IN_DOUBT = [
    case(
        "observation",
        "what is about no command is told meanwhile",
        maintained(command(S.IN_DOUBT, **sent), callbacks=(callback("deprovisioned"),)),
        Announce((), (1,)),
        after=0,
    ),
    case("command_in_doubt", "read first", maintained(command(S.IN_DOUBT, **sent)), READ, after=5),
    *(
        case(
            "command_in_doubt",
            f"nothing shows after 30 s: {name}",
            maintained(command(S.IN_DOUBT, kind, **sent), maintenance=read),
            Wait(),
            phase="maintaining",
            reason=reason,
            after=15,
        )
        for name, kind, read, reason in [
            ("ready", "restart", shown(), "in_doubt"),
            ("silent", "restart", SILENT, "backend_silent"),
            ("not there", "restart", Absent(), "in_doubt"),
            ("an older release", "restart", shown("ready", release("active", age=60)), "in_doubt"),
            ("a release of other bytes", "update", shown("ready", release("active", sha256=b"x")), "in_doubt"),
            ("a release without a date", "restart", shown("ready", release("active", created_at=None)), "in_doubt"),
            ("another kind of work", "update", shown("restarting"), "in_doubt"),
        ]
    ),
    *(
        case(
            "command_in_doubt",
            name,
            maintained(command(S.IN_DOUBT, kind, **sent), maintenance=read),
            concluded(done, events=(event,)),
            after=0,
        )
        for name, kind, read, done, event in [
            ("at work", "restart", shown("restarting"), result(S.ACCEPTED), ("restarting", "")),
            ("at work on the update", "update", shown("updating"), result(S.ACCEPTED), ("updating", "")),
            ("new release", "restart", shown("ready", release("active")), result(S.SUCCEEDED), ("ready", "")),
            ("being made", "update", shown("ready", release("deploying")), result(S.ACCEPTED), ("updating", "")),
            ("made since", "update", shown("ready", release("superseded")), result(S.SUCCEEDED), ("ready", "")),
            (
                "rolled back",
                "update",
                shown("ready", release("active", version=1, age=99), release("failed", message="bad")),
                result(S.FAILED, "", "bad"),
                ("failed", "bad"),
            ),
            (
                "a backend that tells no manifests",
                "update",
                shown("ready", release("active", sha256=b"")),
                result(S.SUCCEEDED),
                ("ready", ""),
            ),
            ("a clock 4 s behind", "restart", shown("ready", release("active", age=34)), result(S.SUCCEEDED), READY[0]),
        ]
    ),
    case(
        "command_in_doubt",
        "nothing in 10 minutes",
        maintained(command(S.IN_DOUBT, first_dispatched_at=ago(601), **sent), maintenance=SILENT),
        concluded(result(S.FAILED, "outcome_unknown")),
        reason="outcome_unknown",
        after=0,
    ),
    case(
        "command_in_doubt",
        "the later, the rarer",
        maintained(command(S.IN_DOUBT, first_dispatched_at=ago(500), **sent), maintenance=shown()),
        Wait(),
        phase="maintaining",
        reason="in_doubt",
        after=60,
    ),
]

REPORTED = [
    *(
        case(
            "command_reported",
            f"{state} restart, {one.status}",
            maintained(command(state, **sent), callbacks=(one,)),
            concluded(done, events=events, callbacks=(1,)),
            after=0,
        )
        for state in (S.ACCEPTED, S.IN_DOUBT)
        for one, done, events in [
            (WELL, result(S.SUCCEEDED), READY),
            (BADLY, result(S.FAILED, "", "it died"), FAILED),
        ]
    ),
    case(
        "command_reported",
        "an update asks for its release",
        maintained(command(S.ACCEPTED, "update"), callbacks=(BADLY,)),
        READ,
        after=5,
    ),
    *(
        case(
            "command_reported",
            f"update, {name}",
            maintained(command(state, "update", **sent), callbacks=(one,), maintenance=read),
            concluded(*done, events=READY if one is WELL else FAILED, callbacks=(1,)),
            after=0,
        )
        for name, state, one, read, done in [
            ("TA-70 shown as failed", S.ACCEPTED, BADLY, shown("ready", release("failed")), [result(S.FAILED)]),
            ("it died later", S.ACCEPTED, BADLY, shown("failed", release("active")), [result(S.SUCCEEDED)]),
            ("about earlier work", S.ACCEPTED, BADLY, shown("updating", release("deploying")), []),
            ("at work, releases unread", S.ACCEPTED, BADLY, shown("updating"), []),
            ("no release shown", S.ACCEPTED, BADLY, shown(), [result(S.SUCCEEDED)]),
            ("no release, in doubt", S.IN_DOUBT, BADLY, shown(), []),
            ("well", S.ACCEPTED, WELL, shown("ready", release("active")), [result(S.SUCCEEDED)]),
            ("well, and silent since", S.IN_DOUBT, WELL, SILENT, [result(S.SUCCEEDED)]),
            ("a backend that lost it", S.ACCEPTED, BADLY, Absent(), [result(S.FAILED, "", "it died")]),
        ]
    ),
    case(
        "command_reported",
        "a failed update is not believed while the backend is silent",
        maintained(command(S.ACCEPTED, "update"), callbacks=(BADLY,), maintenance=SILENT),
        Wait(),
        phase="maintaining",
        reason="backend_silent",
        after=5,
    ),
    case(
        "command_reported",
        "nor after its time",
        maintained(command(S.ACCEPTED, "update", first_dispatched_at=ago(700)), callbacks=(BADLY,), maintenance=SILENT),
        concluded(result(S.SUCCEEDED), events=FAILED, callbacks=(1,)),
        after=0,
    ),
    case(
        "command_reported",
        "the older command is meant, and releases say of the newer update how it went",
        maintained(
            command(S.ACCEPTED, id=OTHER, first_dispatched_at=ago(90)),
            command(S.ACCEPTED, "update"),
            callbacks=(BADLY,),
            maintenance=shown("ready", release("failed", message="bad")),
        ),
        concluded(result(S.FAILED, "", "it died", OTHER), result(S.FAILED, "", "bad"), events=FAILED, callbacks=(1,)),
        after=0,
    ),
    case(
        "command_reported",
        "what was reported before it was sent is not about it",
        maintained(command(S.ACCEPTED), callbacks=(replace(BADLY, received_at=ago(31)),)),
        concluded(events=FAILED, callbacks=(1,)),
        after=0,
    ),
]

UNREPORTED = [
    case(
        "active_confirmed",
        "looked at again while a command's result is awaited",
        maintained(command(S.ACCEPTED)),
        Rest(),
        phase="active",
        after=60,
    ),
    case(
        "command_unreported",
        "two minutes later a list says ready",
        maintained(command(S.ACCEPTED, first_dispatched_at=ago(130)), listed=(row(),), last_status="restarting"),
        concluded(result(S.SUCCEEDED), events=READY),
        after=0,
    ),
    case(
        "command_unreported",
        "a list says failed",
        maintained(
            command(S.ACCEPTED, first_dispatched_at=ago(130)), listed=(row(status="failed"),), last_status="restarting"
        ),
        concluded(result(S.FAILED), events=(("failed", "restart failed"),)),
        after=0,
    ),
    case(
        "command_unreported",
        "subscribers know already",
        maintained(command(S.ACCEPTED, first_dispatched_at=ago(130)), listed=(row(),), last_status="ready"),
        concluded(result(S.SUCCEEDED)),
        after=0,
    ),
    case(
        "command_unreported",
        "an update asks for its release",
        maintained(command(S.ACCEPTED, "update", first_dispatched_at=ago(130)), listed=(row(),)),
        READ,
        after=5,
    ),
    *(
        case(
            "command_unreported",
            f"an update of 130 s, {name}",
            maintained(command(S.ACCEPTED, "update", first_dispatched_at=ago(130)), listed=(row(),), maintenance=read),
            concluded(done),
            after=0,
        )
        for name, read, done in [
            ("shown as failed", shown("ready", release("failed", message="bad")), result(S.FAILED, "", "bad")),
            ("shown as running", shown("ready", release("active")), result(S.SUCCEEDED)),
            ("not shown at all", shown(), result(S.SUCCEEDED)),
        ]
    ),
    case(
        "command_unreported",
        "its time is over",
        maintained(command(S.ACCEPTED, first_dispatched_at=ago(601))),
        concluded(result(S.SUCCEEDED)),
        after=0,
    ),
    case(
        "command_unreported",
        "an update whose time is over is not undone without proof",
        maintained(command(S.ACCEPTED, "update", first_dispatched_at=ago(601)), maintenance=SILENT),
        concluded(result(S.SUCCEEDED)),
        after=0,
    ),
]

COMMANDS = [*ON_WIRE, *RESERVED, *IN_DOUBT, *REPORTED, *UNREPORTED]
