"""A place for a backend's callbacks, which can be told to refuse them."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

_MAX_BODY = 1 << 20


@dataclass(frozen=True, slots=True)
class Heard:
    """One callback as it came in. `told` is the status it was answered with."""

    at: float
    target: str
    signature: str
    body: bytes
    told: int

    @property
    def fields(self) -> dict[str, Any]:
        """The JSON of the body; empty for what is none."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def lease(self) -> str:
        """Which lease it is about."""
        return str(self.fields.get("lease_uuid", ""))

    @property
    def mark(self) -> str:
        """The id in its URL."""
        return parse_qs(urlsplit(self.target).query).get("operation_id", [""])[0]


class Listener:
    """Serves until closed. `answers` gives the statuses for a lease's next callbacks; without any it is 200."""

    def __init__(self, host: str, port: int, *, base: str = "") -> None:
        """Begin to listen; port 0 is any free one. `base` is how the backend reaches it, if not directly."""
        self.heard: list[Heard] = []
        self.answers: dict[str, list[int]] = {}
        self.always: dict[str, int] = {}
        self._changed = threading.Condition()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 120

            def do_POST(self) -> None:
                size = min(int(self.headers.get("Content-Length") or 0), _MAX_BODY)
                body = self.rfile.read(size)
                status = outer._take(self.path, self.headers.get("X-Fred-Signature") or "", body)
                self.send_response_only(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_arguments: object) -> None:
                """The report tells what matters."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        shown = "127.0.0.1" if host in {"", "0.0.0.0", "::"} else host  # noqa: S104 (compared, not listened on)
        self.base = base.rstrip("/") or f"http://{shown}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, name="check-listener", daemon=True).start()

    def _take(self, target: str, signature: str, body: bytes) -> int:
        first = Heard(time.time(), target, signature, body, 0)
        with self._changed:
            queued = self.answers.get(first.lease)
            told = queued.pop(0) if queued else self.always.get(first.lease, 200)
            self.heard.append(Heard(first.at, target, signature, body, told))
            self._changed.notify_all()
        return told

    def of(self, lease: str) -> list[Heard]:
        """All callbacks about this lease, in the order they came."""
        with self._changed:
            return [one for one in self.heard if one.lease == lease]

    def wait(self, ready: Callable[[], bool], *, seconds: float) -> bool:
        """Whether this came true within the time; looked at after every callback."""
        with self._changed:
            return self._changed.wait_for(ready, timeout=seconds)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
