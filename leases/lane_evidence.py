"""What proves the fate of a transaction that no node finds: its signer's sequence, and its leases.

Once an account's committed sequence is past a transaction's, its bytes can't come into a block any more, so what its
leases show at that height or later is all that it will ever have done. Nothing here writes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import structlog

from leases import tx_sql
from leases.chain.client import Absent, ChainClient, ExactLease, Unknown
from leases.chain.errors import ChainError
from leases.tx_sql import Bound, OpenTx
from leases.wishes import WishState, wish_state_as_read

log = structlog.get_logger("leases.lanes")

INDEX_LOST_AFTER = timedelta(seconds=10)
"""So long after a sequence was seen to be used its transaction is found, if it ever is: a late index comes before.

Not so where a node died right after a block: it never finds that block's transactions again.
"""
SAMPLE = 3
MOST_SIGHTINGS = 1000
OVER = frozenset({WishState.DONE, WishState.MOOT})


@dataclass(frozen=True, slots=True)
class Overtaken:
    """Its messages took no effect and never will: other bytes took its sequence, or it failed."""


@dataclass(frozen=True, slots=True)
class TookEffect:
    """All its leases are where it takes them, or went another way: how each action stands, and what was read."""

    actions: Sequence[Bound]
    reads: Mapping[UUID, ExactLease]
    how: Mapping[int, WishState]


class Sightings:
    """When this process first saw each transaction's sequence used; another process begins anew. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first: dict[int, float] = {}

    def since(self, tx: int) -> timedelta:
        """How long ago that was; nothing the first time."""
        now = time.monotonic()
        with self._lock:
            while len(self._first) >= MOST_SIGHTINGS and tx not in self._first:
                del self._first[next(iter(self._first))]
            return timedelta(seconds=now - self._first.setdefault(tx, now))


sightings = Sightings()


def of_used_sequence(tx: OpenTx, chain: ChainClient) -> Overtaken | TookEffect | None:
    """What is proven about a transaction that was not found; None while its hash has to decide, as ever.

    The index alone proves nothing: it may lag. Silence proves nothing either.
    """
    actions = tx_sql.bound(tx.id)
    if not actions:
        return None
    used_at = _sequence_used_at(tx, chain)
    if used_at is None:
        return None
    used_for = sightings.since(tx.id)
    some = actions[:SAMPLE]
    reads = chain.leases([action.lease for action in some])
    if any(_wish_state(action, reads[action.lease], used_at) is WishState.SEND for action in some):
        log.warning("lane.key_used_elsewhere", signer=tx.signer, tx=tx.tx_hash, ours=tx.sequence, height=used_at)
        return Overtaken()
    return _effect(actions, used_at, chain) if used_for >= INDEX_LOST_AFTER else None


def _effect(actions: Sequence[Bound], used_at: int, chain: ChainClient) -> TookEffect | None:
    found = chain.leases([action.lease for action in actions])
    how = {action.id: _wish_state(action, found[action.lease], used_at) for action in actions}
    if not OVER.issuperset(how.values()):
        return None
    return TookEffect(actions, {uuid: read for uuid, read in found.items() if isinstance(read, ExactLease)}, how)


def _wish_state(action: Bound, read: ExactLease | Absent | Unknown, used_at: int) -> WishState:
    """How it stands by a read of that height or later; an older one leaves it in doubt."""
    if not isinstance(read, ExactLease) or read.height < used_at:
        return WishState.DOUBT
    return wish_state_as_read(action.verb, read)


def _sequence_used_at(tx: OpenTx, chain: ChainClient) -> int | None:
    """A height at which the account's committed sequence is past the transaction's; None where none is known."""
    try:
        account = chain.account(tx.signer)
    except ChainError:
        return None
    return account.height if account.height >= 0 and account.sequence > tx.sequence else None
