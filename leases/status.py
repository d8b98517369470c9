"""The states of a lease on the chain."""

from __future__ import annotations

from enum import IntEnum


class LeaseState(IntEnum):
    """What the chain says a lease is; the numbers are those of `liftedinit.billing.v1.LeaseState`.

    PENDING goes to ACTIVE (acknowledged), REJECTED (refused or cancelled) or EXPIRED (nobody acknowledged in time);
    ACTIVE goes to CLOSED. Nothing leaves a terminal state, and the chain never deletes a lease.
    """

    UNSPECIFIED = 0  # never stored on chain; as a filter it means all states
    PENDING = 1  # created, waits for the provider, not billed
    ACTIVE = 2  # acknowledged, billed by the second
    CLOSED = 3  # ended after being active
    REJECTED = 4  # refused by the provider, or cancelled by the tenant
    EXPIRED = 5  # not acknowledged in time

    @classmethod
    def parse(cls, number: int) -> LeaseState | None:
        """Return the state with this number, or None for a number this build does not know.

        Terminal is an allow-list: a newer chain's number must never lead to a teardown.
        """
        try:
            return cls(number)
        except ValueError:
            return None


TERMINAL = frozenset({LeaseState.CLOSED, LeaseState.REJECTED, LeaseState.EXPIRED})
LIVE = frozenset({LeaseState.PENDING, LeaseState.ACTIVE})
