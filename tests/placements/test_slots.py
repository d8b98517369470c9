"""How many rows a sender may claim: a slow backend's for free slots only, a quick one's in batches."""

import pytest

from placements.slots import AHEAD_S, MOST_AHEAD, SLOTS, TEARDOWN_SLOTS, Slots


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def slots(clock):
    return Slots(clock)


def answer(slots, number, backend="a"):
    for _ in range(number):
        slots.take(backend)
        slots.give_back(backend)


def test_a_new_backend_has_as_many_as_slots(slots):
    assert slots.room(["a", "b"]) == {"a": SLOTS, "b": SLOTS}


def test_what_is_held_is_not_free_and_never_less_than_nothing(slots):
    for _ in range(SLOTS + 3):
        slots.take("a")
    assert slots.free("a") == 0
    assert slots.free("b") == SLOTS


def test_a_quick_backend_gets_ahead_what_it_answered_lately(slots, clock):
    answer(slots, 50)
    assert slots.free("a") == SLOTS + 50
    assert slots.free("b") == SLOTS
    clock.now += AHEAD_S
    assert slots.free("a") == SLOTS + 50, "the time before counts while the present one has told less"


def test_a_backend_that_stopped_answering_gets_no_more_ahead(slots, clock):
    answer(slots, 50)
    clock.now += 2 * AHEAD_S
    assert slots.free("a") == SLOTS


def test_not_more_than_a_batch_is_claimed_ahead(slots):
    answer(slots, 10 * MOST_AHEAD)
    assert slots.free("a") == SLOTS + MOST_AHEAD


def test_teardowns_get_their_part_however_quick_the_backend_is(slots):
    answer(slots, 200)
    assert slots.room(["a"], teardowns=True) == {"a": TEARDOWN_SLOTS}
    slots.take("a", teardown=True)
    assert slots.room(["a"], teardowns=True) == {"a": TEARDOWN_SLOTS - 1}
