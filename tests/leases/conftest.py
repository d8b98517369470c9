"""A chain of its own for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from leases.chain.devchain.running import RunningDevchain


@pytest.fixture
def house(settings, transactional_db) -> Iterator[RunningDevchain]:
    """A chain with a block per transaction; the settings name it, the provider's key may sign."""
    from leases import lane_draft, lanes, node
    from leases.chain.devchain import running
    from tests.leases.house import config_of

    with running.run() as chain:
        settings.FRED = config_of(chain, settings.FRED)
        lanes.ensure_signers()
        lane_draft.simulations.__init__()
        yield chain
        node.client().close()
