"""The door for what backends report: `POST /callbacks/provision`, plain ASGI, no Django request.

A request is checked here on the event loop. What passes goes to the batcher: whatever arrived while the last
transaction was committing is stored by the next one, and each request is answered only after that commit.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
import structlog

from fred import metrics, signing
from fred.conf import ProviderConfig
from placements.callback_batches import Batcher, NotStored
from placements.callback_request import Refused, VerifiedCallback, limits_hold, parse, read

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PATH: Final = "/callbacks/provision"
RAW_TARGET: Final = "fred.raw_target"
"""Scope key under which a server may leave the request target as received; without it a bare `?` is lost."""
ANSWER_WITHIN_S: Final = 4.0
REMEMBERED_S: Final = 360.0
"""Longer than any signature is good for (300 s old to 60 s ahead)."""
MOST_REMEMBERED: Final = 50_000

_JSON: Final = (b"content-type", b"application/json")
_OK_HEADERS: Final = [_JSON, (b"content-length", b"0")]
_SIGNATURE: Final = signing.HEADER.lower().encode()

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys that callbacks may be signed with, each once with the backends that own it.

    ``identity_required``: every backend has a storage identity, so a callback without one is no callback.
    """

    secrets: Sequence[bytes]
    owners: Sequence[frozenset[str]]
    identity_required: bool

    @classmethod
    def of(cls, config: ProviderConfig) -> "Keys":
        """Collect the shared key and those of the backends that are not fenced and may speak without an identity."""
        may_lack_identity = [backend for backend in config.backends if backend.contract != "current"]
        owners: dict[str, set[str]] = {}
        if config.callback_secret.get_secret_value():
            owners[config.callback_secret.get_secret_value()] = set()
        for backend in may_lack_identity:
            if not backend.fenced:
                for secret in (config.hmac_key(backend.name), config.previous_hmac_key(backend.name)):
                    if secret:
                        owners.setdefault(secret, set()).add(backend.name)
        return cls(
            secrets=[secret.encode() for secret in owners],
            owners=[frozenset(names) for names in owners.values()],
            identity_required=bool(config.backends) and not may_lack_identity,
        )

    def senders(self, matched: Iterable[int]) -> frozenset[str]:
        """Name the backends that may have signed with these keys; empty when one of them belongs to no backend."""
        owners = [self.owners[index] for index in matched]
        return frozenset().union(*owners) if all(owners) else frozenset()


class Remembered:
    """Signatures of committed callbacks. The same one again is a repeat of a delivery: it is answered, not applied.

    Bounded and of this process only: rows decide what counts once, this spares them what is seen twice at one door.
    """

    def __init__(self) -> None:
        self._until: dict[bytes, float] = {}

    def has(self, signature: bytes, now: float) -> bool:
        """Whether a callback with this header was committed here lately."""
        return self._until.get(signature, 0.0) > now

    def add(self, signature: bytes, now: float) -> None:
        """Keep this one; the oldest go when they are too many."""
        self._until[signature] = now + REMEMBERED_S
        if len(self._until) > MOST_REMEMBERED:
            del self._until[next(iter(self._until))]


class CallbackEndpoint:
    """ASGI application of the callback route. One per process; start it on the event loop that serves it."""

    def __init__(
        self, config: ProviderConfig, batcher: Batcher | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.batcher = batcher or Batcher()
        self._keys = Keys.of(config)
        self._prefix = config.callback_canonical_path_prefix
        self._max_body = config.max_request_body_size
        self._clock = clock
        self._remembered = Remembered()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; 200 means: committed, the sender may forget it."""
        if scope["method"] != "POST":
            await _answer(send, 405, "method not allowed", [(b"allow", b"POST")])
            return
        try:
            callback = await self._callback(scope, receive)
            signature = _header(scope["headers"], _SIGNATURE)
            if not self._remembered.has(signature, self._clock()):
                await self.batcher.store(callback, within=ANSWER_WITHIN_S)
                self._remembered.add(signature, self._clock())
        except Refused as refused:
            await _answer(send, refused.status, refused.text)
        except _TooLong:
            await _answer(send, 401, "unauthorized", [(b"connection", b"close")])
        except NotStored:
            await _answer(send, 503, "service temporarily unavailable")
        else:
            await send({"type": "http.response.start", "status": 200, "headers": _OK_HEADERS})
            await send({"type": "http.response.body", "body": b""})

    async def close(self) -> None:
        """Store what was accepted, then stop the database thread."""
        await self.batcher.close()

    async def _callback(self, scope: Scope, receive: Receive) -> VerifiedCallback:
        """Check one request, in the order of its answers. Raises Refused, or _TooLong."""
        if not self._keys.secrets:
            raise Refused("service not configured", 503)
        header = _header(scope["headers"], _SIGNATURE)
        if not header:
            raise self._unauthorized(signing.Failure.MISSING.label)
        body = await _body(scope, receive, self._max_body)
        if not limits_hold(body):
            raise self._unauthorized(signing.Failure.FORMAT.label)
        fields = parse(body, identity_required=self._keys.identity_required)
        if fields is not None and fields.backend_storage_id:
            # An identity binds a callback to the key of the backend that proved it; none has proved one here.
            raise self._unauthorized("unknown_storage")
        verdict = signing.verify(
            header.decode("latin-1"),
            keys=self._keys.secrets,
            now=self._clock(),
            method=scope["method"],
            target=_target(scope),
            body=body,
            prefix=self._prefix,
        )
        if verdict.failure:
            raise self._unauthorized(verdict.failure.label)
        return read(fields, body, query=scope["query_string"], senders=self._keys.senders(verdict.matched))

    def _unauthorized(self, reason: str) -> Refused:
        metrics.CALLBACK_AUTH_FAILURES.labels(reason=reason).inc()
        log.warning("callback.unauthorized", reason=reason)
        return Refused("unauthorized", 401)


class _TooLong(Exception):
    """The body is over the cap, or its sender went away in the middle of it."""


def _header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes:
    return next((value for key, value in headers if key == name), b"")


def _target(scope: Scope) -> bytes:
    """The request target as signed: raw path and raw query, undecoded."""
    raw: bytes | None = scope.get(RAW_TARGET)
    if raw is not None:
        return raw
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    return path + b"?" + query if query else path


async def _body(scope: Scope, receive: Receive, limit: int) -> bytes:
    length = _header(scope["headers"], b"content-length")
    if length.isdigit() and int(length[:20]) > limit:
        raise _TooLong
    message = await receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        parts, size = [body], len(body)
        while message.get("more_body"):
            message = await receive()
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > limit:
                raise _TooLong
        body = b"".join(parts)
    if message["type"] == "http.disconnect" or len(body) > limit:
        raise _TooLong
    return body


async def _answer(send: Send, status: int, text: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    body = orjson.dumps({"error": text, "code": status}, option=orjson.OPT_APPEND_NEWLINE)
    start = [_JSON, (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})
