"""The sender's loop: one thread that holds all calls of this process to the backends. HTTP only, no database."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection

import structlog

from backends.client import (
    Accepted,
    Ambiguous,
    BackendClient,
    Done,
    NotSent,
    Pulse,
    Refused,
    count_malformed,
)
from backends.contract import Absent, ProvisionInfo, Unknown
from backends.requests import provision_info_request
from fred import crash, metrics, request_ids
from fred.http import Multi, Request, Response
from placements import awaited
from placements.calls import Met, Unproven
from placements.outcomes import Answer, Dropped, Result, Unread
from placements.push_sql import ANSWER_MARGIN
from placements.pushes import READ_LIMIT_S, Push, Stage
from placements.slots import SLOTS

log = structlog.get_logger(__name__)

_BUSY_POLL_S = 0.25
_IDLE_POLL_S = 30.0
_FENCED = "broken off: the backend was fenced"


class Loop:
    """Sends pushes and hands over their answers. After `start`, the public methods may be called by any thread."""

    def __init__(self, answered: Callable[[Answer], None]) -> None:
        """`answered` is called by the loop's thread, once for each push given."""
        self._answered = answered
        self._multi: Multi
        self._given: deque[Push] = deque()
        self._waiting: dict[str, deque[Push]] = {}
        self._on_wire: Counter[str] = Counter()
        self._refusing = False
        self._ending = False
        self._shut: frozenset[str] = frozenset()
        self._cut: frozenset[str] = frozenset()
        self._thread = threading.Thread(target=self._run, name="sender loop", daemon=True)

    def start(self) -> None:
        """Begin. The handles are made here: they must not be older than the process."""
        self._multi = Multi()
        self._thread.start()

    def give(self, pushes: list[Push]) -> None:
        """Send these as soon as their backend has room on the wire."""
        self._given.extend(pushes)
        self._multi.wakeup()

    def shut(self, backends: frozenset[str]) -> None:
        """From now on send nothing to these, and only these, backends; calls to them that run are broken off."""
        if backends != self._shut:
            self._shut = backends
            self._multi.wakeup()

    def refuse_new(self) -> None:
        """Start nothing any more: what waits is dropped, what runs goes on."""
        self._refusing = True
        self._multi.wakeup()

    def end(self, *, timeout: float) -> None:
        """Stop, dropping the calls that still run, and wait for the thread."""
        self._ending = True
        self._multi.wakeup()
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._ending:
            try:
                self._break_off()
                self._start()
                busy = self._multi.pending or any(self._waiting.values())
                for response in self._multi.poll(_BUSY_POLL_S if busy else _IDLE_POLL_S):
                    self._take(response)
            except Exception:  # this thread must outlive every surprise
                metrics.THREAD_CRASHES.labels("sender loop").inc()
                log.exception("sender loop stumbled")
        self._multi.close()

    def _start(self) -> None:
        while self._given:
            push = self._given.popleft()
            self._waiting.setdefault(push.backend, deque()).append(push)
        if unwanted := awaited.withdrawn():
            self._drop(unwanted)
        for backend, waiting in self._waiting.items():
            while waiting and (self._refusing or self._on_wire[backend] < SLOTS or not self._may_start(waiting[0])):
                push = waiting.popleft()
                if self._refusing or not self._may_start(push):
                    self._answered(Answer(push, Dropped()))
                    continue
                self._on_wire[backend] += 1
                self._begin(push)

    def _drop(self, unwanted: Collection[object]) -> None:
        """Answer for the waiting pushes of these rows, which nobody wants sent any more."""
        for waiting in self._waiting.values():
            dropped = [push for push in waiting if push.id in unwanted]
            for push in dropped:
                waiting.remove(push)
                self._answered(Answer(push, Dropped()))

    def _break_off(self) -> None:
        cut = self._shut - self._cut
        self._cut = self._shut
        if cut:
            self._multi.break_off(lambda push: isinstance(push, Push) and push.backend in cut, reason=_FENCED)

    def _may_start(self, push: Push) -> bool:
        return push.backend not in self._shut and push.may_start(time.monotonic())

    def _begin(self, push: Push) -> None:
        if not push.first:
            self._send(push, Stage.READING)
        elif awaited.may_leave(push.id):
            self._post(push)
        else:
            self._end(push, Dropped())

    def _post(self, push: Push) -> None:
        push.posted = True
        push.held_until = time.monotonic() + push.limit + ANSWER_MARGIN.total_seconds()
        self._send(push, Stage.POSTING)

    def _send(self, push: Push, stage: Stage) -> None:
        push.stage = stage
        try:
            request = self._request(push)
        except (TypeError, ValueError, UnicodeError) as error:
            metrics.BACKEND_INVOCATION_CRASHES.labels(_operation(push)).inc()
            log.exception("request not built", lease_uuid=str(push.lease_uuid), backend=push.backend)
            self._end(push, NotSent(f"the request could not be built: {type(error).__name__}", pulse=Pulse.NEUTRAL))
            return
        self._multi.submit(request)

    @staticmethod
    def _request(push: Push) -> Request:
        if push.stage is Stage.POSTING:
            with request_ids.on_behalf_of(push.request_id):
                return push.call.request(push.target, push.lease_uuid, tag=push)
        request = provision_info_request(push.target, push.lease_uuid, tag=push)
        limit = min(request.timeout, READ_LIMIT_S)
        push.held_until = time.monotonic() + limit + ANSWER_MARGIN.total_seconds()
        return Request(
            request.url, request.headers, timeout=limit, max_body=request.max_body, tls=request.tls, tag=push
        )

    def _take(self, response: Response) -> None:
        push = response.tag
        if not isinstance(push, Push):
            raise TypeError(push)
        try:
            result = self._next(push, response)
        except Exception as error:  # one answer must not cost the others theirs
            metrics.BACKEND_INVOCATION_CRASHES.labels(_operation(push)).inc()
            log.exception("answer not understood", lease_uuid=str(push.lease_uuid), backend=push.backend)
            result = Ambiguous(f"the answer could not be read: {type(error).__name__}")
        if result is not None:
            self._end(push, result)

    def _next(self, push: Push, response: Response) -> Result | None:
        """What an answer of the present stage means; None when the push goes on."""
        match push.stage:
            case Stage.POSTING:
                return self._posted(push, response)
            case Stage.READING:
                match self._read(push, response):
                    case Unknown(reason=reason):
                        return Unread(reason)
                    case Absent():
                        return self._send_again(push)
                return Accepted(Pulse.NEUTRAL)
        if push.unproven is None:
            raise ValueError(push.stage)
        return push.call.resolve(push.unproven, read=self._read(push, response))

    def _posted(self, push: Push, response: Response) -> Result | None:
        crash.point("teardown.sent" if push.is_teardown else "dispatch.posted")
        outcome = push.call.meaning(response, dialect=push.target.dialect, repeated=not push.first)
        self._observe(push, response, outcome.pulse, good=isinstance(outcome, Accepted | Done))
        _note(push, response, outcome)
        if isinstance(outcome, Unproven):
            push.unproven = outcome
            self._send(push, Stage.RESOLVING)
            return None
        return outcome

    def _send_again(self, push: Push) -> Result | None:
        if self._refusing or not self._may_start(push) or not awaited.may_leave(push.id):
            return Unread("the claim grew too old for sending again")
        self._post(push)
        return None

    def _read(self, push: Push, response: Response) -> ProvisionInfo | Absent | Unknown:
        found = BackendClient(push.target, fetch=lambda _: response).provision_info(push.lease_uuid)
        failed = isinstance(found, Unknown)
        self._observe(push, response, Pulse.FAILURE if failed else Pulse.SUCCESS, good=isinstance(found, ProvisionInfo))
        return found

    def _observe(self, push: Push, response: Response, pulse: Pulse, *, good: bool) -> None:
        # What we broke off ourselves says nothing about the backend.
        push.pulses.append(Pulse.NEUTRAL if push.backend in self._cut else pulse)
        labels = (push.backend, _operation(push), "success" if good else "error")
        metrics.BACKEND_REQUESTS.labels(*labels).inc()
        metrics.BACKEND_REQUEST_SECONDS.labels(*labels).observe(response.elapsed)

    def _end(self, push: Push, result: Result) -> None:
        self._on_wire[push.backend] -= 1
        self._answered(Answer(push, result))


def _operation(push: Push) -> str:
    """The call that this push is at."""
    return push.call.operation if push.stage is Stage.POSTING else "get_provision"


def _note(push: Push, response: Response, outcome: Met | Unproven) -> None:
    """Count and log what is wrong with an error body; only operators see it."""
    if isinstance(outcome, Ambiguous) and outcome.malformed:
        count_malformed(push.target, push.call.operation, why=outcome.malformed, body=response.body)
    if isinstance(outcome, Ambiguous | Refused) and outcome.unknown_code:
        log.warning(
            "backend.unknown_code",
            backend=push.backend,
            operation=push.call.operation,
            status=response.status,
            code=outcome.unknown_code[:100],
        )
