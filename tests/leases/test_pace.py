"""How many blocks a transaction may wait: by the pace of the last 20, within bounds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from leases.chain.client import BlockHead
from leases.chain.errors import CallRefused, ChainUnavailable
from leases.pace import Pace

START = datetime(2026, 1, 1, tzinfo=UTC)


class Blocks:
    """A chain with a block every so often."""

    endpoint = "node:9090"

    def __init__(self, every: float) -> None:
        self.every = every
        self.asked: list[int] = []
        self.error: Exception | None = None

    def head(self, height: int) -> BlockHead:
        return BlockHead(height, START + timedelta(seconds=self.every * height))

    def block_time(self, height: int) -> datetime:
        self.asked.append(height)
        if self.error is not None:
            raise self.error
        return self.head(height).time


def blocks_of(
    chain: Blocks, height: int = 1000, pace: Pace | None = None, *, least: int = 20, timeout: float = 30
) -> int:
    head = chain.head(height)
    limits = {"blocks": least, "timeout": timedelta(seconds=timeout)}
    return (pace or Pace()).timeout_height(chain, head, **limits) - height  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        pytest.param(6, 20, id="slow blocks: the least number"),
        pytest.param(1.5, 20, id="exactly as many fit"),
        pytest.param(1, 30, id="as many as fit"),
        pytest.param(0.7, 43, id="rounded up"),
        pytest.param(0.1, 300, id="fast blocks"),
        pytest.param(0.001, 2000, id="never more than 2,000"),
    ],
)
def test_as_many_blocks_as_fit_into_the_time_but_no_fewer_than_set(every, expected):
    chain = Blocks(every)
    assert blocks_of(chain) == expected
    assert chain.asked == [980]


def test_never_more_than_two_thousand_whatever_is_set():
    assert blocks_of(Blocks(1), least=5000) == 2000


def test_a_young_chain_is_measured_from_its_first_block():
    chain = Blocks(1)
    assert blocks_of(chain, 5) == 30
    assert chain.asked == [1]


@pytest.mark.parametrize("every", [0, -1], ids=["all blocks of one moment", "a chain that began anew"])
def test_a_pace_that_is_none_leaves_the_number_that_is_set(every):
    assert blocks_of(Blocks(every)) == 20


def test_the_first_block_has_no_pace():
    chain = Blocks(1)
    assert blocks_of(chain, 1) == 20
    assert chain.asked == []


@pytest.mark.parametrize("error", [ChainUnavailable("away"), CallRefused("pruned", code="INVALID_ARGUMENT")])
def test_a_block_that_cannot_be_read_leaves_the_number_that_is_set(error):
    chain = Blocks(1)
    chain.error = error
    assert blocks_of(chain) == 20


def test_the_pace_is_read_once_in_ten_seconds():
    now, chain = [0.0], Blocks(1)
    pace = Pace(clock=lambda: now[0])
    blocks_of(chain, 1000, pace)
    blocks_of(chain, 1001, pace)
    assert chain.asked == [980]
    now[0] = 10.0
    blocks_of(chain, 1002, pace)
    assert chain.asked == [980, 982]
