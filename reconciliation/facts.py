"""Gather: everything a look knows about a batch of leases, in a few statements and as few reads of the chain."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings
from django.db import transaction

from fred import breaker, due, metrics
from fred.models import PeriodicTask
from leases import sql as lease_sql
from leases import wake
from leases.chain import noticed
from leases.chain.client import Absent as ChainAbsent
from leases.chain.client import ChainLease
from leases.chain.client import ExactLease as ChainExact
from leases.status import TERMINAL, LeaseState
from placements.command_status import CommandKind, CommandState
from placements.status import OperationState
from reconciliation import facts_sql as q
from reconciliation import facts_types as f
from reconciliation import suspect_sql
from reconciliation.command_facts import CommandFact
from reconciliation.sources import Sources, provider_uuid

LIST_FROM = 20
"""A batch with at least this many leases to read asks for the list of PENDING ones first."""
SUSPECT = f.Unknown("chain_suspect")
LISTING = "pending-listing"
LISTING_WAIT_S = 2.0
LISTING_MOST_S = 8.0
"""A listing under way is waited for, longer while somebody is at it, but by one gather no longer than this in all:
reading each lease would slow it down."""

R = TypeVar("R", bound=tuple[Any, ...])


def gather(claimed: Mapping[UUID, int], sources: Sources) -> tuple[dict[UUID, f.LeaseFacts], datetime]:
    """Facts of these leases (uuid to the epoch of the claim) and the time they are of.

    Leases whose stored facts are older than their news are read from the chain first; what was read is stored, and
    wakes nobody who still holds the claim. A lease whose claim was lost meanwhile, to somebody else's listing perhaps,
    is missing: deciding on it would be in vain. While the chain is suspect nothing is read, and nothing known of it is
    believed.
    """
    if suspect_sql.standing(settings.FRED.chain_id)[0]:
        exact: dict[UUID, f.ChainFact] = dict.fromkeys(claimed, SUSPECT)
    else:
        exact = _refresh(claimed, sources)
    return _assemble(q.standing(claimed), exact, sources), q.now()


def exact_reads(wanted: Iterable[UUID], claimed: Mapping[UUID, int], sources: Sources) -> dict[UUID, f.ChainFact]:
    """Read these leases exactly now and store what the chain said; the facts are good for destroying by."""
    if suspect_sql.standing(settings.FRED.chain_id)[0]:
        return dict.fromkeys(wanted, SUSPECT)
    answers = sources.exact(wanted)
    _store(answers, claimed)
    rows = {row[0]: row for row in q.leases(list(answers))}
    found: dict[UUID, f.ChainFact] = {}
    for uuid, answer in answers.items():
        match answer:
            case f.Unknown():
                found[uuid] = answer
            case ChainAbsent(height=height):
                behind = _behind(rows[uuid], height)
                doubt = f.Unknown("chain_stale", behind=behind) if behind else f.Unknown("chain_unknown")
                found[uuid] = f.Absent() if not behind and rows[uuid][3] is None else doubt
                if behind:
                    _count_stale(uuid, height)
                elif rows[uuid][3] is not None or rows[uuid][9] >= 0:  # it was read, or announced
                    noticed.fault("lease_unknown", str(uuid))
            case ChainExact(lease=lease, height=height):
                behind = _behind(rows[uuid], height)
                found[uuid] = f.Unknown("chain_stale", behind=behind) if behind else f.ExactLease(lease.state)
                if behind:
                    _count_stale(uuid, height)
                if rows[uuid][3] in TERMINAL:  # a stored end is exact for ever, whatever a node behind says
                    found[uuid] = f.ExactLease(LeaseState(rows[uuid][3]))
    return found


def _behind(row: tuple[Any, ...], height: int) -> int:
    """How many blocks a read at this height lies below the lease's newest news or read; 0 when it does not."""
    return max(int(row[9]) - height, int(row[4]) - height, 0)


def _count_stale(uuid: UUID, height: int) -> None:
    metrics.CHAIN_STALE_READS.labels("get_lease").inc()
    noticed.fault("stale_read", f"lease {uuid} at {height}")


def _refresh(claimed: Mapping[UUID, int], sources: Sources) -> dict[UUID, f.ChainFact]:
    """Read what is older than its news; return what exact reads said, facts and doubts."""
    todo = q.outdated(list(claimed))
    until = time.monotonic() + LISTING_MOST_S
    for _ in range(2):  # what another's listing has left out gets one of our own
        if len(todo) < LIST_FROM:
            break
        is_whole = _list_pending(claimed, sources, until=until)
        todo = q.outdated(todo)
        if not is_whole:
            break
    return exact_reads(todo, claimed, sources) if todo else {}


