"""Commands of an operator, and a port without a server."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.fred.commands import Commands


@pytest.fixture(scope="session")
def manage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """`manage("check_config", variables=good())`: run this command of `manage.py`."""
    with Commands(tmp_path_factory.mktemp("commands")) as commands:
        yield commands


@pytest.fixture
def nobody_listens() -> Iterator[int]:
    """A port of this host at which nobody answers."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]
