"""Load figures of backends for routing, shared by all processes through Valkey.

A backend is asked by one process at a time; the others use what it was told, for two seconds. A backend that gave no
figures is left alone for five. Valkey that is away costs more questions and nothing else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
import structlog
from redis.exceptions import RedisError

from backends import targets
from backends.client import STATS_SECONDS, BackendClient
from backends.contract import LoadStats, Unknown
from fred import metrics, valkey

FRESH_S: Final = 2.0
SILENT_S: Final = 5.0
"""A backend that gave no figures is not asked again for this long."""
_KEY: Final = "fred:stats:"
_SILENT: Final = b"null"

log = structlog.get_logger(__name__)
_lock = threading.Lock()
_known: dict[str, tuple[float, LoadStats | None]] = {}
"""What this process knows, each with the monotonic time until which it may be used."""
_decoder = msgspec.json.Decoder(LoadStats | None)


def of(names: Iterable[str]) -> dict[str, LoadStats]:
    """The figures of each of these backends that gave any, at most 2 s old. Takes little over 2 s at the longest."""
    wanted, now = list(names), time.monotonic()
    with _lock:
        stale = [name for name in wanted if name not in _known or _known[name][0] <= now]
    if stale:
        shared = _shared(stale)
        asked = _ask_all([name for name in stale if name not in shared])
        with _lock:
            _known.update(shared | asked)
    with _lock:
        found = {name: figures for name in wanted if (figures := _known[name][1]) is not None}
    for name, figures in found.items():
        if figures.cpu_ratio is not None:
            metrics.BACKEND_ALLOCATED_CPU_RATIO.labels(name).set(figures.cpu_ratio)
    return found


def forget() -> None:
    """Let this process know nothing; what others were told stays in Valkey."""
    with _lock:
        _known.clear()


def _shared(names: list[str]) -> dict[str, tuple[float, LoadStats | None]]:
    """What another process was told a moment ago, each with its time left."""
    found: dict[str, tuple[float, LoadStats | None]] = {}
    try:
        pipe = valkey.client().pipeline(transaction=False)
        for name in names:
            pipe.get(_KEY + name)
            pipe.pttl(_KEY + name)
        answers = pipe.execute()
    except (RedisError, OSError) as error:
        log.debug("load figures not shared", error=str(error))
        return {}
    now = time.monotonic()
    for name, raw, left in zip(names, answers[::2], answers[1::2], strict=True):
        if raw is not None and left > 0:
            try:
                found[name] = now + left / 1000, _decoder.decode(raw)
            except ValueError:  # of another version
                continue
    return found


def _ask_all(names: list[str]) -> dict[str, tuple[float, LoadStats | None]]:
    """Ask these backends side by side, and tell the other processes."""
    if not names:
        return {}
    clients = [targets.client(name) for name in names]  # here: the threads below must open no database connection
    with ThreadPoolExecutor(max_workers=len(names)) as pool:
        answers = dict(zip(names, pool.map(_ask, clients), strict=True))
    _share(answers)
    now = time.monotonic()
    return {name: (now + (SILENT_S if figures is None else FRESH_S), figures) for name, figures in answers.items()}


def _share(answers: Mapping[str, LoadStats | None]) -> None:
    try:
        pipe = valkey.client().pipeline(transaction=False)
        for name, figures in answers.items():
            kept_s = SILENT_S if figures is None else FRESH_S
            pipe.set(_KEY + name, _SILENT if figures is None else msgspec.json.encode(figures), px=int(kept_s * 1000))
        pipe.execute()
    except (RedisError, OSError) as error:
        log.debug("load figures not shared", error=str(error))


def _ask(client: BackendClient | None) -> LoadStats | None:
    if client is None:
        return None
    found = client.stats(timeout=STATS_SECONDS)
    return None if isinstance(found, Unknown) else found
