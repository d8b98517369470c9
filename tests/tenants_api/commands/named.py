"""Two command keys, what an update brings, and the one command that comes of them."""

from placements.models import MaintenanceCommand
from tests.tenants_api.calls import envelope

K1 = "550e8400-e29b-41d4-a716-446655440000"
K2 = "6ba7b811-9dad-41d1-80b4-00c04fd430c8"
NEW = b"the new manifest"
UNAVAILABLE = envelope("service temporarily unavailable", 503)


def only():
    """The one command there is."""
    return MaintenanceCommand.objects.get()
