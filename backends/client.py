"""A backend over HTTP, as the control plane uses it.

Mutations are pushed by a sender of its own: it builds requests with the functions of `backends.requests` and reads the
answers with those of `backends.outcomes`, both offered here too. `BackendClient` does the reads that wait for an
answer. Silence, errors and unreadable answers are `Unknown`; only an exact 404 is `Absent`.
"""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from time import monotonic
from typing import Generic, Protocol, TypeVar
from uuid import UUID

import structlog
from msgspec.structs import replace

from backends import envelope, wire
from backends.change_requests import releases_request
from backends.contract import (
    Absent,
    BackendUnavailable,
    Busy,
    Dialect,
    LeaseInfo,
    LoadStats,
    ProvisionInfo,
    ProvisionList,
    RetainedLease,
    RetentionList,
    Unknown,
)
from backends.outcomes import (
    Accepted,
    AlreadyProvisioned,
    Ambiguous,
    CapacityClaimed,
    Deferred,
    DeprovisionOutcome,
    Done,
    NotSent,
    Outcome,
    ProvisionOutcome,
    Pulse,
    RefusalKind,
    Refused,
    classify_deprovision,
    classify_provision,
    generic_text,
    resolve_provision,
)
from backends.releases import ReleaseInfo, read_releases
from backends.requests import (
    BackendTarget,
    deprovision_request,
    health_request,
    info_request,
    logs_request,
    lookup_request,
    page_request,
    provision_info_request,
    provision_request,
    stats_request,
)
from fred import metrics
from fred.http import ErrorKind, HttpError, Request, Response, fetch, fetch_each

__all__ = [
    "Accepted",
    "AlreadyProvisioned",
    "Ambiguous",
    "BackendClient",
    "BackendTarget",
    "CapacityClaimed",
    "Deferred",
    "DeprovisionOutcome",
    "Done",
    "Gate",
    "Health",
    "NotSent",
    "Outcome",
    "Pending",
    "ProvisionOutcome",
    "Pulse",
    "RefusalKind",
    "Refused",
    "ask_each",
    "classify_deprovision",
    "classify_provision",
    "count_malformed",
    "deprovision_request",
    "provision_request",
    "resolve_provision",
]

log = structlog.get_logger("backends.client")

BREAKER_OPEN = "circuit breaker is open"
MAX_PAGES = 100_000
STATS_SECONDS = 2.0
HEALTH_SECONDS = 3.0

_Page = TypeVar("_Page", wire.ProvisionsPage, wire.RetentionsPage)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Health:
    """Result of a health probe. `error` is for operators."""

    healthy: bool
    error: str = ""


class Gate(Protocol):
    """A circuit breaker around the reads; `fred.breaker.Breaker` is one."""

    def enter(self, *, limit: float | None = None) -> int | None:
        """A ticket for one call of at most `limit` seconds, or None when nothing may be sent."""

    def record(self, ticket: int, *, pulse: str) -> None:
        """What the call told about the backend: success, failure or neutral."""


