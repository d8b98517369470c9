"""A process says every 15 s that it lives, in Valkey, with its version and the fingerprint of its settings.

The key `fred:up:{process}:{host}:{pid}` is kept for 60 s. Nothing depends on it: it shows the operator what runs and
whether all of it runs with the same settings. A silent Valkey costs a beat, never the process.
"""

import json
import os
import socket
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import structlog
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

log = structlog.get_logger("fred.heartbeat")

EVERY_S: Final = 15.0
KEPT_S: Final = 60
_LIMIT_S: Final = 2.0
_PREFIX: Final = "fred:up:"


@dataclass(frozen=True, slots=True)
class Living:
    """What the heartbeats say: how many of each process, and whether their settings differ."""

    processes: Mapping[str, int]
    mismatch: bool


class Heartbeat:
    """The heartbeat of this process, beaten by a thread of its own from `start` to `stop`."""

    def __init__(self, url: str, *, process: str, version: str, fingerprint: str) -> None:
        self._valkey = _client(url)
        self._key = f"{_PREFIX}{process}:{socket.gethostname()}:{os.getpid()}"
        self._value = json.dumps({"version": version, "fingerprint": fingerprint})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Beat now and every 15 s."""
        self._thread.start()

    def stop(self) -> None:
        """Stop beating and take the key back; a second call does nothing."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join(_LIMIT_S)
        try:
            self._valkey.delete(self._key)
        except (RedisError, OSError) as error:
            log.debug("heartbeat not taken back", error=error)
        self._valkey.close()

    def _beat(self) -> None:
        while True:
            try:
                self._valkey.set(self._key, self._value, ex=KEPT_S)
            except (RedisError, OSError) as error:
                log.debug("heartbeat missed", error=error)
            if self._stop.wait(EVERY_S):
                return


def living(url: str, /) -> Living:
    """Everything that beats at this Valkey. Raises RedisError or OSError when it does not answer within 2 s."""
    client = _client(url)
    try:
        keys = [key.decode() for key in client.scan_iter(match=f"{_PREFIX}*", count=500)]
        values = client.mget(keys) if keys else []
    finally:
        client.close()
    beats = [(key, json.loads(value)) for key, value in zip(keys, values, strict=True) if value is not None]
    processes = Counter(key.removeprefix(_PREFIX).partition(":")[0] for key, _ in beats)
    return Living(processes, mismatch=len({beat["fingerprint"] for _, beat in beats}) > 1)


def _client(url: str) -> Redis:
    return Redis.from_url(url, socket_connect_timeout=_LIMIT_S, socket_timeout=_LIMIT_S, retry=Retry(NoBackoff(), 0))
