"""What a failed test left open ends with it: no test that comes later fails for that."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Generator
from typing import Any

import pytest

_has_failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note whether any part of the test failed."""
    report = yield
    item.stash[_has_failed] = report.failed or item.stash.get(_has_failed, False)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """After a failed test let go of its frames, and collect without a word what they held."""
    done = yield
    if item.stash.get(_has_failed, False):
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            sys.__dict__.pop(name, None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
    return done
