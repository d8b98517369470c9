"""The shared counter by which equal backends take turns."""

from __future__ import annotations

import itertools
import os

from django.conf import settings
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

KEY = "fred:rr:route"
LIMIT_S = 0.2

_local = itertools.count()
_clients: dict[int, Redis] = {}


def next_turn() -> int:
    """The next value, from 0, shared by all processes; while Valkey is away, this process's own."""
    try:
        return int(_client().incr(KEY)) - 1
    except (RedisError, OSError):
        return next(_local)


def _client() -> Redis:
    pid = os.getpid()
    if pid not in _clients:
        _clients.clear()
        _clients[pid] = Redis.from_url(
            settings.HOUSE.redis_url.get_secret_value(),
            socket_connect_timeout=LIMIT_S,
            socket_timeout=LIMIT_S,
            retry=Retry(NoBackoff(), 0),
        )
    return _clients[pid]
