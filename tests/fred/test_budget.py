"""Time of a request, and of a part of it."""

import pytest

from fred.budget import Budget, at_most, spending, within


def test_a_part_has_no_more_than_its_own_time_and_no_more_than_its_request():
    assert within(100.0) == 100.0
    with at_most(5.0):
        assert within(100.0) == pytest.approx(5.0, abs=1.0)
        assert within(1.0) == pytest.approx(1.0)
        with at_most(60.0):
            assert within(100.0) == pytest.approx(5.0, abs=1.0)
        with spending(Budget(2.0, changes=False)):
            assert within(100.0) == pytest.approx(2.0, abs=1.0)
    assert within(100.0) == 100.0
    with spending(Budget(2.0, changes=False)), at_most(None):
        assert within(100.0) == pytest.approx(2.0, abs=1.0)


def test_time_that_is_over_is_none():
    with at_most(-1.0):
        assert within(100.0) == 0.0