def _list_pending(claimed: Mapping[UUID, int], sources: Sources, *, until: float) -> bool:
    """Refresh rows from one list of PENDING leases, ours or one that somebody else is reading; False: it broke off.

    What was listed is stored as it comes, so that those who wait can go on; it is true also where the list breaks off.
    """
    PeriodicTask.objects.bulk_create([PeriodicTask(name=LISTING, due_at=q.now())], ignore_conflicts=True)
    mine = due.claim(PeriodicTask, 1, where="t.name = %s", params=[LISTING])
    if not mine:
        _wait_for_listing(claimed, until=until)
        return True

    def store(part: Sequence[tuple[ChainLease, int]]) -> None:
        # What another look has read meanwhile is not written again: looks of one burst would each write all of it.
        known = q.fresh([lease.uuid for lease, _ in part])
        chunk = [pair for pair in part if pair[0].uuid not in known]
        due.in_transaction(partial(_store_reads, chunk, exact=False, claimed=claimed))

    try:
        with due.holding(PeriodicTask, {LISTING: mine[0].epoch}, seconds=10):
            return sources.pending(provider_uuid(), store=store)
    finally:
        due.release(PeriodicTask, {LISTING: mine[0].epoch})


def _wait_for_listing(claimed: Mapping[UUID, int], *, until: float) -> None:
    """Until all of these are fresh, or the time is over in which somebody's listing may make them so."""
    began = time.monotonic()
    while (now := time.monotonic()) < until:
        time.sleep(0.05)
        if not q.outdated(list(claimed)) or (now - began > LISTING_WAIT_S and not q.is_held(LISTING)):
            return


def _store(answers: Mapping[UUID, Any], claimed: Mapping[UUID, int]) -> None:
    reads = [(answer.lease, answer.height) for answer in answers.values() if isinstance(answer, ChainExact)]
    absent = {uuid: answer.height for uuid, answer in answers.items() if isinstance(answer, ChainAbsent)}

    def store() -> None:
        _store_reads(reads, exact=True, claimed=claimed)
        lease_sql.store_absent(absent)

    if reads or absent:
        due.in_transaction(store)


def _store_reads(reads: Iterable[tuple[ChainLease, int]], *, exact: bool, claimed: Mapping[UUID, int]) -> None:
    """Write what was read. Leases of other looks that it wakes are due again: somebody is asked to take them."""
    stored = lease_sql.store_reads(reads, exact=exact, claimed=claimed)
    if any(one.woken for one in stored.values()):
        wake.hint_after_commit()


