"""One house for all tests of this folder that kill parts of it."""

from __future__ import annotations

import pytest

from tests.e2e.stack import Stack


@pytest.fixture(scope="session")
def stack():
    house = Stack()
    try:
        house.start()
        yield house
    finally:
        house.stop()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test shows what every process said last."""
    outcome = yield
    report = outcome.get_result()
    house = getattr(item, "funcargs", {}).get("stack")
    if report.failed and house is not None:
        report.sections.append(("logs of the house", house.tail()))
