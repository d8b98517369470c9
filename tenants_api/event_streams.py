"""What WebSockets and server-sent events of a process share: who is let in, to how many streams, of which lease."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, unquote
from uuid import UUID

import psycopg
import structlog
from django.conf import settings
from django.db import close_old_connections

from fred.limits import STOPPING
from fred.time_limits import TimeLimit
from fred.upgrade import events_segment
from leases.event_reads import StatusFact
from leases.hub import QUEUE, Hub, Subscription, is_gap
from tenants_api.admission import admit
from tenants_api.errors import REQUEST_ID, ApiError, Rendered, unavailable
from tenants_api.event_frames import NOW, Cursor, current, cursor_of
from tenants_api.event_slots import EventSlots

ROUTE_NAME: Final = "/v1/leases/{lease_uuid}/events"
ADMIT_WITHIN_S: Final = 12.0
_THREADS: Final = 4

log = structlog.get_logger("tenants_api.event_streams")


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """How many streams there may be, how long one lives, how many events wait for it, how often it shows that it lives.

    `total` and `per_lease` count over all processes; `comment_s` is for server-sent events only.
    """

    total: int = 1000
    per_lease: int = 10
    lifetime_s: float = 3600.0
    queue: int = QUEUE
    comment_s: float = 15.0


class TooMany(Exception):
    """There are as many streams as there may be."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A caller who is let in, the lease, and where it wants to go on."""

    lease_uuid: UUID
    cursor: Cursor


class Stream:
    """One open stream. ``first`` tells how the lease stands, to whom what is kept does not continue its cursor."""

    def __init__(self, subscription: Subscription, first: StatusFact | None, leave: Callable[[], None]) -> None:
        """`leave` gives its place back."""
        self.subscription, self.first, self._leave = subscription, first, leave

    def leave(self) -> None:
        """End it; a second time nothing happens."""
        self.subscription.leave()
        self._leave()


class EventStreams:
    """The open streams of this process. Belongs to one event loop."""

    def __init__(self, limits: StreamLimits = StreamLimits()) -> None:
        self.limits = limits
        self._hub = Hub(queue=limits.queue)
        self._slots = EventSlots(
            settings.HOUSE.redis_url.get_secret_value(), total=limits.total, per_lease=limits.per_lease
        )
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="events-door")

    async def let_in(self, scope: Mapping[str, Any], *, resumes: bool = False) -> Asked:
        """Check the caller as every lease route does, then its cursor. Raises ApiError.

        `resumes`: a header may name the last event that the caller has, and without any cursor it is `now`.
        """
        headers = {name: value.decode("latin-1") for name, value in reversed(scope["headers"])}  # the first one counts
        query = dict(reversed(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)))
        authorization = headers.get(b"authorization")
        if not authorization and query.get("token"):
            authorization = f"Bearer {query['token']}"
        segment = unquote(events_segment(scope["raw_path"]).decode("latin-1"))
        lease_uuid = await self._in_a_thread(
            lambda: _owned_lease(scope.get("method", "GET"), authorization, segment, scope.get(REQUEST_ID, ""))
        )
        text = (headers.get(b"last-event-id") or query.get("since")) if resumes else query.get("since")
        try:
            cursor = cursor_of(text)
        except ValueError:
            raise ApiError(400, "invalid since cursor", error_code="invalid_parameter") from None
        return Asked(lease_uuid, NOW if resumes and text is None else cursor)

    async def open(self, asked: Asked) -> Stream:
        """Open a stream: what is committed from here on reaches it. Raises TooMany, or ApiError without a database."""
        lease, cursor = asked.lease_uuid, asked.cursor
        place = await self._slots.take(lease)
        if place is None:
            raise TooMany
        try:
            subscription = await self._hub.subscribe(lease, since=cursor.since, resumes=cursor.resumes)
        except (psycopg.Error, OSError, LookupError) as error:
            self._slots.free(place)
            log.warning("events.not_opened", lease_uuid=str(lease), error=type(error).__name__)
            raise unavailable() from None
        except BaseException:
            self._slots.free(place)
            raise
        kept = subscription.kept
        first = current(lease, kept) if cursor.since is not None and is_gap(cursor.since, kept) else None
        return Stream(subscription, first, lambda: self._slots.free(place))

    async def close(self) -> None:
        """End what serves the streams; they get nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        await self._hub.close()
        await self._slots.close()

    async def _in_a_thread(self, check: Callable[[], UUID]) -> UUID:
        try:
            with TimeLimit(ADMIT_WITHIN_S):
                return await asyncio.wrap_future(self._threads.submit(check))
        except TimeoutError:
            raise ApiError(503, "request timeout", error_code="timeout") from None


def is_stopping(scope: Mapping[str, Any]) -> asyncio.Event:
    """The event that is set when the server stops; one that never is, of a server that has none."""
    found: asyncio.Event = scope.get("state", {}).get(STOPPING) or asyncio.Event()
    return found


def rendered(error: ApiError, scope: Mapping[str, Any]) -> tuple[Rendered, list[tuple[bytes, bytes]]]:
    """An error as the answer to this request: itself, and its headers as ASGI wants them."""
    accept = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"accept"), None)
    answer = error.rendered(accept=accept, request_id=scope.get(REQUEST_ID, ""))
    return answer, header_list({**answer.headers, "Content-Length": str(len(answer.body))}.items())


def header_list(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Headers as ASGI wants them."""
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def _owned_lease(method: str, authorization: str | None, segment: str, request_id: str) -> UUID:
    """Let a caller in to its lease, in a thread of the pool. Raises ApiError."""
    structlog.contextvars.clear_contextvars()
    if request_id:
        structlog.contextvars.bind_contextvars(request_id=request_id)
    close_old_connections()
    started = time.monotonic()
    try:
        admitted = admit(method=method, authorization=authorization, path=segment)
        return admitted.known_lease().uuid
    except ApiError:
        raise
    except Exception:
        log.exception("events.not_admitted", seconds=round(time.monotonic() - started, 1))
        raise ApiError(500, "internal server error") from None
    finally:
        close_old_connections()
