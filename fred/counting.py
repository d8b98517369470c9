"""Metrics of what a transaction does: counted once it is committed.

A transaction that only locks stood in the way of is run again, all of it; what it had counted would count twice, and
what was rolled back never was.
"""

from functools import partial

from django.db import transaction
from prometheus_client import Counter, Histogram


def count(counter: Counter, amount: float = 1) -> None:
    """Add to a counter after the commit of the running transaction; at once when none is running."""
    if amount:
        transaction.on_commit(partial(counter.inc, amount))


def observe(histogram: Histogram, value: float) -> None:
    """Add a value to a histogram after the commit of the running transaction; at once when none is running."""
    transaction.on_commit(partial(histogram.observe, value))
