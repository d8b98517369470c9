"""A lease with a placement, and the digest of a payload."""

from tests.factories.backends import BackendFactory
from tests.factories.placements import PlacementFactory

HASH = bytes(range(32))


def placed(lease, name="docker-1", **changes):
    """Place the lease at a backend."""
    return PlacementFactory(lease=lease, backend=BackendFactory(name=name), **changes)
