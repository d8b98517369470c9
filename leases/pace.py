"""How long a transaction may wait for its block, counted in blocks.

Only heights prove that a transaction can never be included any more, so its time limit is a height: far enough for
`tx_timeout` at the pace of the last blocks, and never a time of a clock.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import structlog

from leases.chain.client import BlockHead, ChainClient
from leases.chain.errors import ChainError

log = structlog.get_logger("leases.lanes")

BLOCKS = 20
"""The pace is the mean of so many blocks."""
FRESH_SECONDS = 10.0
MOST_BLOCKS = 2_000
"""No transaction waits for more: one whose sequence another took is found out sooner."""


class Pace:
    """The mean time of a chain's last blocks, read anew when it is older than 10 s. Threads share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._read: dict[str, tuple[float, timedelta | None]] = {}

    def timeout_height(self, chain: ChainClient, head: BlockHead, *, blocks: int, timeout: timedelta) -> int:
        """The last height at which a transaction signed now may be included.

        At least `blocks` away, as many more as fit into `timeout`, at most 2,000.
        """
        mean = self.mean(chain, head)
        fit = math.ceil(timeout / mean) if mean else 0
        return head.height + min(max(blocks, fit), MOST_BLOCKS)

    def mean(self, chain: ChainClient, head: BlockHead) -> timedelta | None:
        """The mean time between the last 20 blocks; None on a chain too young, too fast to tell, or silent."""
        with self._lock:
            at, mean = self._read.get(chain.endpoint, (float("-inf"), None))
        if self._clock() - at < FRESH_SECONDS:
            return mean
        mean = _measured(chain, head)
        with self._lock:
            self._read[chain.endpoint] = (self._clock(), mean)
        return mean


def _measured(chain: ChainClient, head: BlockHead) -> timedelta | None:
    first = max(head.height - BLOCKS, 1)
    if first == head.height:
        return None
    try:
        passed = head.time - chain.block_time(first)
    except ChainError as error:
        log.debug("lane.pace_unknown", height=first, error=str(error))
        return None
    # Two blocks of one moment, or a chain that began anew, have no pace.
    return passed / (head.height - first) if passed > timedelta() else None


pace = Pace()
