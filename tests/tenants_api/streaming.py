"""The web application behind the real server, with clients that listen to events."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import orjson
import pytest
from django.db import connections, transaction
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from fred.limits import Times
from fred.upgrade import is_events_target
from leases import events, sql
from tenants_api.event_streams import StreamLimits
from tests.fred.served import Serving, served
from tests.tenants_api.calls import token
from tests.tenants_api.vectors import LEASE

PATIENCE_S = 30
ROWS = pytest.mark.django_db(
    transaction=True, available_apps=["fred", "leases", "backends", "placements", "reconciliation", "tenants_api"]
)
"""Committed rows, of our apps only: emptying these is all there is to do after a test."""


def record(*told: tuple[Any, ...]) -> None:
    """Record events (status, lease, error) as any process does."""
    rows = [(lease, status, error) for status, lease, error in told]
    with transaction.atomic():
        sql.lock({lease for lease, _, _ in rows})
        events.record(rows)


@contextmanager
def web_process(limits: StreamLimits | None = None, *, times: Times | None = None):
    """One web process in this one: its own hub, its own threads, which as there keep no connection."""
    from fred.web import compose

    with (
        patch.dict(connections.settings["default"], CONN_MAX_AGE=0),
        served(compose(streams=limits), opens_socket=is_events_target, **({"times": times} if times else {})) as one,
    ):
        yield Streaming(one)


@dataclass
class Streaming:
    """Opens WebSockets at one server."""

    serving: Serving

    def url(self, *, query: str = "", lease: Any = LEASE) -> str:
        return f"ws://127.0.0.1:{self.serving.port}/v1/leases/{lease}/events{query}"

    def opened(self, who: str = "alice", *, query: str = "", lease: Any = LEASE) -> ClientConnection:
        """A WebSocket of this tenant; the token travels in the header."""
        headers = {"Authorization": f"Bearer {token(who, lease)}"}
        return connect(
            self.url(query=query, lease=lease), additional_headers=headers, ping_interval=None, compression=None
        )

    def with_token(self, text: str, **headers: str) -> ClientConnection:
        """A WebSocket whose token travels in the query."""
        return connect(self.url(query=f"?token={quote(text, safe='')}"), additional_headers=headers, ping_interval=None)

    def target(self, *, query: str = "", lease: Any = LEASE) -> bytes:
        return f"/v1/leases/{lease}/events{query}".encode()


def told(socket: ClientConnection) -> dict[str, Any]:
    """The next frame."""
    text = socket.recv(timeout=PATIENCE_S)
    assert isinstance(text, str)
    assert text.endswith("}\n")
    found: dict[str, Any] = orjson.loads(text)
    return found


def statuses(socket: ClientConnection, number: int) -> list[str]:
    return [told(socket)["status"] for _ in range(number)]


def end_of(socket: ClientConnection) -> tuple[int | None, str]:
    """Code and reason of the close that comes next."""
    try:
        message = socket.recv(timeout=PATIENCE_S)
    except ConnectionClosed as closed:
        return (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd else (None, "")
    raise AssertionError(f"a message came instead of a close: {message!r}")
