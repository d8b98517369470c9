"""The backend of the race: notes what it is sent, answers late, breaks off, and reports success to the test."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from django.conf import settings


class RaceBackend(ThreadingHTTPServer):
    """A loopback server; ``posted`` has the operation ids that each lease was provisioned with."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, seed: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        self.random = random.Random(seed)
        self.posted: dict[UUID, set[UUID]] = defaultdict(set)
        self.held: set[UUID] = set()
        self.made: list[tuple[UUID, UUID]] = []
        self.stop = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def take_made(self) -> list[tuple[UUID, UUID]]:
        """(lease, operation) pairs whose workload became ready since the last call."""
        with self.lock:
            made, self.made = self.made, []
            return made

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that was killed or stopped is what the race is about."""


class _Handler(BaseHTTPRequestHandler):
    server: RaceBackend
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None: ...

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        lease = UUID(body["lease_uuid"])
        backend = self.server
        with backend.lock:
            fate = backend.random.random()
        if self.path == "/deprovision":
            with backend.lock:
                backend.held.discard(lease)
            return self._answer(200, {"status": "ok"})
        operation = UUID(parse_qs(urlsplit(body["callback_url"]).query)["operation_id"][0])
        with backend.lock:
            known = lease in backend.held
            backend.posted[lease].add(operation)
            backend.held.add(lease)
            if not known:
                backend.made.append((lease, operation))
        if known:
            return self._answer(409, {"error": "lease already provisioned"})
        if fate < 0.1:  # taken, and the caller never hears of it
            self.close_connection = True
            return self.connection.shutdown(socket.SHUT_RDWR)
        if fate < 0.2:
            backend.stop.wait(1.5)
        return self._answer(202, {"provision_id": str(lease)})

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        with self.server.lock:
            held = sorted(self.server.held)
        if path == "/provisions":
            return self._answer(200, {"provisions": [_row(lease, "ready") for lease in held]})
        if path == "/retentions":
            return self._answer(200, {"retentions": []})
        lease = UUID(path.rsplit("/", 1)[-1])
        if lease not in held:
            return self._answer(404, {"error": "lease not provisioned"})
        return self._answer(200, _row(lease, "provisioning"))

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


def _row(lease: UUID, status: str) -> dict[str, Any]:
    """A provision as the contract lists it."""
    return {
        "lease_uuid": str(lease),
        "provider_uuid": str(settings.FRED.provider_uuid),
        "status": status,
        "created_at": "2026-01-01T00:00:00Z",
        "fail_count": 0,
    }
