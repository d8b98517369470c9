"""Result codes of the chain and what each means for a provider.

Only (codespace, code) decides; texts are for people. Two exceptions are listed here because the node offers nothing
else: the sequence named in the text of a mismatch, and a failure in simulation, which arrives as text alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

BILLING, SDK, AUTHZ = "billing", "sdk", "authz"

LEASE_NOT_FOUND = (BILLING, 2)
LEASE_NOT_ACTIVE = (BILLING, 3)
UNAUTHORIZED = (BILLING, 6)
NOT_ONE_PROVIDER = (BILLING, 14)
NOTHING_TO_WITHDRAW = (BILLING, 15)
LEASE_NOT_PENDING = (BILLING, 22)
DEADLINE_PASSED = (BILLING, 34)
ACTIVE_CAP = (BILLING, 35)
SIGNATURE_UNAUTHORIZED = (SDK, 4)
INSUFFICIENT_FUNDS = (SDK, 5)
UNKNOWN_ADDRESS = (SDK, 9)
OUT_OF_GAS = (SDK, 11)
INSUFFICIENT_FEE = (SDK, 13)
IN_MEMPOOL_CACHE = (SDK, 19)
MEMPOOL_FULL = (SDK, 20)
TOO_LARGE = (SDK, 21)
TIMEOUT_HEIGHT = (SDK, 30)
WRONG_SEQUENCE = (SDK, 32)
NO_GRANT = (AUTHZ, 2)

_EXPECTED = re.compile(r"expected (\d+), got \d+")
_MAX_SEQUENCE = 2**64 - 1


class Verdict(StrEnum):
    """What to do about a failed acknowledge, reject or close."""

    FINISHED = "finished"  # some lease of it has moved on: read them exactly, drop those, send the rest
    NOT_NOW = "not_now"  # try again later, one lease at a time
    MISCONFIGURED = "misconfigured"  # our configuration or a bug: alert, do not repeat
    GAS = "gas"  # more gas, then again
    FEE = "fee"  # the node wants a higher fee: configuration, never split into single transactions
    SEQUENCE = "sequence"  # the signer's sequence is another: read it, sign anew
    IN_MEMPOOL = "in_mempool"  # these bytes are there already: wait for their hash
    BUSY = "busy"  # the node cannot take it now: again with back-off
    DEAD = "dead"  # these bytes can never be included: build anew
    SIGNER = "signer"  # this signer cannot pay or has no grant: give the work to another
    SPLIT = "split"  # too large for one transaction
    PERMANENT = "permanent"  # repeating cannot help


_VERDICTS = {
    LEASE_NOT_FOUND: Verdict.FINISHED,
    LEASE_NOT_ACTIVE: Verdict.FINISHED,
    LEASE_NOT_PENDING: Verdict.FINISHED,
    DEADLINE_PASSED: Verdict.FINISHED,
    ACTIVE_CAP: Verdict.NOT_NOW,
    UNAUTHORIZED: Verdict.MISCONFIGURED,
    NOT_ONE_PROVIDER: Verdict.MISCONFIGURED,
    OUT_OF_GAS: Verdict.GAS,
    INSUFFICIENT_FEE: Verdict.FEE,
    WRONG_SEQUENCE: Verdict.SEQUENCE,
    IN_MEMPOOL_CACHE: Verdict.IN_MEMPOOL,
    MEMPOOL_FULL: Verdict.BUSY,
    TIMEOUT_HEIGHT: Verdict.DEAD,
    INSUFFICIENT_FUNDS: Verdict.SIGNER,
    UNKNOWN_ADDRESS: Verdict.SIGNER,
    NO_GRANT: Verdict.SIGNER,
    TOO_LARGE: Verdict.SPLIT,
}

_SIMULATED = (
    ("lease not in pending state", LEASE_NOT_PENDING),
    ("lease not active", LEASE_NOT_ACTIVE),
    ("lease not found", LEASE_NOT_FOUND),
    ("no withdrawable amount", NOTHING_TO_WITHDRAW),
    ("acknowledge deadline", DEADLINE_PASSED),
    ("authorization not found", NO_GRANT),
    ("account sequence mismatch", WRONG_SEQUENCE),
    ("unauthorized", UNAUTHORIZED),
)
_PLACE = re.compile(r"\s*\[[^\[\]]*\]\s*with gas used: '(\d+)'\s*$")


@dataclass(frozen=True, slots=True)
class SimulatedFailure:
    """A failure in simulation that its text names: what executing the same bytes would answer now."""

    codespace: str
    code: int
    text: str

    @property
    def verdict(self) -> Verdict:
        """What to do about it."""
        return verdict(self.codespace, self.code)


def verdict(codespace: str, code: int) -> Verdict:
    """Say what to do about a failed transaction of ours. A pair that is not in the table is permanent."""
    return _VERDICTS.get((codespace, code), Verdict.PERMANENT)


def expected_sequence(codespace: str, code: int, raw_log: str) -> int | None:
    """Return the sequence the chain expects, as the text of a mismatch (sdk 32) names it; None when it names none."""
    if (codespace, code) != WRONG_SEQUENCE:
        return None
    found = _EXPECTED.search(raw_log)
    if found is None:
        return None
    sequence = int(found[1])
    return sequence if sequence <= _MAX_SEQUENCE else None


def without_place(text: str) -> str:
    """Cut `[file:line] with gas used: 'n'` off the text of a failed simulation."""
    return _PLACE.sub("", text)


def simulated_failure(text: str) -> SimulatedFailure | None:
    """Name the failure that the text of a failed simulation is about, None when it is none we know.

    The registered text stands last, after the detail, so the text that occurs last wins. For a transaction with
    several leases the failure is about one of them and says nothing of the others.
    """
    plain = without_place(text)
    places = ((plain.rfind(registered), pair) for registered, pair in _SIMULATED)
    at, pair = max(places, key=lambda place: place[0])
    if at < 0:
        return None
    return SimulatedFailure(codespace=pair[0], code=pair[1], text=plain)
