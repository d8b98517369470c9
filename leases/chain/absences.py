"""What a transaction's way through the node tells of the node itself."""

from __future__ import annotations

import threading
from collections import OrderedDict

from leases.chain import codes

_KEPT = 1000
_FAULTS = {
    codes.WRONG_SEQUENCE: "sequence",
    codes.MEMPOOL_FULL: "mempool_full",
    codes.INSUFFICIENT_FEE: "fee_refused",
    codes.OUT_OF_GAS: "out_of_gas",
}


def fault_of(codespace: str, code: int, otherwise: str) -> str:
    """The kind of fault that a transaction's code is counted as."""
    return _FAULTS.get((codespace, code), otherwise)


class RecentlyMissing:
    """Transactions that were looked for and not found, the newest thousand, with the greatest such height."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heights: OrderedDict[str, int] = OrderedDict()

    def note(self, tx_hash: str, height: int) -> None:
        """At this height it was not found."""
        with self._lock:
            self._heights[tx_hash] = max(height, self._heights.pop(tx_hash, -1))
            if len(self._heights) > _KEPT:
                self._heights.popitem(last=False)

    def was_at(self, tx_hash: str, height: int) -> bool:
        """It was found in the block of this height: was it looked for there in vain? Forgets it."""
        with self._lock:
            return self._heights.pop(tx_hash, -1) >= height
