"""A source with kept data, a new lease of the same tenant, and a backend that answers restores as the test says."""

import json
import time
from collections import defaultdict
from itertools import count
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest
from django.utils import timezone

from leases.status import LeaseState
from placements.models import Operation, Placement, Teardown
from tests.tenants_api.calls import PROVIDER, SKU, bearer
from tests.tenants_api.vectors import ALICE
from tests.waiting import wait_until

PENDING, CLOSED = LeaseState.PENDING, LeaseState.CLOSED
ITEMS = [{"sku": str(SKU), "quantity": 2, "service_name": "web"}]
BUSY = "lease is already being provisioned or restored"
ROWS = pytest.mark.django_db(
    transaction=True, available_apps=["fred", "leases", "backends", "placements", "reconciliation", "tenants_api"]
)


class Restoring:
    """Calls of the route, and what they left."""

    def __init__(self, backend, chain, client):
        self.backend, self.chain, self.client = backend, chain, client
        self.used, self.began = defaultdict(count), int(time.time())

    def lease(self, state=PENDING, **fields):
        """A stored lease of alice's, new and waiting for its payload by default."""
        from tests.factories.leases import LeaseFactory

        fields = {"tenant": ALICE, "provider_uuid": PROVIDER, "items": ITEMS, "meta_hash": bytes(32), **fields}
        return LeaseFactory(**{"chain_state": state, **fields})

    def source(self, *, backend="docker-1", state=CLOSED, torn_down=True, **fields):
        """A lease of alice's that ended; its placement says where its data is."""
        from tests.factories.backends import BackendFactory
        from tests.factories.placements import PlacementFactory

        lease = self.lease(**{"state": state, **fields})
        owner = BackendFactory(name=backend)
        PlacementFactory(lease=lease, backend=owner)
        if torn_down:
            Teardown.objects.create(lease=lease, backend=owner, state="done", done_at=timezone.now())
        return lease

    def ask(self, target, source=None, *, body=None, who="alice", key=None, client=None, headers=None):
        """Ask for a restore; the answer."""
        path = getattr(target, "pk", target)
        content = body if body is not None else json.dumps({"from_lease_uuid": str(getattr(source, "pk", source))})
        named = {} if key is None else {"Idempotency-Key": key}
        response = (client or self.client).post(
            f"/v1/leases/{path}/restore",
            content,
            content_type="application/json",
            headers={**self.token(who, path), **named, **(headers or {})},
        )
        return SimpleNamespace(
            status=response.status_code,
            body=json.loads(response.content) if response.content else None,
            raw=response.content,
            headers=response.headers,
        )

    def token(self, who, lease):
        """Headers with a token that no call of this test has used: no two of a lease are of the same second."""
        return bearer(who, lease, timestamp=self.began + 8 - next(self.used[lease]) % 34)

    def operation(self, target):
        """The restore's row; None when there is none."""
        return Operation.objects.filter(lease=target).order_by("-created_at").first()

    def in_flight(self, target):
        """Whether an operation of the lease is open."""
        return Operation.objects.filter(lease=target, settled_at__isnull=True).exists()

    def placed(self, target):
        """The backend and status of the lease's placement."""
        return Placement.objects.filter(lease=target).values_list("backend_id", "status").first()

    def posts(self):
        """The bodies of the restores that the backend was asked for."""
        return [one.body for one in list(self.backend.seen) if one.route == "restore"]

    def until_sender_rests(self):
        """Wait until nothing is on its way any more."""
        from placements import dispatch

        wait_until(lambda: dispatch.sender().is_idle)


def any_key() -> str:
    """A key that no one used."""
    return f"k-{uuid4()}"


def error(text: str, code: int, reason: str = "") -> dict[str, object]:
    """The error body."""
    return {"error": text, "code": code, **({"reason": reason} if reason else {})}


def number(count: int) -> UUID:
    """A UUID that is easy to read."""
    return UUID(int=count)
