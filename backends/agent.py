"""Serves one backend driver over the HTTP contract, as a raw ASGI application.

Every contract route is authenticated by the HMAC of `fred.signing`; health and stats are open. Errors are the envelope
of the contract, and an unexpected one is `internal server error`: its detail stays in the agent's log.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

import msgspec
import orjson
import structlog

from backends import callback_urls, paging, wire
from backends.contract import Backend, BackendError, NotProvisioned, ProvisionSpec, ValidationRefused
from backends.outbox import Outbox
from fred import signing

log = structlog.get_logger(__name__)

MAX_BODY_BYTES = 2 * 1024 * 1024
MAX_LOOKUP = 100
DEFAULT_TAIL, MAX_TAIL = 100, 10_000

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class _Refusal(Exception):
    """An answer other than the handler's: status and text of the envelope."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Call:
    """One request, authenticated and read."""

    subject: str
    query: Mapping[str, Sequence[str]]
    body: bytes


Answer = tuple[int, Any]
Handler = Callable[["Agent", Call], Awaitable[Answer]]


@dataclass
class Agent:
    """The ASGI application. `secrets` are the keys that verify: the main one and, in a rotation, the next."""

    backend: Backend
    outbox: Outbox
    secrets: tuple[str, ...] = field(repr=False)
    require_hmac: bool = True
    max_body: int = MAX_BODY_BYTES
    clock: Callable[[], float] = time.time

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or run through the life of the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            status, content = await self._answer(scope, receive)
            await _send(send, status, content)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    self.outbox.start()
                    await self.backend.start(self.outbox)
                except Exception as error:
                    log.exception("agent.start_failed")
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.backend.stop()
                self.outbox.stop()
                if self.outbox.store is not None:
                    self.outbox.store.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        try:
            handler, subject = _route(scope["method"], scope["path"])
            body = b""
            if handler not in _OPEN:
                body = await self._authenticate(scope, receive)
            query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            return await handler(self, Call(subject, query, body))
        except _Refusal as refusal:
            return refusal.status, {"error": str(refusal)}
        except BackendError as error:
            return error.http_status, _envelope(error)
        except Exception:
            log.exception("agent.fault", route=scope["path"].split("/")[1])
            return 500, {"error": "internal server error"}

    async def _authenticate(self, scope: Scope, receive: Receive) -> bytes:
        wanted = signing.HEADER.lower().encode()
        header = next((value.decode("latin-1") for name, value in scope["headers"] if name == wanted), "")
        if not header and self.require_hmac:
            raise _Refusal(401, "missing signature")
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
                raise _Refusal(401, "invalid signature")
        return body

    async def _read(self, receive: Receive) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise _Refusal(413, "request body too large")  # the caller is gone; nobody reads this
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            if size > self.max_body:
                raise _Refusal(413, "request body too large")
            chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)


def _envelope(error: BackendError) -> dict[str, str]:
    text = str(error) if error.http_status != 500 else BackendError.text
    found = {"error": text, "validation_code": error.validation_code, "code": error.code}
    return {name: value for name, value in found.items() if value}


async def _send(send: Send, status: int, content: Any) -> None:
    body = content if isinstance(content, bytes) else orjson.dumps(content)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _lease(text: str) -> UUID:
    """The lease of a read; what is no UUID names no lease of ours."""
    try:
        return UUID(text)
    except ValueError:
        raise NotProvisioned from None


def _required_lease(text: str) -> UUID:
    if not text:
        raise ValidationRefused("lease_uuid is required")
    try:
        return UUID(text)
    except ValueError:
        raise ValidationRefused("lease_uuid must be a valid UUID") from None


_PROVISION = msgspec.json.Decoder(wire.ProvisionRequest)
_LEASE = msgspec.json.Decoder(wire.LeaseRequest)


async def _provision(agent: Agent, call: Call) -> Answer:
    try:
        asked = _PROVISION.decode(call.body)
    except msgspec.DecodeError:
        raise ValidationRefused("invalid request body") from None
    lease = _required_lease(asked.lease_uuid)
    callback_urls.check(asked.callback_url or "")
    if not asked.items:
        raise ValidationRefused("items is required")
    try:
        provider = UUID(asked.provider_uuid) if asked.provider_uuid else None
    except ValueError:
        provider = None
    spec = ProvisionSpec(
        lease_uuid=lease,
        tenant=asked.tenant or "",
        provider_uuid=provider,
        items=wire.to_items(asked.items),
        callback_url=asked.callback_url or "",
        payload=asked.payload or b"",
        payload_hash=asked.payload_hash or "",
        lifecycle_callback_url=asked.lifecycle_callback_url or "",
    )
    await agent.backend.provision(spec)
    return 202, {"provision_id": str(lease)}


