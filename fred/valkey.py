"""This process's connection to Valkey for what may be lost: 200 ms for an answer, nothing repeated."""

import os
import threading
from typing import Final

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

LIMIT_S: Final = 0.2

_lock = threading.Lock()
_client: Redis | None = None
_pid = 0


def client() -> Redis:
    """The one client of this process; a fork gets its own. Its commands raise `RedisError` when Valkey is away."""
    global _client, _pid  # noqa: PLW0603 - one connection pool per process is the point
    with _lock:
        if _client is None or _pid != os.getpid():
            _pid = os.getpid()
            _client = Redis.from_url(
                url(),
                socket_connect_timeout=LIMIT_S,
                socket_timeout=LIMIT_S,
                retry=Retry(NoBackoff(), 0),
            )
        return _client


def url() -> str:
    """Where Valkey is."""
    from django.conf import settings  # noqa: PLC0415 - the module is imported before settings are chosen

    found: str = settings.HOUSE.redis_url.get_secret_value()
    return found


def _after_fork() -> None:
    global _lock  # noqa: PLW0603 - a lock held by another thread of the parent stays locked in the child
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
