"""Noticing that placements could not be written. Whoever wrote nothing tries again; an operator has to know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import Error as DatabaseFailure

from fred import metrics


@contextmanager
def watched(*, writes: bool = True) -> Iterator[None]:
    """Count a transaction that fails in here, if it was to write placements."""
    try:
        yield
    except DatabaseFailure:
        if writes:
            metrics.PLACEMENT_WRITE_FAILURES.inc()
        raise
