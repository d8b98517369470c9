from __future__ import annotations

import pytest

from leases.chain.cosmos import CosmosClient
from tests.leases.chain.node import LATEST, OURS, block, running


@pytest.fixture
def node():
    with running() as node:
        node.answers[LATEST] = block()
        yield node


@pytest.fixture
def client(node):
    client = CosmosClient(node.endpoint, provider_uuid=OURS)
    yield client
    client.close()
