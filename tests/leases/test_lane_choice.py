"""Which verb has its turn, and how much of it one signer takes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from leases import lanes
from leases.lane_sql import Queue, Waiting


def queue(verb: str, count: int, seconds: float) -> Queue:
    return Queue(verb, count, timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("queues", "last", "expected"),
    [
        pytest.param([queue("ack", 5, 1), queue("reject", 5, 9)], "ack", "ack", id="acknowledgements first"),
        pytest.param([queue("ack", 5, 1), queue("reject", 5, 11)], "ack", "reject", id="a late reject after an ack"),
        pytest.param([queue("ack", 5, 1), queue("close", 5, 11)], "close", "ack", id="only every second time"),
        pytest.param([queue("reject", 5, 1)], "ack", "reject", id="nothing else waits"),
        pytest.param([queue("reject", 5, 1), queue("close", 1, 3)], "ack", "close", id="the oldest of the others"),
    ],
)
def test_whose_turn_it_is(queues, last, expected):
    chosen = lanes.choose(Waiting({one.verb: one for one in queues}, 1, last))
    assert chosen is not None
    assert chosen.verb == expected


def test_nothing_waits_nothing_is_chosen():
    assert lanes.choose(Waiting({}, 1, "")) is None


@pytest.mark.parametrize(
    ("count", "free", "expected"),
    [(3, 1, 25), (100, 4, 25), (1000, 4, 250), (1001, 2, 501), (5000, 1, 1000), (10, 0, 25)],
)
def test_the_share_of_a_signer(count, free, expected):
    """LC-73: what waits is divided among the free signers."""
    assert lanes.share(count, free_signers=free, most=1000) == expected
