"""Requests that their tenant named by an Idempotency-Key: run once, and answered alike ever after.

The key is claimed before any work. Whoever comes second waits for the first, and gets its answer, or runs when nothing
came of it. A claim ends by itself, so that a killed process blocks nobody for ever.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final
from uuid import UUID, uuid4

import structlog
from django.db import Error as DatabaseFailure
from django.db import connection
from django.http import HttpRequest, HttpResponse

from fred import crash, metrics
from fred.connections import let_go
from tenants_api import idempotency_sql as sql
from tenants_api.errors import ApiError, request_id_of, unavailable
from tenants_api.lease_route import Call

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotency-Replayed"
JOIN_S: Final = 8.0
"""How long a request waits for another with the same key."""
POLL_S: Final = 0.25
RENEW_EVERY_S: Final = 20.0

_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Attempt:
    """One run of a request. ``operation_id`` is the name of what it makes, the same for every run of one key."""

    operation_id: UUID = field(default_factory=uuid4)
    claim: sql.Claim | None = None
    is_kept: bool = False

    @property
    def is_repeat(self) -> bool:
        """Whether an earlier run of the same request broke off, and may have gone some way."""
        return self.claim is not None and self.claim.attempt > 1

    def keep(self, response: HttpResponse) -> None:
        """Store a success as the answer of the key. In an open transaction it is stored with that, or not at all."""
        if self.claim is not None and 200 <= response.status_code < 300:
            self.is_kept = sql.finish(
                self.claim,
                status=response.status_code,
                content_type=response.headers.get("Content-Type", ""),
                body=response.content,
            )


Work = Callable[[Attempt], HttpResponse]


def keys_of(request: HttpRequest) -> list[str]:
    """Every Idempotency-Key header of a request, as it came; Django itself would join several."""
    scope = getattr(request, "scope", None)
    if scope is not None:
        return [value.decode("latin-1") for name, value in scope["headers"] if name == b"idempotency-key"]
    found = request.META.get("HTTP_IDEMPOTENCY_KEY")
    return [] if found is None else [found]


def key_of(request: HttpRequest) -> str | None:
    """The one key of a request, None without; raises 400 for several, or for one of another form."""
    keys = keys_of(request)
    if not keys:
        return None
    if len(keys) > 1 or not _KEY.fullmatch(keys[0]):
        raise ApiError(400, "invalid idempotency key", error_code="idempotency_key_invalid")
    return keys[0]


def answered(call: Call, work: Work, *, otherwise: str | None) -> HttpResponse:
    """Run `work` for this request, or give the answer that another with the same key got.

    `otherwise` is the route's answer to a body that can't be read; None: the route reads none. Successes are kept for
    24 hours, anything else is forgotten and runs again. Raises ApiError, whatever `work` raises, and 422 for a key that
    named another request.
    """
    key = key_of(call.request)
    if key is None:
        return work(Attempt())
    path = f"/v1/leases/{call.lease_uuid}/{call.name}"
    scope = sql.Scope(call.token.tenant, call.request.method or "", path, key)
    found = _claim_or_answer(scope, sha256(_body(call, otherwise)).digest(), request_id_of(call.request))
    if isinstance(found, HttpResponse):
        return found
    crash.point("idempotency.claimed")
    with _renewals.holding(found):
        return _run_claimed(work, found)


def _run_claimed(work: Work, claim: sql.Claim) -> HttpResponse:
    attempt = Attempt(claim.operation_id, claim)
    try:
        response = work(attempt)
        if not attempt.is_kept:
            _end(attempt, response)
    except BaseException:
        _end(attempt, None)
        raise
    finally:
        _changes.announce()
    return response


def _end(attempt: Attempt, response: HttpResponse | None) -> None:
    """Keep a success, forget anything else. What can't be written runs into the end of its claim."""
    if attempt.claim is None or attempt.is_kept:
        return
    try:
        if response is not None and 200 <= response.status_code < 300:
            attempt.keep(response)
        else:
            sql.release(attempt.claim)
    except DatabaseFailure as error:
        log.error("idempotency.not_stored", error=type(error).__name__)  # noqa: TRY400 - its text may hold the body


def _body(call: Call, otherwise: str | None) -> bytes:
    try:
        return call.body(otherwise=otherwise or "")
    except ApiError:
        if otherwise is None:
            return b""
        raise


def _claim_or_answer(scope: sql.Scope, digest: bytes, request_id: str) -> sql.Claim | HttpResponse:
    """Get the right to run, or the answer of who has it; waits for that."""
    proposed, until = uuid4(), time.monotonic() + JOIN_S
    tries_claim = True
    while True:
        seen = _changes.count
        try:
            if tries_claim and (claim := sql.claim(scope, sha256=digest, operation_id=proposed, request_id=request_id)):
                _count("claimed" if claim.operation_id == proposed else "taken_over")
                return claim
            kept = sql.kept_answer(scope)
        except DatabaseFailure as error:
            log.error("idempotency.unavailable", error=type(error).__name__)  # noqa: TRY400
            raise unavailable() from None
        tries_claim = kept is None or kept.is_gone or (kept.is_stale and kept.request_sha256 == digest)
        if kept is None or tries_claim:
            continue
        if kept.request_sha256 != digest:
            _count("mismatch")
            text = "idempotency key was used with a different request"
            raise ApiError(422, text, error_code="idempotency_key_mismatch")
        if kept.is_done:
            _count("replayed")
            return _replay(kept)
        if time.monotonic() >= until:
            _count("in_progress")
            text = "a request with this idempotency key is still being processed"
            raise ApiError(409, text, error_code="idempotency_in_progress", headers={"Retry-After": "1"})
        let_go()
        _changes.wait(seen, timeout=min(POLL_S, max(0.0, until - time.monotonic())))


def _replay(kept: sql.KeptAnswer) -> HttpResponse:
    headers = {"Content-Type": kept.content_type, REPLAYED: "true"}
    if not kept.body:
        headers["Content-Length"] = "0"
    return HttpResponse(kept.body, status=kept.status, headers=headers)


def _count(outcome: str) -> None:
    metrics.IDEMPOTENCY.labels(outcome).inc()


class _Changes:
    """Wakes the requests of this process that wait for another when one of its own has ended."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self.count = 0

    def announce(self) -> None:
        with self._condition:
            self.count += 1
            self._condition.notify_all()

    def wait(self, seen: int, *, timeout: float) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self.count != seen, timeout)


class _Renewals:
    """Prolongs the claims of running requests, in a thread that starts with the first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: set[sql.Claim] = set()
        self._thread: threading.Thread | None = None

    @contextmanager
    def holding(self, claim: sql.Claim) -> Iterator[None]:
        with self._lock:
            self._held.add(claim)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="idempotency renewals", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._held.discard(claim)

    def renew(self) -> None:
        with self._lock:
            held = list(self._held)
        if not held:
            return
        try:
            sql.renew(held)
        except DatabaseFailure as error:
            log.warning("idempotency.not_renewed", error=type(error).__name__)

    def _run(self) -> None:
        tick = threading.Event()
        while not tick.wait(RENEW_EVERY_S):
            if self._held:
                self.renew()
                connection.close()


_changes = _Changes()
_renewals = _Renewals()
