"""Serves one backend driver over the HTTP contract, as a raw ASGI application.

Every contract route is authenticated by the HMAC of `fred.signing`; health, stats and metrics are open. Errors are the
envelope of the contract, and an unexpected one is `internal server error`: its detail stays in the agent's log.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
import structlog

from backends.agent_contract import ServedBackend
from backends.agent_metrics import AgentMetrics
from backends.agent_routes import OPEN, Answer, Call, Receive, Refusal, Scope, Send, route
from backends.contract import BackendError
from backends.outbox import Outbox
from fred import signing

log = structlog.get_logger(__name__)

MAX_BODY_BYTES = 2 * 1024 * 1024
_SIGNATURE = signing.HEADER.lower().encode()
_JSON = (b"content-type", b"application/json")
_TEXT = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")


class SetupError(Exception):
    """The agent can't be made from its settings, and why."""


@dataclass
class Agent:
    """The ASGI application. `secrets` are the keys that verify: the main one and, in a rotation, the next.

    `starts_eagerly` says that the driver may be called outside of a task; a server that can will save one a request.
    """

    backend: ServedBackend
    outbox: Outbox
    secrets: tuple[str, ...] = field(repr=False)
    require_hmac: bool = True
    max_body: int = MAX_BODY_BYTES
    clock: Callable[[], float] = time.time
    metrics: AgentMetrics = field(default_factory=AgentMetrics)
    starts_eagerly: bool = False

    def __post_init__(self) -> None:
        """Let the outbox count with the agent."""
        self.outbox.metrics = self.metrics
        self.metrics.outbox_rows = lambda: self.outbox.counts.waiting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or run through the life of the server."""
        if scope["type"] == "http":
            self.metrics.busy += 1
            try:
                status, content = await self._answer(scope, receive)
                await reply(send, status, content)
            finally:
                self.metrics.busy -= 1
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    self.outbox.start()
                    await self.backend.start(self.outbox)
                except Exception as error:
                    log.exception("agent.start_failed")
                    self._let_go()
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.backend.stop()
                self._let_go()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def _let_go(self) -> None:
        self.outbox.stop()
        if self.outbox.store is not None:
            self.outbox.store.close()

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        name = "other"
        answer: Answer
        try:
            name, handler, subject = route(scope["method"], scope["path"])
            body = b""
            if name not in OPEN:
                body = await self._authenticate(scope, receive)
            answer = await handler(self, Call(subject, scope["query_string"], body))
        except Refusal as refusal:
            answer = refusal.status, {"error": str(refusal)}
        except BackendError as error:
            answer = error.http_status, _envelope(error)
        except Exception:
            log.exception("agent.fault", route=name)
            answer = 500, {"error": "internal server error"}
        self.metrics.requests[name, answer[0]] += 1
        return answer

    async def _authenticate(self, scope: Scope, receive: Receive) -> bytes:
        header = ""
        for name, value in scope["headers"]:
            if name == _SIGNATURE:
                header = value.decode("latin-1")
                break
        if not header and self.require_hmac:
            raise Refusal(401, "missing signature")
        body = await self._read(receive)
        if self.require_hmac:
            query: bytes = scope["query_string"]
            path: bytes = scope.get("raw_path") or scope["path"].encode()
            verdict = signing.verify(
                header,
                keys=self.secrets,
                now=self.clock(),
                method=scope["method"],
                target=path + b"?" + query if query else path,
                body=body,
            )
            if not verdict.ok:
                log.warning("agent.signature_refused", failure=verdict.failure)
                raise Refusal(401, "invalid signature")
        return body

    async def _read(self, receive: Receive) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise Refusal(413, "request body too large")  # the caller is gone; nobody reads this
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            if size > self.max_body:
                raise Refusal(413, "request body too large")
            if not message.get("more_body", False):
                return b"".join((*chunks, chunk)) if chunks else chunk
            chunks.append(chunk)


def _envelope(error: BackendError) -> dict[str, str]:
    text = str(error) if error.http_status != 500 else BackendError.text
    found = {"error": text, "validation_code": error.validation_code, "code": error.code}
    return {name: value for name, value in found.items() if value}


async def reply(send: Send, status: int, content: Any) -> None:
    """Send JSON, or bytes as plain text; None has no body."""
    if content is None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        return
    body = content if isinstance(content, bytes) else orjson.dumps(content)
    kind = _TEXT if isinstance(content, bytes) else _JSON
    await send(
        {"type": "http.response.start", "status": status, "headers": [kind, (b"content-length", b"%d" % len(body))]}
    )
    await send({"type": "http.response.body", "body": body})