@dataclass(frozen=True, slots=True)
class BackendClient:
    """Reads from one backend; thread safe, each call waits at most the target's time limit, or `limit` if shorter.

    A fenced backend is never contacted. `limit` (seconds) is the caller's own haste: running into it says nothing
    about the backend. `fetch` is where the requests go, for tests of this class alone.
    """

    target: BackendTarget
    gate: Gate | None = None
    limit: float | None = None
    fetch: Callable[[Request], Response] = fetch

    def info(self, lease_uuid: UUID) -> LeaseInfo | Absent | Unknown:
        """Connection details of a ready lease; `Absent` also while it is not ready."""
        return self._read(
            "get_info",
            info_request(self.target, lease_uuid, timeout=self._seconds()),
            lambda body: wire.to_info(wire.decode(body, wire.Info) if body.strip() != b"null" else wire.Info()),
        )

    def provision_info(self, lease_uuid: UUID) -> ProvisionInfo | Absent | Unknown:
        """The point read of a lease. An answer about another lease is no answer."""
        return self._ended(self.begin_provision_info(lease_uuid))

    def begin_provision_info(self, lease_uuid: UUID) -> "Pending[ProvisionInfo] | Unknown":
        """The same, to be sent with `ask_each`."""

        def decode(body: bytes) -> ProvisionInfo:
            row = wire.decode(body, wire.Row)
            if row.lease_uuid != lease_uuid:
                raise ValueError("answer is about another lease")
            return wire.to_provision(row)

        request = provision_info_request(self.target, lease_uuid, timeout=self._seconds())
        return self._begin("get_provision", request, decode)

    def logs(self, lease_uuid: UUID, *, tail: int = 100) -> dict[str, str] | Absent | Unknown:
        """The last lines of each instance."""
        return self._read(
            "get_logs",
            logs_request(self.target, lease_uuid, tail=tail, timeout=self._seconds()),
            lambda body: {} if body.strip() == b"null" else wire.decode(body, dict[str, str]),
        )

    def releases(self, lease_uuid: UUID) -> tuple[ReleaseInfo, ...] | Absent | Unknown:
        """The versions of a lease's workload, oldest first."""
        request = releases_request(self.target, lease_uuid, timeout=self._seconds())
        return self._read("get_releases", request, read_releases)

    def stats(self, *, timeout: float = STATS_SECONDS) -> LoadStats | Unknown:
        """The backend's load, asked with a short time limit in seconds."""
        found = self._read(
            "get_load_stats",
            stats_request(self.target, timeout=self._seconds(timeout)),
            lambda body: wire.to_stats(wire.decode(body, wire.Stats)),
        )
        return Unknown("stats are not served") if isinstance(found, Absent) else found

    def lookup(self, leases: Collection[UUID]) -> tuple[ProvisionInfo, ...] | Unknown:
        """The live provisions of 1 to 100 leases; an answer with a lease nobody asked for is discarded whole.

        Raises ValueError for another number of leases.
        """
        found = self._ended(self.begin_lookup(leases))
        return () if isinstance(found, Absent) else found

    def begin_lookup(self, leases: Collection[UUID]) -> "Pending[tuple[ProvisionInfo, ...]] | Unknown":
        """The same, to be sent with `ask_each`; `Absent` stands for none of them."""
        wanted = frozenset(leases)
        request = lookup_request(self.target, wanted, timeout=self._seconds())

        def decode(body: bytes) -> tuple[ProvisionInfo, ...]:
            rows = wire.decode(body, wire.ProvisionsPage).provisions
            if not wanted.issuperset(row.lease_uuid for row in rows):
                raise ValueError("answer has leases nobody asked for")
            return tuple(wire.to_provision(row) for row in rows)

        return self._begin("lookup_provisions", request, decode)

    def provisions(self) -> ProvisionList:
        """Everything live at this backend, complete. Raises `BackendUnavailable`; a part is never returned."""
        return ProvisionList(tuple(row for page in self.provision_pages() for row in page), complete=True)

    def provision_pages(self) -> Iterator[tuple[ProvisionInfo, ...]]:
        """The same page by page. What came before an error is worthless: complete is only a walk that ends without."""
        for page in self._walk("list_provisions", "/provisions", wire.ProvisionsPage):
            yield tuple(wire.to_provision(row) for row in page.provisions)

    def retentions(self) -> RetentionList:
        """Every closed lease whose data is kept, complete. Raises `BackendUnavailable`."""
        return RetentionList(tuple(row for page in self.retention_pages() for row in page), complete=True)

    def retention_pages(self) -> Iterator[tuple[RetainedLease, ...]]:
        """The same page by page; see `provision_pages`."""
        for page in self._walk("list_retentions", "/retentions", wire.RetentionsPage):
            yield tuple(wire.to_retained(row) for row in page.retentions)

    def health(self, *, timeout: float = HEALTH_SECONDS) -> Health:
        """Whether the backend calls itself healthy. Passes no breaker."""
        if self.target.shut:
            return Health(healthy=False, error=self.target.shut)
        response = self.fetch(health_request(self.target, timeout=timeout))
        if response.error is not None:
            return Health(healthy=False, error=envelope.clean(f"health check failed: {response.error.message}"))
        if response.status != 200:
            return Health(healthy=False, error=f"backend unhealthy: status {response.status}")
        return Health(healthy=True)

    def _count(self, operation: str, status: str, *, since: float) -> None:
        status = "fenced" if self.target.fenced else status
        number, seconds = metrics.backend_series(self.target.name, operation, status)
        number.inc()
        seconds.observe(monotonic() - since)

    def _seconds(self, usual: float | None = None) -> float:
        """What a request may take: as usual (None: the target's time limit), or `limit` if that is shorter."""
        usual = self.target.timeout if usual is None else usual
        return usual if self.limit is None else min(usual, self.limit)

    def _read(self, operation: str, request: Request, decode: Callable[[bytes], _T]) -> _T | Absent | Unknown:
        return self._ended(self._begin(operation, request, decode))

    def _begin(self, operation: str, request: Request, decode: Callable[[bytes], _T]) -> "Pending[_T] | Unknown":
        started = monotonic()
        refused, ticket = self.target.shut, None
        if not refused and self.gate is not None:
            ticket = self.gate.enter(limit=request.timeout)
            refused = BREAKER_OPEN if ticket is None else ""
        if refused:
            self._count(operation, "error", since=started)
            return Unknown(refused)
        return Pending(self, operation, request, decode, ticket, started)

    def _ended(self, begun: "Pending[_T] | Unknown") -> _T | Absent | Unknown:
        if isinstance(begun, Unknown):
            return begun
        response = None
        try:
            response = self.fetch(begun.request)
        finally:
            found = begun.end(response)
        return found

    def _judge(
        self, operation: str, request: Request, response: Response, decode: Callable[[bytes], _T]
    ) -> tuple[_T | Absent | Unknown, Pulse]:
        if response.error is not None:
            pulse = Pulse.NEUTRAL if self._gave_up_early(request, response.error) else Pulse.FAILURE
            return Unknown(envelope.clean(f"{operation} request failed: {response.error.message}")), pulse
        if response.status == 200:
            try:
                return decode(response.body), Pulse.SUCCESS
            except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
                return Unknown(envelope.clean(f"decode {operation} response: {error}")), Pulse.FAILURE
        if response.status == 404:
            return Absent(), Pulse.SUCCESS
        return self._bad_status(operation, response)

    def _gave_up_early(self, request: Request, error: HttpError) -> bool:
        """Whether our own haste ended the call: the backend had less time than it is configured to have."""
        return error.kind in {ErrorKind.TIMEOUT, ErrorKind.CONNECT_TIMEOUT} and request.timeout < self.target.timeout

    def _bad_status(self, operation: str, response: Response) -> tuple[Unknown, Pulse]:
        if response.status == 503 and self.target.dialect is Dialect.CURRENT:
            match envelope.read(response.body, dialect=self.target.dialect):
                case envelope.Envelope(error=text, code="insufficient_resources"):
                    return Busy(f"busy: {text}"), Pulse.SUCCESS
                case envelope.Malformed(why=why):
                    count_malformed(self.target, operation, why=why, body=response.body)
                    return Unknown(envelope.MALFORMED_TEXT), Pulse.FAILURE
        return Unknown(generic_text(operation, response)), Pulse.FAILURE

    def _walk(self, operation: str, path: str, kind: type[_Page]) -> Iterator[_Page]:
        started, status = monotonic(), "error"
        if self.target.shut:
            self._count(operation, "error", since=started)
            raise BackendUnavailable(self.target.shut)
        try:
            yield from self._pages(operation, path, kind)
            status = "success"
        finally:
            self._count(operation, status, since=started)

    def _pages(self, operation: str, path: str, kind: type[_Page]) -> Iterator[_Page]:
        token = ""
        for _ in range(MAX_PAGES):
            request = page_request(self.target, path, token=token)
            page, _pulse = self._judge(operation, request, self.fetch(request), lambda body: wire.decode(body, kind))
            if isinstance(page, Absent):
                raise BackendUnavailable(f"{operation} failed with status 404")
            if isinstance(page, Unknown):
                raise BackendUnavailable(page.reason)
            yield page
            following = page.next or ""
            if not following:
                return
            if following <= token:
                raise BackendUnavailable(f"{operation}: backend returned non-advancing continue token {following!r}")
            token = following
        raise BackendUnavailable(f"{operation}: more than {MAX_PAGES} pages")


