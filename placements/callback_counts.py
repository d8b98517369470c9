"""Counting callbacks: what they were about and what became of them. Called when that is sure, after the commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.conf import settings

from fred import metrics
from placements.callback_readings import Reading
from placements.callback_request import Selector, VerifiedCallback


@dataclass(frozen=True, slots=True)
class Stored:
    """What one transaction made of its callbacks.

    All that were read; of those the ones that the inbox did not have; and repeats that nobody needed to read.
    """

    readings: Sequence[Reading]
    news: Sequence[Reading]
    repeats: Sequence[VerifiedCallback]


def committed(stored: Stored) -> None:
    """Count what is committed."""
    _count_lifecycle(stored)
    conflicts = sum(_contradicts_the_placement(one) for one in stored.news)
    if conflicts:
        metrics.CALLBACK_CONFLICTS.inc(conflicts)
    closing = sum(one.named is not None and one.named.is_closing and _is_success(one) for one in stored.news)
    if closing:
        metrics.CALLBACK_AFTER_CLOSE.inc(closing)
    for row in (one.row for one in stored.news if one.told is None and not one.row.verdict):
        name = row.callback.backend_label or "unknown"
        known = name == "unknown" or any(name == backend.name for backend in settings.FRED.backends)
        metrics.NON_IN_FLIGHT_CALLBACKS.labels(backend=name if known else "invalid", status=row.callback.status).inc()


def refused(callback: VerifiedCallback, *, was_busy: bool) -> None:
    """Count one that its sender has to keep, because it could not be committed in time."""
    if was_busy:
        metrics.CALLBACK_CLAIM_TIMEOUTS.inc()
    if _names_no_operation(callback):
        metrics.CALLBACK_OUTCOMES.labels("retryable", "unknown", callback.status).inc()


def _count_lifecycle(stored: Stored) -> None:
    """Every request about a lease once, rather than about an operation that waits for its result."""
    news = {one.row.callback for one in stored.news}
    found: Counter[tuple[str, str, str]] = Counter(
        ("applied" if one.row.callback in news and not one.row.verdict else "dropped", _verdict(one), _status(one))
        for one in stored.readings
        if one.told is None
    )
    found.update(_of_repeats(stored.repeats))
    for labels, number in found.items():
        metrics.CALLBACK_OUTCOMES.labels(*labels).inc(number)


def _of_repeats(repeats: Iterable[VerifiedCallback]) -> Iterable[tuple[str, str, str]]:
    return (("dropped", "unknown", one.status) for one in repeats if _names_no_operation(one))


def _verdict(reading: Reading) -> str:
    """By what right the callback speaks of its lease."""
    match reading.row.verdict:
        case "other_backend":
            return "invalid"
        case "unknown_operation":
            return "unknown"
        case "settled":
            return "stale"
        case "stale":
            return "stale" if reading.owner is not None and reading.owner.lifecycle_id is not None else "missing"
    return "legacy" if reading.row.callback.selector is Selector.TOKENLESS else "authorized"


def _contradicts_the_placement(reading: Reading) -> bool:
    """Whether a success comes from another backend than the one that its lease is placed at."""
    is_elsewhere = reading.told is not None and reading.told.is_elsewhere
    return _is_success(reading) and (is_elsewhere or reading.row.verdict == "other_backend")


def _names_no_operation(callback: VerifiedCallback) -> bool:
    return callback.selector is not Selector.OPERATION


def _is_success(reading: Reading) -> bool:
    return _status(reading) == "success"


def _status(reading: Reading) -> str:
    return reading.row.callback.status
