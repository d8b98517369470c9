"""Which verb has its turn, and how much of it one signer takes."""

from __future__ import annotations

import time
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


class Growing:
    """What waits, as counted step by step, and whether looks are due."""

    def __init__(self, counts: list[int], *, looks: bool) -> None:
        self.left = counts
        self.looks = looks

    def waiting(self, _: object) -> Waiting:
        count = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        return Waiting({"ack": queue("ack", count, 1)}, 1, "")

    def looks_due(self) -> bool:
        return self.looks


class Head:
    endpoint = "node"

    def latest_height(self) -> None:
        return None


@pytest.mark.parametrize(
    ("first", "later", "looks", "mean", "expected"),
    [
        pytest.param(1, [9], False, 1.0, 1, id="one alone never waits"),
        pytest.param(1, [9], True, 1.0, 9, id="one waits for looks that are due"),
        pytest.param(30, [60, 90, 1000, 1700], True, 1.0, 1000, id="until the transaction is full"),
        pytest.param(1000, [1700], True, 1.0, 1000, id="a full one does not wait"),
        pytest.param(30, [60, 90], False, 1.0, 90, id="while more comes in"),
        pytest.param(30, [60, 90], True, 0.02, 30, id="not on a chain of instant blocks"),
        pytest.param(30, [60, 90], True, None, 30, id="not on a chain without a pace"),
    ],
)
def test_the_last_free_signer_waits_for_more_acknowledgements(monkeypatch, first, later, looks, mean, expected):
    growing = Growing(later, looks=looks)
    monkeypatch.setattr(lanes, "lane_sql", growing)
    monkeypatch.setattr(lanes, "client", Head)
    monkeypatch.setattr(lanes.pace, "mean", lambda *_: None if mean is None else timedelta(seconds=mean))
    now = Waiting({"ack": queue("ack", first, 1)}, 1, "")
    began = time.monotonic()
    assert lanes._gather(now.queues["ack"], now).count == expected
    assert time.monotonic() - began < 5 * lanes.GATHER_MOST_S
