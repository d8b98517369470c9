"""What the other tests of this folder stand on."""

import pytest

from leases.node import client
from tests.leases.house import pending


def test_leases_that_could_not_be_read_are_told_by_what_was_silent(house):
    silent = house.fault("grpc_error", where="*/Lease", code="UNAVAILABLE", text="the node is away")
    with silent, pytest.raises(AssertionError, match="the node is away") as told:
        pending(house, 2)
    text = str(told.value)
    assert client().endpoint in text
    uuids = house.call(lambda: list(house.node.chain.state.leases))
    assert len(uuids) == 2
    assert all(one in text for one in uuids)
