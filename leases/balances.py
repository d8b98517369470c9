"""What the signers own, read from the chain for whoever scrapes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

from django.conf import settings
from django.db import connection

from fred import metrics
from fred.gauges import Samples
from leases.chain.client import ChainClient
from leases.chain.errors import ChainError
from leases.node import client

LIMIT_S: Final = 5.0
"""For all balances together."""
FRESH_S: Final = 15.0
GAUGE: Final = "fred_signer_balance"

Signers = list[tuple[str, str, str]]


class Balances:
    """The samples of `fred_signer_balance`, at most 15 s old: the provider's key and the sub-signers that may sign.

    A balance that cannot be read is left out and counted; a huge one is shown as the nearest float.
    """

    def __init__(
        self, *, chain: Callable[[], ChainClient] = client, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._chain = chain
        self._clock = clock
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._samples: dict[tuple[str, ...], float] = {}

    def samples(self) -> Mapping[str, Samples]:
        """The gauge and its samples by role, address, index and denomination."""
        with self._lock:
            if self._clock() - self._read_at >= FRESH_S:
                self._samples = self._read()
                self._read_at = self._clock()
            return {GAUGE: dict(self._samples)}

    def _read(self) -> dict[tuple[str, ...], float]:
        signers, denom = _signers(), str(settings.FRED.fee_denom)
        if not signers:
            return {}
        chain = self._chain()
        pool = ThreadPoolExecutor(min(8, len(signers)), thread_name_prefix="balances")
        try:
            asked: dict[Future[int], tuple[str, str, str]] = {
                pool.submit(chain.balance, address, denom): (role, address, index) for role, address, index in signers
            }
            wait(asked, timeout=LIMIT_S)
            found: dict[tuple[str, ...], float] = {}
            for future, (role, address, index) in asked.items():
                balance = _answer(future)
                if balance is None:
                    metrics.BALANCE_FAILURES.labels(role, address, denom).inc()
                else:
                    found[(role, address, index, denom)] = float(balance)
            return found
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _answer(future: Future[int]) -> int | None:
    if not future.done():
        return None
    try:
        return future.result()
    except ChainError:
        return None


def _signers() -> Signers:
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT role, address, COALESCE(index::text, '') FROM leases_signer
             WHERE (role = 'sub_signer' AND usable) OR address = %s ORDER BY index NULLS FIRST
            """,
            [settings.FRED.provider_address],
        )
        return [(role, address, index) for role, address, index in cursor.fetchall()]
