"""The budget that all tenants share, and what is kept of a lease's commands."""

from datetime import timedelta
from hashlib import sha256
from uuid import uuid4

import pytest
from django.utils import timezone

from fred import metrics
from leases.models import Lease
from placements.command_status import CommandKind
from placements.command_status import CommandState as S
from placements.models import MaintenanceCommand
from reconciliation import command_admission
from tests.factories.placements import CommandFactory
from tests.tenants_api.calls import PROVIDER, envelope
from tests.tenants_api.commands.named import K1, K2
from tests.tenants_api.vectors import ALICE, BOB, LEASE

BOBS = "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5c"
RESERVED = {
    **envelope(
        "maintenance capacity is reserved for tenants without pending work; retry after your pending work completes",
        429,
    ),
    "reason": "maintenance_capacity_reserved",
}
MIB = 1024 * 1024


@pytest.fixture
def two(lease, make_lease):
    """A lease of alice and one of bob."""
    make_lease(BOBS, tenant=BOB)


def opened(number, *, tenant="manifest1others", size=0):
    """So many open commands, each of a lease of its own."""
    leases = Lease.objects.bulk_create(
        [Lease(uuid=uuid4(), tenant=tenant, provider_uuid=PROVIDER, chain_state=2) for _ in range(number)]
    )
    fields = {"kind": "restart", "keyed": True, "payload_sha256": sha256(b"").digest(), "admitted_at": timezone.now()}
    MaintenanceCommand.objects.bulk_create(
        MaintenanceCommand(
            id=uuid4(),
            maintenance_id=uuid4(),
            lease=lease,
            tenant=tenant,
            backend_id="docker-1",
            size_bytes=size,
            **fields,
        )
        for lease in leases
    )
    return leases


def refusals(reason):
    return metrics.MAINTENANCE_REFUSALS.labels(reason)._value.get()


def test_ta128_the_last_command_is_for_those_who_have_none_open(ask, two, backend, monkeypatch):
    assert (command_admission.MOST_OPEN, command_admission.MOST_BYTES) == (1024, 64 * MIB)
    monkeypatch.setattr(command_admission, "MOST_OPEN", 6)
    opened(4)
    held = opened(1, tenant=ALICE)[0]
    counts = {reason: refusals(reason) for reason in ("reserved_count", "count")}
    found = ask("restart", key=K1)
    assert (found.status, found.body, found.headers["Retry-After"]) == (429, RESERVED, "1")
    assert ask("restart").body == RESERVED
    repeat = MaintenanceCommand.objects.get(lease=held)
    MaintenanceCommand.objects.filter(pk=repeat.pk).update(refusal="not_sent")
    again = ask("restart", key=str(repeat.maintenance_id), path=str(held.pk))
    assert again.body == envelope("service temporarily unavailable", 503)  # a join, not an admission
    assert MaintenanceCommand.objects.filter(lease__in=[LEASE, BOBS]).count() == 0
    assert ask("restart", "bob", key=K1, path=BOBS).status == 202
    opened(1)
    assert ask("restart", "bob", key=K2, path=BOBS).body == envelope("service temporarily unavailable", 503)
    assert refusals("reserved_count") == counts["reserved_count"] + 2
    assert refusals("count") == counts["count"] + 1


def test_ta128_the_last_two_mebibytes_too(ask, two, backend):
    opened(1, size=61 * MIB)
    opened(1, tenant=ALICE, size=MIB // 2)
    counts = {reason: refusals(reason) for reason in ("reserved_bytes", "bytes")}
    big = b"x" * (600 * 1024)
    assert ask("update", key=K1, payload=big).body == RESERVED
    assert ask("update", "bob", key=K1, path=BOBS, payload=big).status == 202
    opened(1, size=2 * MIB)
    assert ask("update", "bob", key=K2, path=BOBS, payload=big).status == 503
    assert refusals("reserved_bytes") == counts["reserved_bytes"] + 1
    assert refusals("bytes") == counts["bytes"] + 1
    MaintenanceCommand.objects.update(settled_at=timezone.now(), finished_at=timezone.now(), state=S.SUCCEEDED)
    assert ask("update", key=K1, payload=big).status == 202


def test_the_newest_commands_of_a_lease_are_kept(ask, lease, backend, monkeypatch):
    monkeypatch.setattr(command_admission, "KEPT_PER_LEASE", 3)
    evicted = metrics.MAINTENANCE_EVICTED._value
    before = evicted.get()
    keys = [f"550e8400-e29b-41d4-a716-44665544000{number}" for number in range(5)]
    for key in keys:
        assert ask("restart", key=key).status == 202
    kept = MaintenanceCommand.objects.order_by("admitted_at").values_list("maintenance_id", flat=True)
    assert [str(id_) for id_ in kept] == keys[-3:]
    assert evicted.get() == before + 2
    assert ask("restart", key=keys[2]).replayed == "true"
    assert ask("restart", key=keys[0]).replayed is None


def test_stamps_rise_also_when_the_clock_stands(ask, lease, backend):
    ahead = timezone.now() + timedelta(hours=1)
    CommandFactory(
        lease=lease, backend=None, backend_id="docker-1", admitted_at=ahead, settled_at=ahead, state=S.ACCEPTED
    )
    assert ask("restart", key=K1).status == 202
    newest = MaintenanceCommand.objects.get(maintenance_id=K1)
    assert newest.admitted_at == ahead + timedelta(microseconds=1)


def test_two_processes_take_the_last_command_once(two, make_lease, backend, run_in_threads, monkeypatch):
    monkeypatch.setattr(command_admission, "MOST_OPEN", 1)
    wishes = iter(
        command_admission.CommandWish(uuid, tenant, CommandKind.RESTART, K1, keyed=True)
        for uuid, tenant in ((LEASE, ALICE), (BOBS, BOB))
    )
    found = run_in_threads(2, lambda: command_admission.admit_command(next(wishes)))
    assert sorted(type(one).__name__ for one in found) == ["Admitted", "NotAdmitted"]
    assert MaintenanceCommand.objects.count() == 1
