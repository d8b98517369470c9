"""A stream that is connected and tells nothing is found out by the blocks that are read anyway."""

from __future__ import annotations

import pytest

from leases.chain import noticed
from leases.chain.events import EventType
from leases.chain.stream import FrameOrder
from reconciliation.watch_owed import DEAF_SECONDS, MISSING_SECONDS, Owed
from tests.reconciliation.watching import event


@pytest.fixture
def faults(monkeypatch):
    """The kinds of faults that were noticed."""
    seen = []
    monkeypatch.setattr(noticed, "fault", lambda kind, *_: seen.append(kind))
    return seen


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def owed(clock):
    """Connected while the chain was at height 10."""
    made = Owed(clock=clock)
    made.connected(above=10)
    return made


@pytest.fixture(autouse=True)
def ours(settings):
    """Events need a provider of the settings."""
    return settings.FRED


def of(height, kind=EventType.CREATED):
    return [event(kind, height=height)]


def test_a_frame_that_does_not_come_is_missing_once(owed, clock, faults):
    owed.told_by_block(of(11))
    owed.told_by_block(of(11))
    clock.now = MISSING_SECONDS
    assert not owed.is_deaf()
    assert not owed.is_deaf()
    assert faults == ["frame_missing"]


@pytest.mark.parametrize(
    ("frames_first", "height", "kind"),
    [
        pytest.param(True, 11, EventType.CREATED, id="the frame came before its block was read"),
        pytest.param(False, 11, EventType.CREATED, id="the frame came after"),
        pytest.param(None, 10, EventType.CREATED, id="a block from before the connection"),
        pytest.param(None, 11, EventType.WITHDRAWN, id="an event that nobody subscribes to"),
    ],
)
def test_what_was_told_or_never_owed_is_not_missing(owed, clock, faults, frames_first, height, kind):
    if frames_first:
        owed.told_by_frame(height)
    owed.told_by_block(of(height, kind))
    if frames_first is False:
        owed.told_by_frame(height)
    clock.now = 2 * DEAF_SECONDS
    assert not owed.is_deaf()
    assert not faults


def test_a_minute_without_any_owed_frame_is_deafness_told_once(owed, clock, faults):
    owed.told_by_block(of(11))
    clock.now = DEAF_SECONDS - 1
    assert not owed.is_deaf()
    clock.now = DEAF_SECONDS + 1
    assert owed.is_deaf()
    assert not owed.is_deaf()


def test_one_frame_shows_that_it_hears(owed, clock, faults):
    owed.told_by_block(of(11))
    clock.now = DEAF_SECONDS - 1
    owed.is_deaf()
    owed.told_by_frame(12)
    clock.now = DEAF_SECONDS + 1
    assert not owed.is_deaf()


def test_without_a_connection_nothing_is_owed(owed, clock, faults):
    owed.told_by_block(of(11))
    owed.lost()
    owed.told_by_block(of(12))
    clock.now = 2 * DEAF_SECONDS
    assert not owed.is_deaf()
    assert not faults


@pytest.mark.parametrize(
    ("frames", "kinds"),
    [
        pytest.param([(1, 5, "A"), (1, 5, "B"), (1, 6, "C")], [], id="in order"),
        pytest.param([(1, 6, "A"), (2, 5, "B")], [], id="no order between subscriptions"),
        pytest.param([(1, 5, "A"), (2, 5, "A")], [], id="CH-97 one transaction, two subscriptions"),
        pytest.param([(1, 5, "A"), (1, 5, "A")], ["frame_doubled"], id="the same frame again"),
        pytest.param([(1, 6, "A"), (1, 5, "B")], ["frame_disordered"], id="an older block after a newer"),
    ],
)
def test_the_order_of_frames_is_kept_by_subscription(faults, frames, kinds):
    order = FrameOrder()
    for frame in frames:
        order.note(*frame)
    assert faults == kinds
