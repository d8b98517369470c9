"""A lease of alice at a scripted backend, and the sender of a web process.

Models are imported inside the fixtures: this file is read before Django is set up.
"""

import json
from base64 import b64encode
from types import SimpleNamespace
from uuid import UUID

import pytest

from fred.conf import BackendConfig
from leases.status import LeaseState
from tests.scripted_backend import ScriptedBackend
from tests.tenants_api.calls import PROVIDER
from tests.tenants_api.commands.fresh import Fresh
from tests.tenants_api.vectors import ALICE, LEASE

OLD = b"the old manifest"
LIFECYCLE = "3f2c1d60-7d5a-4b57-9b1c-6c7b4a0f9e11"


@pytest.fixture
def backend(transactional_db, settings, valkey):
    """`docker-1`, the only backend, answers as the test scripts it; without a script 202 to restart and update."""
    from backends import targets
    from fred import breaker
    from placements import dispatch
    from tests.factories.backends import BackendFactory
    from tests.factories.leases import ChainCursorFactory

    breaker.forget()
    with ScriptedBackend() as server:
        server.always |= {"restart": (202, b'{"status":"restarting"}'), "update": (202, b'{"status":"updating"}')}
        BackendFactory(name="docker-1", url=server.url)
        settings.MIDDLEWARE = []
        settings.FRED = settings.FRED.model_copy(
            update={
                "provider_uuid": PROVIDER,
                "backends": (BackendConfig(name="docker-1", url=server.url, default=True, timeout="30s"),),
                "tenant_rate_limit_rps": 1000.0,
                "tenant_rate_limit_burst": 1000,
            }
        )
        ChainCursorFactory(head_seen_at=_now())
        targets.forget()
        dispatch.drain(deadline=0.2)
        dispatch.use_in_web()
        yield server
        dispatch.drain(deadline=0.2)
        dispatch._pulls = True
    targets.forget()
    breaker.forget()


def _now():
    from django.utils import timezone

    return timezone.now()


@pytest.fixture
def make_lease(backend, chain):
    """`make_lease(uuid)`: an ACTIVE lease of alice, on chain too, that docker-1 serves."""
    from tests.factories.leases import LeaseFactory
    from tests.factories.placements import PlacementFactory

    def make(uuid=LEASE, *, placed=True, **changes):
        fields = {
            "tenant": ALICE,
            "provider_uuid": PROVIDER,
            "chain_state": LeaseState.ACTIVE,
            "items": [],
            "meta_hash": b"",
        }
        fields |= changes
        made = LeaseFactory(uuid=uuid, **fields)
        chain.add(
            UUID(uuid), tenant=fields["tenant"], state=LeaseState(fields["chain_state"]), meta_hash=fields["meta_hash"]
        )
        if placed:
            PlacementFactory(lease=made, backend_id="docker-1", backend=None, lifecycle_id=LIFECYCLE)
        return made

    return make


@pytest.fixture
def lease(make_lease):
    """Lease L of the acceptance cases, with a payload."""
    from tests.factories.leases import PayloadFactory

    made = make_lease()
    PayloadFactory(lease=made, body=OLD)
    return made


@pytest.fixture
def ask(client, chain, backend):
    """`ask("restart", key=K1)`: call a route of a lease; return status, body, raw body and headers."""

    fresh = Fresh()

    def call(route, who="alice", *, path=LEASE, key=None, payload=None, body=b"", headers=None):
        headers = {**fresh(who, path), **(headers or {})}
        if key is not None:
            headers["Idempotency-Key"] = key
        if payload is not None:
            body = json.dumps({"payload": b64encode(payload).decode()})
        response = client.post(f"/v1/leases/{path}/{route}", body, content_type="application/json", headers=headers)
        return SimpleNamespace(
            status=response.status_code,
            body=json.loads(response.content) if response.content else None,
            raw=response.content,
            headers=response.headers,
            replayed=response.headers.get("Idempotency-Replayed"),
        )

    return call


@pytest.fixture
def events():
    """`events()`: what the lease's subscribers were told."""

    def told(lease=LEASE):
        from leases.models import StatusEvent

        rows = StatusEvent.objects.filter(lease=lease).order_by("id")
        return [(one.status, one.error) if one.error else one.status for one in rows]

    return told


@pytest.fixture
def versions():
    """`versions()`: states and bytes of the lease's payloads, oldest first."""

    def found(lease=LEASE):
        from leases.models import Payload

        return [(one.state, bytes(one.body)) for one in Payload.objects.filter(lease=lease).order_by("id")]

    return found


@pytest.fixture
def look(backend):
    """`look()`: look at every lease that is due, with the real sources, until none is."""
    from reconciliation.look import Looker

    return Looker(pushes=False).at_due_leases


@pytest.fixture
def report(backend, look):
    """`report("failed", "it died")`: docker-1 reports on the lease's own URL, and the lease is looked at.

    `words` makes the body the same each time, `repeated` its signature; `unread` leaves the look to others.
    """
    import hashlib
    import uuid

    from placements import callbacks
    from placements.callback_request import Selector, VerifiedCallback

    def said(status, error="", *, lease=LEASE, words="", repeated=False, unread=False):
        body = f"{status} {error} {words or uuid.uuid4()}".encode()
        callback = VerifiedCallback(
            lease_uuid=uuid.UUID(lease),
            selector=Selector.LIFECYCLE,
            selector_id=uuid.UUID(LIFECYCLE),
            status=status,
            error=error,
            retained=False,
            storage_id=None,
            backend_label="docker-1",
            maintenance_id=None,
            maintenance_admitted_at=None,
            body_sha256=hashlib.sha256(body).digest(),
            repeated=repeated,
        )
        assert callbacks.apply([callback]) == set()
        if not unread:
            look()

    return said


@pytest.fixture
def shows(backend):
    """`shows("ready", ("failed", b"bytes"))`: what docker-1 says of lease L, and its releases, made just now."""

    def script(status, *releases, lease=LEASE):
        backend.always["read"] = 200, json.dumps({"lease_uuid": lease, "status": status}).encode()
        made = [
            {
                "version": number,
                "status": word,
                "image": "x",
                "created_at": _now().isoformat(),
                "manifest": b64encode(body).decode(),
                "message": "update failed" if word == "failed" else "",
            }
            for number, (word, body) in enumerate(releases, 1)
        ]
        backend.always[f"releases/{lease}"] = 200, json.dumps(made).encode()

    return script


@pytest.fixture
def another(make_lease):
    """`another()`: one more lease of alice with a payload, as its uuid's text."""
    from itertools import count

    from tests.factories.leases import PayloadFactory

    numbers = count(0xA000)

    def make():
        uuid = f"0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f{next(numbers):04x}"
        PayloadFactory(lease=make_lease(uuid), body=OLD)
        return uuid

    return make
