"""Restart and update against the mock backend over HTTP, with its callbacks and its releases."""

import hashlib
import json
import uuid
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest
from django.utils import timezone

from backends import targets
from backends.client import Accepted, classify_provision, provision_request
from backends.contract import LeaseItem, ProvisionSpec
from fred import breaker
from fred.conf import BackendConfig
from fred.http import fetch
from leases.models import Lease, Payload
from placements import callbacks, dispatch
from placements.callback_request import Selector, VerifiedCallback
from placements.command_status import CommandState as S
from placements.models import MaintenanceCommand
from reconciliation.look import Looker
from tests.backends.mock_stage import BETTER, CRASHES, GOOD
from tests.backends.servers import SECRET, mock_agent, peer, served
from tests.factories.backends import BackendFactory
from tests.factories.leases import ChainCursorFactory, LeaseFactory, PayloadFactory
from tests.factories.placements import PlacementFactory
from tests.tenants_api.calls import PROVIDER, envelope
from tests.tenants_api.commands.fresh import Fresh
from tests.tenants_api.commands.named import K1
from tests.tenants_api.vectors import ALICE, LEASE
from tests.waiting import wait_until

OPERATION = "3f2c1d60-7d5a-4b57-9b1c-6c7b4a0f9e11"


def callback_of(got):
    """What the mock posted, as the callback route reads it."""
    said, query = json.loads(got.body), parse_qs(urlsplit(got.target).query)
    return VerifiedCallback(
        lease_uuid=uuid.UUID(said["lease_uuid"]),
        selector=Selector.LIFECYCLE,
        selector_id=uuid.UUID(query["lifecycle_id"][0]),
        status=said["status"],
        error=said.get("error", ""),
        retained=False,
        storage_id=None,
        backend_label="mock-backend",
        maintenance_id=None,
        maintenance_admitted_at=None,
        body_sha256=hashlib.sha256(got.body).digest(),
    )


@pytest.fixture
def world(transactional_db, settings, valkey, client, chain):
    """Lease L, which the mock runs; `world.ask` calls a route, `world.reported` takes the mock's next callback."""
    breaker.forget()
    agent = mock_agent(outbox={"quick_waits": (0.05, 0.1), "slow_wait": 0.2})
    with peer() as listener, served(agent) as url:
        settings.MIDDLEWARE = []
        settings.FRED = settings.FRED.model_copy(
            update={
                "provider_uuid": PROVIDER,
                "callback_base_url": listener.url,
                "callback_secret": type(settings.FRED.callback_secret)(SECRET),
                "backends": (BackendConfig(name="docker-1", url=url, default=True),),
            }
        )
        backend = BackendFactory(name="docker-1", url=url)
        ChainCursorFactory(head_seen_at=timezone.now())
        targets.forget()
        dispatch.drain(deadline=0.2)
        dispatch.use_in_web()
        lease = LeaseFactory(uuid=LEASE, tenant=ALICE, provider_uuid=PROVIDER, chain_state=2, items=[])
        chain.add(uuid.UUID(LEASE))
        PayloadFactory(lease=lease, body=GOOD)
        PlacementFactory(lease=lease, backend=backend, lifecycle_id=OPERATION)
        spec = ProvisionSpec(
            lease_uuid=uuid.UUID(LEASE),
            tenant=ALICE,
            provider_uuid=PROVIDER,
            items=(LeaseItem("sku-1", 1, service_name="app"),),
            callback_url=f"{listener.url}/callbacks/provision?operation_id={OPERATION}",
            payload=GOOD,
        )
        assert isinstance(classify_provision(fetch(provision_request(targets.target("docker-1"), spec))), Accepted)
        wait_until(lambda: listener.got)
        fresh = Fresh()
        looker = Looker(pushes=False)

        def ask(route, body=b"", **headers):
            if body:
                body = json.dumps({"payload": list(body)})
            answer = client.post(
                f"/v1/leases/{LEASE}/{route}", body, content_type="application/json", headers={**fresh(), **headers}
            )
            return answer.status_code, answer.json()

        taken = iter(range(1, 20))

        def reported():
            number = next(taken)
            wait_until(lambda: len(listener.got) > number)
            assert callbacks.apply([callback_of(listener.got[number])]) == set()
            looker.at_due_leases()

        yield SimpleNamespace(ask=ask, reported=reported, looker=looker)
        dispatch.drain(deadline=0.2)
        dispatch._pulls = True
    targets.forget()
    breaker.forget()


def current():
    """The payload in force."""
    return bytes(Payload.objects.get(lease=LEASE, state="current").body)


def states():
    return list(MaintenanceCommand.objects.order_by("admitted_at").values_list("state", flat=True))


def test_ta66_ta70_ta126_restarts_and_updates_of_a_workload(world, events):
    assert world.ask("restart") == (202, {"status": "restarting"})
    world.reported()
    assert world.ask("update", BETTER) == (202, {"status": "updating"})
    assert current() == BETTER
    world.reported()
    assert world.ask("update", CRASHES, **{"Idempotency-Key": K1}) == (202, {"status": "updating"})
    assert current() == CRASHES
    world.reported()
    assert current() == BETTER
    assert world.ask("update", CRASHES, **{"Idempotency-Key": K1}) == (409, envelope("invalid state for update", 409))
    rolled_back = "container exited during startup; rolled back to previous version"
    assert events() == ["restarting", "ready", "updating", "ready", "updating", ("failed", rolled_back)]
    assert states() == [S.SUCCEEDED, S.SUCCEEDED, S.FAILED]
    status, body = world.ask("update", b"image: x")
    assert (status, body["code"]) == (400, 400)
    assert current() == BETTER
    assert world.ask("restart")[0] == 202
    world.reported()
    assert states()[-2:] == [S.REFUSED, S.SUCCEEDED]
    lease = Lease.objects.get()
    assert (lease.phase, lease.due_at) == ("active", None)