@dataclass(frozen=True, slots=True)
class Pending(Generic[_T]):
    """A read that was let through: its request, and what the response to it comes to. `end` it exactly once."""

    client: BackendClient
    operation: str
    request: Request
    decode: Callable[[bytes], _T]
    ticket: int | None
    started: float

    def end(self, response: Response | None) -> _T | Absent | Unknown:
        """Read the response and tell the breaker; None: it was given up, which says nothing about the backend."""
        found: _T | Absent | Unknown = Unknown(f"{self.operation} was given up")
        pulse = Pulse.NEUTRAL
        client = self.client
        try:
            if response is not None:
                found, pulse = client._judge(self.operation, self.request, response, self.decode)  # noqa: SLF001
        finally:
            if client.gate is not None and self.ticket is not None:
                client.gate.record(self.ticket, pulse=pulse)
        status = "error" if isinstance(found, Absent | Unknown) else "success"
        client._count(self.operation, status, since=self.started)  # noqa: SLF001
        return found


def ask_each(
    asked: Mapping[str, Callable[[], Pending[_T] | Unknown]],
    *,
    each: Callable[[Sequence[Request]], Generator[Response]] = fetch_each,
) -> Generator[tuple[str, _T | Absent | Unknown]]:
    """Begin these reads and send them at once; yield the name and the result of each as soon as it is known.

    Whoever stops listening gives up the others: they are broken off. `each` is where the requests go.
    """
    waiting: dict[str, Pending[_T]] = {}
    try:
        refused: dict[str, Unknown] = {}
        for name, begin in asked.items():
            begun = begin()
            if isinstance(begun, Pending):
                waiting[name] = begun
            else:
                refused[name] = begun
        yield from refused.items()
        with closing(each([replace(one.request, tag=name) for name, one in waiting.items()])) as responses:
            for response in responses:
                name = str(response.tag)
                yield name, waiting.pop(name).end(response)
    finally:
        with ExitStack() as given_up:  # whatever becomes of one, all others too have their slot given back
            for one in waiting.values():
                given_up.callback(one.end, None)


def count_malformed(backend: BackendTarget, operation: str, *, why: str, body: bytes) -> None:
    """Count and log an error body that is not the envelope; our log is the only place its bytes may reach."""
    metrics.MALFORMED_ERROR_BODIES.labels(backend.name, operation).inc()
    text = envelope.clean(body[: envelope.MAX_BYTES].decode(errors="replace"))
    log.warning("malformed error body", backend=backend.name, operation=operation, why=why, body=text)
