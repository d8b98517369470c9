"""Which of several nodes is asked: the same one until it fails three times in a row, then the next.

A node is its gRPC, its event stream and its RPC together. Mempool, sequence and the pages of a listing belong to one
node, so whoever does one piece of work keeps the node it began with; only the next piece goes elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from fred.metrics import CHAIN_ENDPOINT_SWITCHES

log = structlog.get_logger(__name__)

FAILURES_IN_A_ROW = 3
"""So many calls without an answer, one after the other, and the next node is asked."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one node listens: gRPC as host:port, the event stream as a WebSocket URL with the RPC beside it."""

    grpc: str
    websocket: str


class Endpoints:
    """The nodes of the settings, in their order, and which of them this process asks now. Thread safe.

    With one node nothing ever switches. Raises ValueError without any.
    """

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        if not endpoints:
            raise ValueError("at least one endpoint is needed")
        self.all = tuple(endpoints)
        self._lock = threading.Lock()
        self._index = 0
        self._failures = 0

    @property
    def index(self) -> int:
        """The number of the node that is asked now."""
        return self._index

    @property
    def current(self) -> Endpoint:
        """The node that is asked now."""
        return self.all[self._index]

    def note(self, index: int, *, answered: bool) -> bool:
        """A call to this node was answered (an error is an answer) or not; True when the next node is asked now.

        What is heard late of a node that was left changes nothing.
        """
        with self._lock:
            if index != self._index or len(self.all) == 1:
                return False
            self._failures = 0 if answered else self._failures + 1
            if self._failures < FAILURES_IN_A_ROW:
                return False
            left, self._index = self.current, (self._index + 1) % len(self.all)
            self._failures = 0
        CHAIN_ENDPOINT_SWITCHES.inc()
        log.warning("chain.endpoint_switched", left=left.grpc, now=self.current.grpc)
        return True
