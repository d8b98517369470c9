"""Whether the node's chain is the one whose events are stored. If not, no look believes it: the chain is suspect.

A node of another chain id, one far behind what was seen before for a minute, and one with another block at a height
whose hash is stored: each of these would make leases look absent, or bring back states long left. Suspicion stays
until the old chain is seen again, or an operator ends it with a reason. Nothing is destroyed meanwhile. That a node
does not hold the block by which the chain would be known is no reason to suspect it, nor to believe it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final

import structlog
from django.conf import settings
from django.db import transaction

from fred import due, metrics
from leases import wake
from leases.chain import noticed
from leases.chain.errors import ChainUnavailable, RpcError
from leases.chain.events import Header
from leases.chain.rpc import NodeRpc
from reconciliation import suspect_sql
from reconciliation.models import OperatorAction

log = structlog.get_logger("reconciliation.watcher")

FAR_BEHIND: Final = 100
"""Blocks below the newest head that a node may be for long without suspicion."""
BEHIND_FOR_S: Final = 60.0
"""How long a node may be further behind than that."""


class Suspicion(StrEnum):
    """Why a chain is suspect; the words are stored, and shown by readiness."""

    OTHER_CHAIN = "other_chain"
    BEHIND = "node_behind"
    OTHER_HISTORY = "other_history"


class Judge:
    """Judges the heads of one watcher. Blocking; used by one thread."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._behind_since: float | None = None

    def complaint(self, header: Header, rpc: NodeRpc) -> str:
        """Say why this head is not of our chain, or not of now; empty when it is, and then suspicion ends.

        Raises `ChainUnavailable` when the node cannot be asked for the block that would tell.
        """
        chain_id = settings.FRED.chain_id
        memory = suspect_sql.memory(chain_id)
        if header.chain_id not in {"", chain_id}:
            text = f"the node serves chain {header.chain_id}"
            noticed.fault("other_chain", text)
            _suspect(memory, Suspicion.OTHER_CHAIN, text)
            return text
        if memory is None:
            return ""
        if header.height < memory.head_height:
            return self._of_low_head(header, memory)
        self._behind_since = None
        return _of_history(header, memory, rpc)

    def _of_low_head(self, header: Header, memory: suspect_sql.Memory) -> str:
        text = f"the node is at height {header.height}, below what was seen before"
        metrics.CHAIN_STALE_READS.labels("latest_block").inc()
        noticed.fault("behind", text)
        if memory.head_height - header.height <= FAR_BEHIND:
            self._behind_since = None
            return text
        if self._behind_since is None:
            self._behind_since = self._clock()
        if self._clock() - self._behind_since >= BEHIND_FOR_S:
            _suspect(memory, Suspicion.BEHIND, f"{text} ({memory.head_height})")
        return text


def end(*, operator: bool, record: OperatorAction | None = None) -> bool:
    """Believe the chain again and look at what waited for that; False when it was believed.

    An operator vouches for the chain as it is: the block that was known is forgotten, and `record` says so, written
    in the same transaction.
    """

    def work() -> bool:
        ended = suspect_sql.believe(settings.FRED.chain_id, forget_hash=operator)
        if record is not None:
            record.result = "done" if ended else "unchanged"
            record.after = {"suspect_reason": ""}
            record.pk = None
            record.save(force_insert=True)
        if not ended:
            return False
        suspect_sql.wake_the_waiting()
        transaction.on_commit(wake.hint_look)
        return True

    ended = due.in_transaction(work)
    if ended:
        log.warning("watcher.believes", by="an operator" if operator else "the chain that was known is back")
    return ended


def _of_history(header: Header, memory: suspect_sql.Memory, rpc: NodeRpc) -> str:
    """Say why a head that is high enough is not of the chain that was known; else remember it, and end suspicion."""
    shows_known = _shows_known(header, memory, rpc)
    if shows_known is False:
        text = f"the node has another block {memory.known_height} than was seen before"
        noticed.fault("other_history", text)
        _suspect(memory, Suspicion.OTHER_HISTORY, text)
        return text
    if memory.suspect_reason and not (shows_known or _suffices(header, memory)):
        return f"the node does not show block {memory.known_height}, by which the chain would be known again"
    is_borne_out = _is_borne_out(header, memory, rpc)
    if is_borne_out is False:
        return f"the node has another block than its header {header.height} says"
    if is_borne_out:
        _remember(header, memory)
    if memory.suspect_reason:
        end(operator=False)
    return ""


def _suspect(memory: suspect_sql.Memory | None, reason: Suspicion, detail: str) -> None:
    if memory is None or memory.suspect_reason:
        return
    if suspect_sql.suspect(settings.FRED.chain_id, reason=reason.value, detail=detail):
        log.error("watcher.suspects", reason=reason.value, detail=detail)


def _shows_known(header: Header, memory: suspect_sql.Memory, rpc: NodeRpc) -> bool | None:
    """Whether the node's block at the known height is the known one; None when it holds none, or none is known."""
    if memory.known_height is None or not memory.known_hash:
        return None
    if header.height == memory.known_height and header.block_hash:
        return header.block_hash == memory.known_hash
    if header.height == memory.known_height + 1 and header.last_hash:
        return header.last_hash == memory.known_hash
    found = _hash_at(memory.known_height, rpc)
    return None if found is None else found == memory.known_hash


def _suffices(header: Header, memory: suspect_sql.Memory) -> bool:
    """Whether the header alone undoes what made the chain suspect: it names our id again, or no block is known."""
    if memory.suspect_reason == Suspicion.OTHER_CHAIN:
        return bool(header.chain_id)
    return memory.known_height is None


def _hash_at(height: int, rpc: NodeRpc) -> str | None:
    """The hash of the node's block at a height, None when it holds none. Raises `ChainUnavailable`."""
    try:
        return rpc.block_hash(height) or None
    except ChainUnavailable:
        raise
    except RpcError:
        return None


def _is_borne_out(header: Header, memory: suspect_sql.Memory, rpc: NodeRpc) -> bool | None:
    """Whether the node itself has the block that is to be remembered, where the header does not follow the known one.

    A header may be older than the answers beside it: told by a chain that was in its place a moment ago. None: the node
    does not hold the block, which proves nothing.
    """
    height, block_hash = _named(header)
    if memory.known_height is None or not block_hash or height <= memory.known_height:
        return True
    if header.height == memory.known_height + 1 and header.last_hash:
        return True
    found = _hash_at(height, rpc)
    return None if found is None else found == block_hash


def _named(header: Header) -> tuple[int, str]:
    """The newest block whose hash the header tells: its own, or the one before."""
    return (header.height, header.block_hash) if header.block_hash else (header.height - 1, header.last_hash)


def _remember(header: Header, memory: suspect_sql.Memory) -> None:
    height, block_hash = _named(header)
    if block_hash and height > (memory.known_height or 0):
        suspect_sql.remember(settings.FRED.chain_id, height=height, block_hash=block_hash)
