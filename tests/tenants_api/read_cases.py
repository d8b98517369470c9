"""What a tenant may find when it reads a lease: each case arranges one thing, and says what a route answers then."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from backends.models import Backend
from fred import breaker
from leases.chain.client import Doubt, Unknown
from leases.status import LeaseState
from placements.models import Placement
from tests.factories.leases import PayloadFactory
from tests.factories.placements import OperationFactory
from tests.tenants_api.calls import SKU
from tests.tenants_api.placed import HASH, placed
from tests.tenants_api.vectors import ALICE, BOB, LEASE
from tests.waiting import wait_until

PATH = f"/provisions/{LEASE}"
INFO = {
    "host": "h",
    "instances": [{"instance_index": 0, "fqdn": "w0.example.net", "ports": {"80/tcp": {"host_port": "8080"}}}],
}


def held(stage):
    placed(stage.lease())
    stage.backends.one.holds(status="failed", fail_count=2, reason="ImagePullFailed")
    stage.backends.one.says(f"/info/{LEASE}", INFO)


def pending_with_payload(stage):
    lease = stage.lease(chain_state=LeaseState.PENDING, meta_hash=HASH)
    PayloadFactory(lease=lease)
    OperationFactory(lease=lease)


def once_all_are_asked(stage, one):
    """A hit ends the search, so it must not come before every backend has noted the question."""
    answer = one.answers[PATH]
    one.answers[PATH] = lambda: wait_until(lambda: all(each.calls for each in stage.backends.all)) and answer


def only_on_the_chain(stage):
    stage.chain.add(UUID(LEASE))
    stage.backends.one.holds()
    once_all_are_asked(stage, stage.backends.one)
    stage.backends.one.says(f"/info/{LEASE}", INFO)


def news_are_newer(stage):
    stage.lease(chain_height=10, news_height=11)
    stage.chain.add(UUID(LEASE), state=LeaseState.CLOSED)


def nobody_knows_it(stage):
    pass


def retained(stage):
    stage.backends.two.holds(status="retained", tenant=ALICE, items=[{"sku": str(SKU), "quantity": 1}])
    once_all_are_asked(stage, stage.backends.two)


def silent_chain(stage):
    stage.chain.fails = True


def another_tenants(stage):
    stage.lease(tenant=BOB)


def another_providers(stage):
    stage.chain.known[UUID(LEASE)] = Unknown("another provider's", Doubt.FOREIGN, LeaseState.ACTIVE)


def lost(stage):
    lease = stage.lease()
    placed(lease, status="lost")
    Backend.objects.update(retired_at=lease.first_seen_at)


def in_conflict(stage):
    Placement.objects.create(lease=stage.lease(), status="conflict", candidates=["docker-1", "docker-2"])


def fenced(stage):
    stage.configure(fenced=True)
    placed(stage.lease())


def fenced_by_its_row(stage):
    placed(stage.lease())
    Backend.objects.update(fenced=True)


def gone_and_another_has_it(stage):
    placed(stage.lease())
    stage.backends.two.holds(status="updating")


def nobody_has_it(stage):
    placed(stage.lease())


def silent_backend(stage):
    stage.configure(timeout=timedelta(seconds=0.2))
    placed(stage.lease())
    for path in (PATH, f"/info/{LEASE}"):
        stage.backends.one.answers[path] = lambda: stage.held.wait(10) and (200, b"{}")


def dead_backend(stage):
    stage.configure(url="http://127.0.0.1:1")
    placed(stage.lease())


def malformed_backend(stage):
    placed(stage.lease())
    stage.backends.one.says(PATH, b"{")
    stage.backends.one.says(f"/info/{LEASE}", b"{")


def open_breaker(stage):
    held(stage)
    one = breaker.of("docker-1")
    for _ in range(breaker.THRESHOLD):
        one.record(one.enter(), pulse="failure")


def ended(stage):
    placed(stage.lease(chain_state=LeaseState.CLOSED))
    stage.backends.one.says(f"/info/{LEASE}", INFO)


CASES = [
    ("ta46", held, "status", 200),
    ("ta48", held, "provision", 200),
    ("ta38", held, "connection", 200),
    ("ta45", pending_with_payload, "status", 200),
    ("", pending_with_payload, "provision", 404),
    ("", only_on_the_chain, "status", 200),
    ("", only_on_the_chain, "connection", 200),
    ("", news_are_newer, "status", 200),
    ("", news_are_newer, "connection", 404),
    ("ta52", nobody_knows_it, "status", 404),
    ("", nobody_knows_it, "connection", 404),
    ("ta52", retained, "status", 200),
    ("ta52", retained, "provision", 200),
    ("ta17", silent_chain, "status", 500),
    ("ta17", silent_chain, "provision", 500),
    ("ta17", silent_chain, "connection", 500),
    ("ta15", another_tenants, "status", 403),
    ("ta15", another_tenants, "connection", 403),
    ("ta16", another_providers, "status", 403),
    ("ta16", another_providers, "connection", 403),
    ("ta130", lost, "status", 200),
    ("ta130", lost, "provision", 410),
    ("ta130", lost, "connection", 410),
    ("", in_conflict, "provision", 503),
    ("", in_conflict, "connection", 503),
    ("ta132", fenced, "provision", 503),
    ("", fenced, "connection", 503),
    ("", fenced_by_its_row, "status", 200),
    ("", fenced_by_its_row, "connection", 503),
    ("ta53", gone_and_another_has_it, "status", 200),
    ("ta53", nobody_has_it, "provision", 404),
    ("ta42", nobody_has_it, "connection", 404),
    ("ta47", silent_backend, "status", 200),
    ("", silent_backend, "provision", 500),
    ("", silent_backend, "connection", 500),
    ("ta47", dead_backend, "status", 200),
    ("", dead_backend, "connection", 500),
    ("", malformed_backend, "provision", 500),
    ("ta42", malformed_backend, "connection", 500),
    ("", open_breaker, "provision", 500),
    ("", ended, "status", 200),
    ("", ended, "connection", 404),
]