def _assemble(uuids: Sequence[UUID], exact: Mapping[UUID, f.ChainFact], sources: Sources) -> dict[UUID, f.LeaseFacts]:
    with transaction.atomic():
        # Before what the walks listed: the rows of a walk that is complete by now are there when they are read.
        world = _world(sources)
        leases = {row[0]: row for row in q.leases(uuids)}
        with_any = q.present(uuids)

        def read(kind: str, select: Callable[[Sequence[UUID]], list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
            return select(with_any[kind]) if with_any[kind] else []

        operations = {row[0]: row for row in read("open_operations", q.open_operations)}
        histories = {row[0]: row for row in read("histories", q.histories)}
        placements = {row[0]: row for row in read("placements", q.placements)}
        actions = _grouped(read("actions", q.actions))
        teardowns = _grouped(read("teardowns", q.teardowns))
        callbacks = _grouped(read("callbacks", q.unapplied_callbacks))
        statuses = dict(read("statuses", q.last_statuses))
        commands = _grouped(read("commands", q.commands))
        listed, retained = _grouped(read("listed", q.listed)), _grouped(read("retained", q.retained))
        needs_payload = {
            uuid for uuid, row in leases.items() if row[7] and uuid not in operations and row[3] not in TERMINAL
        }
        payloads = {row[0]: row for row in q.payloads(needs_payload)} if needs_payload else {}
    walks = {one.name: one.walked_at for one in world.backends}
    found = {}
    for uuid, row in leases.items():
        present, kept, absent = _evidence(row[10], listed.get(uuid, ()), retained.get(uuid, ()), walks)
        found[uuid] = f.LeaseFacts(
            uuid=uuid,
            chain=exact.get(uuid) or _stored(row),
            tenant=row[1] or "",
            sku=row[6],
            meta_hash=bytes(row[7]),
            created_at=row[8],
            touched_at=row[10],
            phase=row[11],
            reason=row[12],
            payload=_payload(payloads.get(uuid)) if uuid in needs_payload else f.NotRead(),
            operation=_operation(operations.get(uuid)),
            history=f.HistoryFact(*histories[uuid][1:]) if uuid in histories else f.HistoryFact(),
            placement=_placement(placements.get(uuid)),
            commands=tuple(_command(one) for one in commands.get(uuid, ())),
            actions=tuple(f.ActionFact(*one[1:]) for one in actions.get(uuid, ())),
            teardowns=tuple(f.TeardownFact(*one[1:]) for one in teardowns.get(uuid, ())),
            callbacks=tuple(f.CallbackFact(*one[1:]) for one in callbacks.get(uuid, ())),
            last_status=statuses.get(uuid, ""),
            listed=present,
            retained_at=kept,
            absent_at=absent,
            world=world,
        )
    return found


def _evidence(
    touched_at: datetime | None,
    listed: Iterable[tuple[Any, ...]],
    retained: Iterable[tuple[Any, ...]],
    walks: Mapping[str, datetime | None],
) -> tuple[tuple[f.ProvisionFact, ...], tuple[str, ...], frozenset[str]]:
    """What walks say of a lease, as far as they began after anything last changed for it: listed, kept, absent."""
    present = [row for row in listed if touched_at is None or row[4] > touched_at]
    kept = tuple(row[1] for row in retained if touched_at is None or row[2] > touched_at)
    seen_at = {row[1] for row in present}
    absent = frozenset(
        name
        for name, at in walks.items()
        if at is not None and (touched_at is None or at > touched_at) and name not in seen_at
    )
    if not present:
        return (), kept, absent
    ours = (None, provider_uuid())
    return tuple(f.ProvisionFact(row[1], row[2], is_ours=row[3] in ours) for row in present), kept, absent


def _world(sources: Sources) -> f.WorldFact:
    backends = tuple(
        f.BackendFact(
            name=name,
            skus=frozenset(skus),
            is_default=is_default,
            configured=configured,
            fenced=fenced,
            drained=drained,
            is_understood=is_understood,
            breaker_open=breaker.is_open(name),
            answers=sources.answers(name),
            walked_at=walked_at,
        )
        for name, skus, is_default, configured, fenced, drained, is_understood, walked_at in q.backends()
    )
    walks = [one.walked_at for one in backends if one.configured]
    head = q.cursor(settings.FRED.chain_id)
    return f.WorldFact(
        backends=backends,
        head_age=head[0] if head else None,
        trusted_from_at=head[1] if head else None,
        trusted_block_at=head[2] if head else None,
        walked_all_since=min((at for at in walks if at is not None), default=None) if all(walks) else None,
    )


def _stored(row: tuple[Any, ...]) -> f.ChainFact:
    state = row[3]
    if state is None:
        return f.NotRead()
    if state in TERMINAL:
        return f.ExactLease(LeaseState(state))
    if row[4] < row[9]:
        return f.Unknown("chain_stale", behind=row[9] - row[4])
    return f.ListedLease(LeaseState(state))


def _operation(row: tuple[Any, ...] | None) -> f.OperationFact | None:
    if row is None:
        return None
    return f.OperationFact(
        id=row[1],
        backend=row[2],
        state=OperationState(row[3]),
        created_at=row[4],
        valid_until=row[5],
        due_at=row[6],
        first_dispatched_at=row[7],
        last_dispatched_at=row[8],
        on_wire_until=row[9],
        dispatch_count=row[10],
        refusal=row[11],
        error=row[12],
        is_restore=row[13] == "restore",
    )


def _command(row: tuple[Any, ...]) -> CommandFact:
    return CommandFact(
        id=row[1],
        kind=CommandKind(row[2]),
        backend=row[3],
        state=CommandState(row[4]),
        admitted_at=row[5],
        due_at=row[6],
        first_dispatched_at=row[7],
        on_wire_until=row[8],
        valid_until=row[9],
        refusal=row[10],
        payload_sha256=bytes(row[11]),
    )


def _placement(row: tuple[Any, ...] | None) -> f.PlacementFact | None:
    return f.PlacementFact(*row[1:]) if row is not None else None


def _payload(row: tuple[Any, ...] | None) -> f.PayloadFact | f.Absent | f.Unknown:
    if row is None:
        return f.Absent()
    return f.PayloadFact(bytes(row[1]), row[2], row[3]) if row[4] else f.Unknown("payload_unreadable")


def _grouped(rows: Iterable[R]) -> dict[UUID, list[R]]:
    """Rows by their first column."""
    groups: dict[UUID, list[R]] = {}
    for row in rows:
        groups.setdefault(row[0], []).append(row)
    return groups
