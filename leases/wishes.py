"""What a lease's state says of a wish for the chain: acknowledge, reject, close. Pure."""

from __future__ import annotations

from enum import Enum, auto

from leases.chain.client import Absent, ExactLease, Unknown
from leases.status import LeaseState


class WishState(Enum):
    """How a wish for the chain stands."""

    SEND = auto()  # the chain can still grant it
    DONE = auto()  # the lease is where it was wanted to be, whoever brought it there
    MOOT = auto()  # the lease went another way and cannot come back
    DOUBT = auto()  # nothing is known: neither done nor given up


REACHED = {"ack": LeaseState.ACTIVE, "reject": LeaseState.REJECTED, "close": LeaseState.CLOSED}
"""Where each wish moves a lease."""

_FROM = {"ack": LeaseState.PENDING, "reject": LeaseState.PENDING, "close": LeaseState.ACTIVE}


def wish_state(verb: str, state: LeaseState | None) -> WishState:
    """Say how a wish stands for a lease in this state; None is a state nobody has read or nobody knows."""
    if state is None or state is LeaseState.UNSPECIFIED:
        return WishState.DOUBT
    if state is REACHED[verb]:
        return WishState.DONE
    if state is _FROM[verb]:
        return WishState.SEND
    # Only a close can stand before its time (PENDING): its maker has to decide again.
    return WishState.MOOT


def wish_state_as_read(verb: str, read: ExactLease | Absent | Unknown) -> WishState:
    """The same for an exact read. A lease that was not found or not read is in doubt, never ended."""
    return wish_state(verb, read.lease.state) if isinstance(read, ExactLease) else WishState.DOUBT
