"""Commands of an operator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fred.commands import Commands


@pytest.fixture(scope="session")
def manage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """`manage("check_config", variables=good())`: run this command of `manage.py`."""
    with Commands(tmp_path_factory.mktemp("commands")) as commands:
        yield commands