async def _deprovision(agent: Agent, call: Call) -> Answer:
    try:
        asked = _LEASE.decode(call.body)
    except msgspec.DecodeError:
        raise ValidationRefused("invalid request body") from None
    await agent.backend.deprovision(_required_lease(asked.lease_uuid))
    return 200, {"status": "ok"}


async def _info(agent: Agent, call: Call) -> Answer:
    return 200, wire.info_json(await agent.backend.info(_lease(call.subject)))


async def _provision_info(agent: Agent, call: Call) -> Answer:
    return 200, wire.provision_json(await agent.backend.provision_info(_lease(call.subject)))


async def _provisions(agent: Agent, call: Call) -> Answer:
    if "lease_uuid" in call.query:
        asked = call.query["lease_uuid"]
        if not 1 <= len(asked) <= MAX_LOOKUP:
            raise ValidationRefused(f"lease_uuid count must be between 1 and {MAX_LOOKUP}")
        try:
            leases = sorted({UUID(text) for text in asked})
        except ValueError:
            raise ValidationRefused("invalid lease_uuid") from None
        found = await agent.backend.lookup(leases)
        return 200, {"provisions": [wire.provision_json(row) for row in found]}
    page = paging.parse(call.query)
    listed = await agent.backend.provisions(after=page.after, limit=page.wanted)
    if not listed.complete:
        raise BackendError
    rows, following = paging.cut(listed.items, page, key=lambda row: row.lease_uuid)
    answer: dict[str, Any] = {"provisions": [wire.provision_json(row) for row in rows]}
    return 200, {**answer, "continue": following} if following else answer


async def _retentions(agent: Agent, call: Call) -> Answer:
    page = paging.parse(call.query)
    listed = await agent.backend.retentions(after=page.after, limit=page.wanted)
    if not listed.complete:
        raise BackendError
    rows, following = paging.cut(listed.items, page, key=lambda row: row.lease_uuid)
    answer: dict[str, Any] = {"retentions": [wire.retained_json(row) for row in rows]}
    return 200, {**answer, "continue": following} if following else answer


async def _logs(agent: Agent, call: Call) -> Answer:
    raw = call.query.get("tail", [str(DEFAULT_TAIL)])[0]
    if not (raw.isascii() and raw.isdigit()) or len(raw) > 18 or int(raw) == 0:
        raise ValidationRefused("tail must be a positive integer")
    if int(raw) > MAX_TAIL:
        raise ValidationRefused(f"tail must not exceed {MAX_TAIL}")
    return 200, dict(await agent.backend.logs(_lease(call.subject), tail=int(raw)))


async def _stats(agent: Agent, _call: Call) -> Answer:
    return 200, wire.stats_json(await agent.backend.stats())


async def _health(agent: Agent, _call: Call) -> Answer:
    await agent.backend.health()
    return 200, {"status": "healthy"}


_ROUTES: dict[str, tuple[str, Handler]] = {
    "/provision": ("POST", _provision),
    "/deprovision": ("POST", _deprovision),
    "/provisions": ("GET", _provisions),
    "/retentions": ("GET", _retentions),
    "/stats": ("GET", _stats),
    "/health": ("GET", _health),
}
_SUBJECT_ROUTES: dict[str, Handler] = {"info": _info, "provisions": _provision_info, "logs": _logs}
_OPEN = frozenset({_stats, _health})


def _route(method: str, path: str) -> tuple[Handler, str]:
    allowed, handler = _ROUTES.get(path, ("", None))
    subject = ""
    if handler is None:
        _, noun, subject, *rest = (*path.split("/"), "", "")
        handler = _SUBJECT_ROUTES.get(noun) if subject and not any(rest) else None
        allowed = "GET"
    if handler is None:
        raise _Refusal(404, "not found")
    if method != allowed:
        raise _Refusal(405, "method not allowed")
    return handler, subject
