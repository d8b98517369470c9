"""A tenant of the house: what it asks over HTTP, and what it is told over a WebSocket."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from hashlib import sha256
from typing import Any, Self
from urllib.parse import quote

from websockets.sync.client import ClientConnection, connect

from fred import http
from fred.curl import Request
from leases.chain.keys import SigningKey
from tenants_api import tokens
from tests.e2e.stack import Stack

PATIENCE_S = 60.0
USE_UP = frozenset({"connection", "restart", "update", "restore"})
"""Routes that take a token only once."""


class Tenant:
    """Calls the API of one house with its own key."""

    def __init__(self, house: Stack) -> None:
        self.house = house
        self.key = SigningKey.from_hex(house.chain.keys["tenant"].private_key_hex)
        self._stamps: set[int] = set()

    def token(self, lease: str, *, once: bool = False, **how: Any) -> str:
        """A token. Two of one second are the same: those for `once` get the latest second that none of them had."""
        stamp = int(time.time())
        if once:
            stamp = next(second for second in range(stamp - 1, stamp - 25, -1) if second not in self._stamps)
            self._stamps.add(stamp)
        return tokens.mint(self.key, tenant=self.house.tenant, lease_uuid=lease, timestamp=stamp, **how)

    def ask(self, lease: str, route: str, body: Any = None, *, post: bool = False, **token: Any) -> tuple[int, Any]:
        """GET a route of a lease; POST with a body, bytes as they are, anything else as JSON."""
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        if post and sent is None:
            sent = b""
        answer = http.fetch(
            Request(
                f"http://127.0.0.1:{self.house.ports['api']}/v1/leases/{lease}/{route}",
                headers=(("Authorization", f"Bearer {self.token(lease, once=route in USE_UP, **token)}"),),
                body=sent,
                timeout=20.0,
                connect_timeout=1.0,
            )
        )
        return answer.status, json.loads(answer.body) if answer.body else None

    def upload(self, lease: str, payload: bytes) -> int:
        """Send the payload that the lease announced."""
        return self.ask(lease, "data", payload, meta_hash=sha256(payload).hexdigest())[0]

    def update(self, lease: str, payload: bytes) -> tuple[int, Any]:
        """Replace the workload."""
        return self.ask(lease, "update", {"payload": b64encode(payload).decode()})

    def listen(self, lease: str, *, query: str = "") -> Told:
        """Open a WebSocket as the clients do, with the token in the query."""
        token = quote(self.token(lease), safe="")
        url = f"ws://127.0.0.1:{self.house.ports['api']}/v1/leases/{lease}/events?token={token}{query}"
        return Told(connect(url, compression=None, ping_interval=None))


class Told:
    """The events of one WebSocket."""

    def __init__(self, opened: ClientConnection) -> None:
        self._opened = opened

    def __enter__(self) -> Self:
        self._opened.__enter__()
        return self

    def __exit__(self, *args: object) -> None:
        self._opened.__exit__(*args)  # type: ignore[arg-type]

    def next(self) -> dict[str, Any]:
        """The next frame, when it comes."""
        frame: dict[str, Any] = json.loads(self._opened.recv(timeout=PATIENCE_S))
        return frame

    def until(self, status: str) -> list[str]:
        """The statuses up to this one."""
        found = []
        while not found or found[-1] != status:
            found.append(self.next()["status"])
        return found
