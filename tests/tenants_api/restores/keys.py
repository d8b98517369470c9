"""Keys of requests: raced, aged, and counted."""

from concurrent.futures import ThreadPoolExecutor

from django.db import connections
from django.db.models import F

from fred import metrics
from tenants_api.models import IdempotencyKey

REPLAYED = "Idempotency-Replayed"


def counted(outcome):
    """How often this was counted."""
    return metrics.IDEMPOTENCY.labels(outcome)._value.get()


def age(interval):
    """Let this much time pass for all keys."""
    fields = ("claimed_at", "claim_expires_at", "expires_at")
    IdempotencyKey.objects.update(**{name: F(name) - interval for name in fields})


def in_threads(number, call):
    """Call this so often at once; the results."""

    def run(index):
        try:
            return call(index)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(run, range(number)))
