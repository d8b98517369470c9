"""Reading at a backend what became of a command: the state of the lease there, and its releases."""

from __future__ import annotations

import hashlib
from uuid import UUID

from backends.client import BackendClient
from backends.contract import ProvisionInfo, Unknown
from backends.releases import ReleaseInfo
from placements.command_status import PROGRESS
from reconciliation import facts_types as f
from reconciliation.command_facts import MaintenanceFact, ReleaseFact


def read(uuid: UUID, client: BackendClient) -> MaintenanceFact | f.Absent | f.Unknown:
    """What the backend shows; `Absent` when it does not know the lease. A backend without releases shows none.

    While it is at work its word for that is enough. Releases that can't be read are this lease's own trouble.
    """
    info = client.provision_info(uuid)
    if isinstance(info, Unknown):
        return f.Unknown("backend_silent")
    if not isinstance(info, ProvisionInfo):
        return f.Absent()
    releases = client.releases(uuid)
    if isinstance(releases, Unknown) and info.status not in PROGRESS:
        return f.Unknown("backend_silent", is_own=True)
    found = releases if isinstance(releases, tuple) else ()
    return MaintenanceFact(str(info.status), tuple(_release(one) for one in found))


def _release(one: ReleaseInfo) -> ReleaseFact:
    digest = hashlib.sha256(one.manifest).digest() if one.manifest else b""
    return ReleaseFact(one.version, one.status, one.created_at, one.message, digest)
