"""A house that works by itself: a watcher, looks, lanes, pushes, and backends that report success, all on threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import UUID

from django.db import connection, connections

from leases import lanes
from leases.models import ChainAction, Lease
from leases.status import LeaseState
from placements.models import Operation, Teardown
from reconciliation.watcher import Watcher
from tests.reconciliation.story import Story, deliver
from tests.reconciliation.watching import watching

PAUSE_S = 0.05


@contextmanager
def keeping(story: Story) -> Iterator[Watcher]:
    """Let the house work until the block is left; what a thread raised is raised then."""
    stop = threading.Event()
    failed: list[BaseException] = []
    reported: set[UUID] = set()

    def push() -> None:
        story.sender.pull()
        found = Operation.objects.filter(state="accepted", settled_at=None).exclude(pk__in=reported)
        for operation in found:
            deliver("success", operation.lease_id, operation)
            reported.add(operation.pk)

    def again(work: Callable[[], Any]) -> None:
        try:
            while not stop.wait(PAUSE_S):
                work()
        except BaseException as error:  # noqa: BLE001 - raised again below
            failed.append(error)
        finally:
            connections.close_all()

    with ExitStack() as stack:
        watcher = stack.enter_context(watching())
        threads = [
            threading.Thread(target=again, args=(work,), daemon=True, name=name)
            for name, work in (("looks", story.look), ("lanes", lanes.run), ("pushes", push))
        ]
        for thread in threads:
            thread.start()
        try:
            yield watcher
        finally:
            stop.set()
            for thread in threads:
                thread.join(60)
    if failed:
        raise failed[0]


def unsettled(leases: list[UUID]) -> list[UUID]:
    """Those of these leases for which something is still to do, or which are not known yet."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT u.uuid FROM unnest(%s::uuid[]) AS u(uuid) LEFT JOIN leases_lease AS l ON l.uuid = u.uuid
             WHERE l.chain_state IS NULL OR l.chain_state = 1 OR l.due_at IS NOT NULL
            """,
            [leases],
        )
        return [row[0] for row in cursor.fetchall()]


def told(leases: list[UUID]) -> str:
    """Where those leases stand, for the message of a failed test."""
    rows = Lease.objects.filter(pk__in=leases).values_list("chain_state", "phase", "reason", "due_at", "last_error")
    kinds = {model.__name__: model.objects.filter(lease_id__in=leases).values("state").distinct().count()
             for model in (Operation, ChainAction, Teardown)}  # fmt: skip
    return f"{len(leases)} leases: {sorted({str(row) for row in rows})[:5]} {kinds}"


def acknowledged(story: Story, leases: list[UUID]) -> dict[UUID, int]:
    """How often each of these leases was acknowledged on chain."""
    counts = dict.fromkeys(leases, 0)
    for result in story.chain.txs():
        if result.code or result.tx.trusted:
            continue
        for kind, message in result.tx.messages:
            assert not kind.endswith("MsgRejectLease")
            if kind.endswith("MsgAcknowledgeLease"):
                for uuid in message.lease_uuids:
                    if UUID(uuid) in counts:
                        counts[UUID(uuid)] += 1
    return counts


def states(story: Story, leases: list[UUID]) -> set[LeaseState]:
    """The states that these leases have on chain."""
    return {story.state(uuid) for uuid in leases}
