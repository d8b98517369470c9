"""What a chain does wrong, named: each kind is counted, and told in the log once a minute at most.

Nothing is decided here. The names say what was seen, which an operator can compare with the node's own log.
"""

from __future__ import annotations

import threading
import time

import structlog

from fred.metrics import CHAIN_FAULT_KINDS, CHAIN_FAULTS

log = structlog.get_logger(__name__)

SAY_AGAIN_S = 60.0

_lock = threading.Lock()
_said: dict[str, float] = {}


def fault(kind: str, detail: str = "", *, number: int = 1) -> None:
    """Count a fault of this kind. Raises ValueError for a kind that is not declared beside the metric."""
    if kind not in CHAIN_FAULT_KINDS:
        raise ValueError(f"unknown kind of fault {kind!r}")
    CHAIN_FAULTS.labels(kind).inc(number)
    now = time.monotonic()
    with _lock:
        if now - _said.get(kind, float("-inf")) < SAY_AGAIN_S:
            return
        _said[kind] = now
    log.warning("chain.fault", kind=kind, detail=detail[:300])


def forget() -> None:
    """Every kind is told anew."""
    with _lock:
        _said.clear()
