"""How the rows of each table are claimed, made into pushes, and kept while they are on their way.

The clerk works through the desks in their order: removals first, they make room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol
from uuid import UUID

from backends.client import BackendTarget
from fred import crash
from fred.due import renew
from placements import command_calls, command_sql, push_sql, pushes
from placements.models import Teardown
from placements.pushes import Claimed, Push, Table, Unsendable


class Row(Protocol):
    """A claimed row as its statement returned it."""

    @property
    def id(self) -> Any:
        """Its key."""

    @property
    def backend(self) -> str:
        """Where it goes."""


@dataclass(frozen=True, slots=True)
class Desk:
    """The statements of one table. All of them commit by themselves.

    ``claim`` takes due rows, for each backend as many as there is room; ``load`` reads those of the rows handed over
    that are still claimed so; ``pushes`` makes pushes, given the monotonic time up to which each claim was known to be
    ours; ``renew`` prolongs the claims of pushes and names those that are still ours.
    """

    table: Table
    claim: Callable[[Mapping[str, int]], Sequence[Row]]
    load: Callable[[Sequence[Claimed]], Sequence[Row]]
    pushes: Callable[..., tuple[list[Push], list[Unsendable]]]
    renew: Callable[[Iterable[Push]], set[Any]]
    claimed_point: str
    """Where a test can kill the process that has just claimed."""

    @property
    def is_teardowns(self) -> bool:
        """Whether its rows use the slots of removals."""
        return self.table is Table.TEARDOWNS

    def made(
        self, rows: Sequence[Row], targets: Mapping[str, BackendTarget], *, since: Mapping[Any, float]
    ) -> tuple[list[Push], list[Unsendable]]:
        """Pushes of these rows, and those of them that can't be sent."""
        return self.pushes(rows, targets, confirmed_at=since)


def _load_operations(claims: Sequence[Claimed]) -> list[push_sql.OperationRow]:
    return push_sql.load_operations([(claim.id, claim.epoch) for claim in claims])


def _nothing(_: Sequence[Claimed]) -> list[Row]:
    return []


def _load_commands(claims: Sequence[Claimed]) -> list[command_sql.CommandRow]:
    rows = command_sql.take([(claim.id, claim.epoch) for claim in claims])
    crash.point("command.taken")
    return rows


def _renew_calls(table: str, held: Iterable[Push]) -> set[UUID]:
    calls = {push.operation_id: push for push in held}
    unposted = {id_: int(push.target.timeout * 1000) for id_, push in calls.items() if not push.posted}
    return push_sql.renew(table, {id_: push.epoch for id_, push in calls.items()}, unposted_ms=unposted)


def _renew_teardowns(held: Iterable[Push]) -> set[Any]:
    return renew(Teardown, {push.teardown_id: push.epoch for push in held})


DESKS: Final = (
    Desk(
        table=Table.TEARDOWNS,
        claim=push_sql.claim_teardowns,
        load=_nothing,  # nobody hands these over
        pushes=pushes.of_teardowns,
        renew=_renew_teardowns,
        claimed_point="teardown.claimed",
    ),
    Desk(
        table=Table.OPERATIONS,
        claim=push_sql.claim_operations,
        load=_load_operations,
        pushes=pushes.of_operations,
        renew=partial(_renew_calls, "placements_operation"),
        claimed_point="dispatch.claimed",
    ),
    Desk(
        table=Table.COMMANDS,
        claim=command_sql.claim,
        load=_load_commands,
        pushes=command_calls.of_commands,
        renew=partial(_renew_calls, "placements_maintenancecommand"),
        claimed_point="command.claimed",
    ),
)
BY_TABLE: Final = {desk.table: desk for desk in DESKS}
