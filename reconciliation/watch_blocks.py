"""Reading blocks one after the other: the only thing that moves the cursor."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import structlog
from django.conf import settings

from fred import crash
from leases.chain.errors import ChainUnavailable, ResultsNotYet, ResultsPruned, RpcError
from leases.chain.events import EventType, LeaseEvent
from leases.chain.rpc import NodeRpc
from reconciliation import watch_sql, watch_store

log = structlog.get_logger("reconciliation.watcher")

LONG_GAP = 200
"""Blocks behind the head from which on reading each of them costs more than a sweep."""
TOGETHER = 20
"""Blocks whose events are stored at once while catching up."""
PATIENCE_S = 5.0
"""How long the results of a block may be missing that the node has announced."""
SEARCHED = (EventType.CREATED, EventType.CLOSED, EventType.CANCELLED, EventType.REJECTED, EventType.AUTO_CLOSED)


class Blocks:
    """Follows a chain's blocks through the RPC that is used now. Blocking; used by one thread.

    `told` hears of the events of every block that was read, after they are stored.
    """

    def __init__(
        self,
        rpc: Callable[[], NodeRpc],
        *,
        pause: Callable[[float], object],
        told: Callable[[Sequence[LeaseEvent]], object],
    ) -> None:
        self._node = rpc
        self._pause = pause
        self._told = told

    @property
    def _rpc(self) -> NodeRpc:
        return self._node()

    def follow(self, head: int) -> int:
        """Read and store every block up to `head`, moving the cursor behind what is stored; return where it stands.

        Raises `ChainUnavailable` and `RpcError`: the cursor stands where it was, and the same blocks are read again.
        """
        chain_id = settings.FRED.chain_id
        cursor = watch_sql.cursor_of(chain_id)
        if cursor is None:
            return 0
        last = cursor.last_height
        if head - last > LONG_GAP:
            self._leap(last, head)
            return head
        while last < head:
            until = min(last + TOGETHER, head)
            events: list[LeaseEvent] = []
            try:
                for height in range(last + 1, until + 1):
                    events += self._block(height)
            except ResultsPruned as error:
                log.warning("watcher.results_pruned", height=last + 1, error=str(error))
                self._leap(last, head)
                return head
            watch_store.store_events(events)
            self._told(events)
            crash.point("watcher.stored")
            watch_sql.move_cursor(chain_id, to=until)
            last = until
        return last

    def _block(self, height: int) -> tuple[LeaseEvent, ...]:
        """The events of one block. The newest one's results may come a moment after its header."""
        started = time.monotonic()
        while True:
            try:
                return self._rpc.block_events(height)
            except ResultsNotYet as error:
                if self._rpc.status().earliest_height > height:
                    raise ResultsPruned(code=error.code, message=error.message, data=error.data) from error
                if time.monotonic() - started > PATIENCE_S:
                    raise
                self._pause(0.05)

    def _leap(self, last: int, head: int) -> None:
        """Take the transactions that a search finds between, and let a sweep compare all the rest."""
        log.warning("watcher.leaps", after=last, to=head)
        ours = settings.FRED.provider_uuid
        try:
            for kind in SEARCHED:
                query = f"{kind.value}.provider_uuid='{ours}' AND tx.height>{last} AND tx.height<={head}"
                watch_store.store_events(self._rpc.search(query))
        except (ChainUnavailable, RpcError) as error:
            log.warning("watcher.search_failed", error=str(error))
        watch_store.skip_to(head)
