"""Load figures of backends for routing: asked all at once, kept for two seconds in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from backends import targets
from backends.client import STATS_SECONDS, BackendClient
from backends.contract import LoadStats, Unknown
from backends.requests import BackendTarget

FRESH_S = 2.0
SILENT_S = 5.0
"""A backend that gave no figures is not asked again for this long."""

_lock = threading.Lock()
_known: dict[str, tuple[float, LoadStats | None]] = {}


def of(names: Iterable[str]) -> dict[str, LoadStats]:
    """The figures of each of these backends that gave any, at most 2 s old. Takes 2 s at the longest."""
    wanted, now = list(names), time.monotonic()
    with _lock:
        stale = [
            name
            for name in wanted
            if name not in _known or now - _known[name][0] > (FRESH_S if _known[name][1] is not None else SILENT_S)
        ]
    if stale:
        asked = [targets.target(name) for name in stale]  # here: the threads below must open no database connection
        with ThreadPoolExecutor(max_workers=len(stale)) as pool:
            answers = dict(zip(stale, pool.map(_ask, asked), strict=True))
        with _lock:
            _known.update({name: (time.monotonic(), figures) for name, figures in answers.items()})
    with _lock:
        return {name: figures for name in wanted if (figures := _known[name][1]) is not None}


def forget() -> None:
    """Ask again at the next use."""
    with _lock:
        _known.clear()


def _ask(target: BackendTarget | None) -> LoadStats | None:
    if target is None or target.fenced:
        return None
    found = BackendClient(target).stats(timeout=STATS_SECONDS)
    if isinstance(found, Unknown):
        return None
    return found
