"""Whether this deployment can work: small questions with a deadline, asked in threads that may be left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import structlog

DEADLINE_S: Final = 3.0
"""All checks together have this long; what has not answered by then is unhealthy."""
SHARED_FOR_S: Final = 1.0
"""Callers within this time get the same report: nobody can make us probe faster."""

log = structlog.get_logger(__name__)


class Verdict(StrEnum):
    """The three words of a health report."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one thing. `local` ones decide whether we can work, others only degrade."""

    name: str
    local: bool
    message: str = ""
    """Empty means healthy. A fixed text: raw errors go to the log."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one question brought: findings and, when known, the number of provisions in flight."""

    findings: Sequence[Finding]
    in_flight: int | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A probe with the findings that hold when it fails or does not answer."""

    name: str
    ask: Callable[[], Part]
    otherwise: Callable[[], Part]


@dataclass(frozen=True, slots=True)
class Report:
    """What all questions brought."""

    findings: Sequence[Finding] = ()
    in_flight: int | None = None

    @property
    def verdict(self) -> Verdict:
        """Any local thing bad: unhealthy; else any remote one: degraded."""
        bad = [finding for finding in self.findings if finding.message]
        if any(finding.local for finding in bad):
            return Verdict.UNHEALTHY
        return Verdict.DEGRADED if bad else Verdict.HEALTHY

    def as_body(self, provider_uuid: str) -> dict[str, Any]:
        """The members of the answer of `/health` and `/readyz`."""
        body: dict[str, Any] = {
            "status": self.verdict.value,
            "provider_uuid": provider_uuid,
            "checks": {
                finding.name: {"status": "unhealthy", "message": finding.message}
                if finding.message
                else {"status": "healthy"}
                for finding in sorted(self.findings, key=lambda finding: finding.name)
            },
        }
        if self.in_flight is not None:
            body["stats"] = {"in_flight_provisions": self.in_flight}
        return body


class Prober:
    """Asks the questions for all callers: one run at a time, one thread for a question at a time.

    A question whose thread hangs counts as failed at once until that thread has come back.
    """

    def __init__(
        self,
        questions: Sequence[Question],
        *,
        deadline_s: float = DEADLINE_S,
        shared_for_s: float = SHARED_FOR_S,
    ) -> None:
        """Name the questions; nothing is asked yet."""
        self._questions = questions
        self._deadline_s = deadline_s
        self._shared_for_s = shared_for_s
        self._running: dict[str, Future[Part]] = {}
        self._lock = threading.Lock()
        self._failing: set[str] = set()
        self._last = Report()
        self._last_at = float("-inf")

    @property
    def questions(self) -> Sequence[Question]:
        """What is asked."""
        return self._questions

    @property
    def last(self) -> Report | None:
        """What was found last, however long ago; nobody waits for it. None before anything was."""
        return self._last if self._last_at > float("-inf") else None

    def report(self) -> Report:
        """The state now, at most `shared_for_s` old; takes the deadline at most."""
        with self._lock:
            if time.monotonic() - self._last_at > self._shared_for_s:
                before, self._last = self._last.verdict, self._ask_all()
                self._last_at = time.monotonic()
                self._tell(before)
            return self._last

    def _tell(self, before: Verdict) -> None:
        """One line when the verdict changes, however often probes come."""
        verdict = self._last.verdict
        if verdict is before:
            return
        if verdict is Verdict.HEALTHY:
            log.info("health.recovered")
        else:
            bad = {finding.name: finding.message for finding in self._last.findings if finding.message}
            log.warning("health.verdict", verdict=verdict.value, before=before.value, checks=bad)

    def _ask_all(self) -> Report:
        until = time.monotonic() + self._deadline_s
        asked = [(question, self._start(question)) for question in self._questions]
        findings: dict[str, Finding] = {}
        in_flight: int | None = None
        for question, future in asked:
            part = self._outcome(question, future, until)
            for finding in part.findings:
                # Two questions may speak of one thing: the bad word counts.
                if finding.name not in findings or finding.message:
                    findings[finding.name] = finding
            in_flight = part.in_flight if part.in_flight is not None else in_flight
        return Report(list(findings.values()), in_flight)

    def _start(self, question: Question) -> Future[Part] | None:
        left_behind = self._running.get(question.name)
        if left_behind is not None and not left_behind.done():
            return None
        future: Future[Part] = Future()
        self._running[question.name] = future

        def ask() -> None:
            try:
                future.set_result(question.ask())
            except Exception as error:  # noqa: BLE001 - whatever it is, the thing did not answer
                future.set_exception(error)

        threading.Thread(target=ask, name=f"health {question.name}", daemon=True).start()
        return future

    def _outcome(self, question: Question, future: Future[Part] | None, until: float) -> Part:
        if future is None:
            return question.otherwise()
        try:
            part = future.result(max(0.0, until - time.monotonic()))
        except Exception as error:  # noqa: BLE001 - a crash and silence are the same here
            if question.name not in self._failing:
                self._failing.add(question.name)
                log.warning("health.check_failed", check=question.name, error=repr(error))
            return question.otherwise()
        self._failing.discard(question.name)
        return part
