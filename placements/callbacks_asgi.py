"""The door for what backends report: `POST /callbacks/provision`, plain ASGI, no Django request.

A request is checked here on the event loop. What passes goes to the batcher: whatever arrived while the last
transaction was committing is stored by the next one, and each request is answered only after that commit.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import structlog
from django.conf import settings
from msgspec import structs
from prometheus_client import Counter

from backends import targets
from fred import metrics, signing
from fred.conf import ProviderConfig
from fred.envelope import CLOSE, JSON, answer
from fred.limits import RAW_TARGET
from placements.callback_batches import Batcher, NotStored
from placements.callback_door import Door
from placements.callback_request import Refused, VerifiedCallback, limits_hold, parse, read

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PATH: Final = "/callbacks/provision"
ANSWER_WITHIN_S: Final = 4.0
REMEMBERED_S: Final = 360.0
"""Longer than any signature is good for (300 s old to 60 s ahead)."""
MOST_REMEMBERED: Final = 50_000
BARRED_FRESH_S: Final = 2.0
BARRED_USABLE_S: Final = 4.0
"""How old the knowledge of fences may be while the database does not answer."""

_OK_HEADERS: Final = [JSON, (b"content-length", b"0")]
_SIGNATURE: Final = signing.HEADER.lower().encode()

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Keys:
    """The keys that callbacks may be signed with, each once with the backends that own it.

    ``previous``: the keys that were a backend's before. ``barred``: backends that are fenced or retired, whose keys are
    known only to be recognised. ``identity_required``: every backend has a storage identity, so a callback without one
    is no callback.
    """

    secrets: Sequence[bytes]
    owners: Sequence[frozenset[str]]
    previous: frozenset[bytes]
    barred: frozenset[str]
    identity_required: bool

    @classmethod
    def of(cls, config: ProviderConfig, barred: frozenset[str] = frozenset()) -> "Keys":
        """Collect the shared key and those of the backends that may speak without an identity."""
        may_lack_identity = [backend for backend in config.backends if backend.contract != "current"]
        owners: dict[str, set[str]] = {}
        previous = set()
        if config.callback_secret.get_secret_value():
            owners[config.callback_secret.get_secret_value()] = set()
        for backend in may_lack_identity:
            before = config.previous_hmac_key(backend.name)
            if before:
                previous.add(before.encode())
            for secret in (config.hmac_key(backend.name), before):
                if secret:
                    owners.setdefault(secret, set()).add(backend.name)
        return cls(
            secrets=[secret.encode() for secret in owners],
            owners=[frozenset(names) for names in owners.values()],
            previous=frozenset(previous),
            barred=barred | {backend.name for backend in config.backends if backend.fenced},
            identity_required=bool(config.backends) and not may_lack_identity,
        )

    def speaks(self, matched: Iterable[int]) -> bool:
        """Whether one of these keys belongs to somebody who may be heard: not to barred backends only."""
        return any(not self.owners[index] or self.owners[index] - self.barred for index in matched)

    def count(self, matched: Iterable[int]) -> None:
        """Count which key, of which backend, a callback was signed with; a key of several belongs to `shared`."""
        for index in matched:
            self._counters[index].inc()

    @cached_property
    def _counters(self) -> Sequence[Counter]:
        made = []
        for owners, secret in zip(self.owners, self.secrets, strict=True):
            owner = next(iter(owners)) if len(owners) == 1 else "shared"
            made.append(metrics.CALLBACK_KEYS.labels(owner, "previous" if secret in self.previous else "current"))
        return made

    def senders(self, matched: Iterable[int]) -> frozenset[str]:
        """Name the backends that may have signed with these keys; empty when one of them belongs to no backend."""
        owners = [self.owners[index] for index in matched]
        return frozenset().union(*owners) if all(owners) else frozenset()


class Remembered:
    """Signatures of committed callbacks. The same one again is nearly always a repeat of a delivery.

    Bounded and of this process only: rows decide what counts once.
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
        self,
        config: ProviderConfig,
        batcher: Batcher | None = None,
        *,
        barred: Callable[[], frozenset[str]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`barred` names, whenever it is asked, the backends that must not be heard; it may use the database."""
        self.batcher = batcher or Batcher()
        self._door = Door(config)
        self._config = config
        self._keys = Keys.of(config)
        self._barred = barred
        self._barred_at = float("-inf")
        self._refreshing: asyncio.Future[bool] | None = None
        self._prefix = config.callback_canonical_path_prefix
        self._max_body = config.max_request_body_size
        self._clock = clock
        self._remembered = Remembered()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; 200 means: committed, the sender may forget it."""
        if scope["method"] != "POST":
            await answer(send, 405, "method not allowed", [(b"allow", b"POST")])
            return
        until = time.monotonic() + ANSWER_WITHIN_S
        signature = _header(scope["headers"], _SIGNATURE)
        try:
            callback = await self._callback(scope, receive, signature, until=until)
            if self._remembered.has(signature, self._clock()):
                callback = structs.replace(callback, repeated=True)
            await self.batcher.store(callback, within=until - time.monotonic())
            self._remembered.add(signature, self._clock())
        except Refused as refused:
            if refused.status == 401 and await self._door.is_shut(scope, send):
                return
            await answer(send, refused.status, refused.text)
        except _TooLong:
            if not await self._door.is_shut(scope, send, [CLOSE]):
                await answer(send, 401, "unauthorized", [CLOSE])
        except NotStored:
            await answer(send, 503, "service temporarily unavailable")
        else:
            await send({"type": "http.response.start", "status": 200, "headers": _OK_HEADERS})
            await send({"type": "http.response.body", "body": b""})

    async def close(self) -> None:
        """Store what was accepted, then stop the database thread."""
        await self.batcher.close()
        await self._door.close()

    async def _callback(self, scope: Scope, receive: Receive, header: bytes, *, until: float) -> VerifiedCallback:
        """Check one request, in the order of its answers. Raises Refused, or _TooLong."""
        if not self._keys.secrets:
            raise Refused("service not configured", 503)
        await self._refresh()
        if not header:
            raise self._unauthorized(signing.Failure.MISSING.label)
        try:
            async with asyncio.timeout(until - time.monotonic()):
                body = await _body(scope, receive, self._max_body)
        except TimeoutError:
            raise _TooLong from None
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
        if not self._keys.speaks(verdict.matched):
            raise self._unauthorized("fenced")
        self._keys.count(verdict.matched)
        return read(fields, body, query=scope["query_string"], senders=self._keys.senders(verdict.matched))

    async def _refresh(self) -> None:
        """Know who is barred, as of the last few seconds. Without the database nothing can be stored either: 503.

        All requests that wait share one read, and wait no longer than for a commit: reads in a row, each with the
        time limit of a database that is away, would keep the last of them waiting for minutes.
        """
        if self._barred is None or time.monotonic() - self._barred_at < BARRED_FRESH_S:
            return
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.ensure_future(self._read_barred(self._barred))
        done, _ = await asyncio.wait([self._refreshing], timeout=ANSWER_WITHIN_S)
        if not (done and self._refreshing.result()) and time.monotonic() - self._barred_at > BARRED_USABLE_S:
            raise NotStored

    async def _read_barred(self, barred: Callable[[], frozenset[str]]) -> bool:
        try:
            names = await self.batcher.call(barred)
        except Exception as error:  # noqa: BLE001 - whatever it is, what was read before counts for a while
            log.error("callback.fences_unknown", error=type(error).__name__)  # noqa: TRY400
            return False
        self._keys, self._barred_at = Keys.of(self._config, names), time.monotonic()
        return True

    def _unauthorized(self, reason: str) -> Refused:
        metrics.CALLBACK_AUTH_FAILURES.labels(reason=reason).inc()
        log.warning("callback.unauthorized", reason=reason)
        return Refused("unauthorized", 401)


class _TooLong(Exception):
    """The body is over the cap, takes too long, or its sender went away in the middle of it."""


def _header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes:
    return next((value for key, value in headers if key == name), b"")


def _target(scope: Scope) -> bytes:
    """The request target as signed: raw path and raw query, undecoded. Without a server of ours a bare `?` is lost."""
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


def barred_backends() -> frozenset[str]:
    """Backends of the configuration that must not be heard: fenced or retired, here or in another process."""
    known = targets.configured()
    return frozenset(
        one.name for one in settings.FRED.backends if (found := known.get(one.name)) is None or found.fenced
    )
