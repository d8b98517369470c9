"""Time of a request, and of a part of it."""

import pytest

from fred.budget import Budget, at_most, of_part, spending, within


def test_a_request_has_its_time():
    assert within(100.0) == 100.0
    with spending(Budget(2.0, changes=False)):
        assert within(100.0) == pytest.approx(2.0, abs=1.0)
        assert within(0.5) == 0.5
    with spending(Budget(-1.0, changes=False)):
        assert within(100.0) == 0.0


def test_a_part_has_its_own_time_also_in_a_request_that_is_over():
    assert of_part(100.0) == 100.0
    with spending(Budget(-1.0, changes=False)), at_most(5.0):
        assert of_part(100.0) == pytest.approx(5.0, abs=1.0)
        assert of_part(1.0) == 1.0
        with at_most(60.0):
            assert of_part(100.0) == pytest.approx(5.0, abs=1.0)
        with at_most(None):
            assert of_part(100.0) == pytest.approx(5.0, abs=1.0)
    with at_most(-1.0):
        assert of_part(100.0) == 0.0
    assert of_part(100.0) == 100.0
