"""What dialect a backend speaks: asked before anything is pushed, provisional or for ever."""

import pytest
from django.conf import settings
from django.utils import timezone

from backends import dialects as wire
from backends import targets
from backends.contract import Dialect
from backends.models import Backend
from fred.conf import BackendConfig
from leases.models import Lease
from leases.status import LeaseState
from placements import push_sql
from placements.models import Operation
from reconciliation import dialects
from reconciliation.tick import hint_overdue
from tests.backends.servers import SECRET, peer, says, target
from tests.factories.leases import LeaseFactory
from tests.factories.placements import OperationFactory

pytestmark = pytest.mark.django_db
IDENTITY = "5a0f2d54-7a1c-4e0e-9b57-0f5a3e9c1d22"
EMPTY = {"provisions": []}


@pytest.fixture
def backend(monkeypatch, valkey):
    """A row and a configuration of one backend whose dialect nobody knows."""
    entry = BackendConfig(name="b1", url="http://127.0.0.1:9")
    monkeypatch.setattr(settings, "FRED", settings.FRED.model_copy(update={"backends": (entry,)}))
    targets.forget()
    yield Backend.objects.create(name="b1", url="http://127.0.0.1:9", skus=["s"])
    targets.forget()


@pytest.mark.parametrize(
    ("status", "headers", "found"),
    [
        (200, "", Dialect.V0_13),
        (200, f"X-Fred-Backend-Storage-ID: {IDENTITY}\r\n", Dialect.CURRENT),
        (200, f"X-Fred-Backend-Storage-ID: {IDENTITY}\r\n" * 2, None),
        (200, "X-Fred-Backend-Storage-ID:\r\n", None),
        (200, f"X-Fred-Backend-Storage-ID: {IDENTITY.upper()}\r\n", None),
        (200, "X-Fred-Backend-Storage-ID: 5a0f2d54-7a1c-1e0e-9b57-0f5a3e9c1d22\r\n", None),
        (401, "", None),
        (404, "", None),
        (500, f"X-Fred-Backend-Storage-ID: {IDENTITY}\r\n", None),
        (302, "Location: /x\r\n", None),
    ],
)
def test_one_signed_read_tells(status, headers, found):
    with peer(says(status, EMPTY, headers=headers)) as server:
        assert wire.probe(target(server.url)) is found
    assert [got.target for got in server.got] == ["/provisions?limit=1"]
    assert "x-fred-signature" in server.got[0].headers


def test_silence_tells_nothing():
    with peer(lambda _got: None) as server:
        assert wire.probe(target(server.url)) is None
    assert wire.probe(target("http://127.0.0.1:1")) is None


def test_until_it_is_known_nothing_is_pushed(backend):
    OperationFactory(backend=backend, state="reserved", due_at="2026-01-01T00:00Z")
    assert not backend.takes_calls
    assert push_sql.claim_operations({"b1": 5}) == []
    assert targets.configured()["b1"].closed == targets.UNSETTLED
    assert "reconciliation.tasks.settle_dialects" in hint_overdue()
    assert dialects.discover(probe=lambda _: None) == {}
    assert push_sql.claim_operations({"b1": 5}) == []
    assert dialects.discover(probe=lambda _: Dialect.V0_13) == {"b1": Dialect.V0_13}
    assert len(push_sql.claim_operations({"b1": 5})) == 1
    assert targets.configured()["b1"].closed == ""
    assert "reconciliation.tasks.settle_dialects" not in hint_overdue()


def test_leases_that_waited_for_it_are_looked_at(backend):
    lease = LeaseFactory(chain_state=LeaseState.PENDING, reason="no_backend", due_at=None)
    dialects.discover(probe=lambda _: Dialect.V0_13)
    assert Lease.objects.get(pk=lease.pk).due_at is not None


def test_the_current_dialect_gets_nothing_and_is_for_ever(backend):
    dialects.discover(probe=lambda _: Dialect.CURRENT)
    backend.refresh_from_db()
    assert (backend.dialect, backend.takes_calls) == ("current", False)
    assert targets.configured()["b1"].closed == targets.UNSERVED
    assert dialects.discover(again=True, probe=lambda _: Dialect.V0_13) == {}
    backend.refresh_from_db()
    assert backend.dialect == "current"


def test_the_older_dialect_is_provisional_but_not_under_an_open_operation(backend):
    dialects.discover(probe=lambda _: Dialect.V0_13)
    operation = OperationFactory(backend=backend)
    assert dialects.discover(probe=lambda _: pytest.fail("asked without need")) == {}
    assert dialects.discover(again=True, probe=lambda _: Dialect.CURRENT) == {}
    assert Backend.objects.get().dialect == "v0_13"
    assert dialects.discover(again=True, probe=lambda _: None) == {}
    assert Backend.objects.get().dialect == "v0_13"
    Operation.objects.filter(pk=operation.pk).update(settled_at=timezone.now())
    assert dialects.discover(again=True, probe=lambda _: Dialect.CURRENT) == {"b1": Dialect.CURRENT}


@pytest.mark.parametrize(
    ("contract", "takes_calls", "closed"), [("v0_13", True, ""), ("current", False, targets.UNSERVED)]
)
def test_a_configured_contract_needs_no_question(backend, monkeypatch, contract, takes_calls, closed):
    entry = BackendConfig(name="b1", url="http://127.0.0.1:9", contract=contract, hmac_secret=SECRET)
    monkeypatch.setattr(settings, "FRED", settings.FRED.model_copy(update={"backends": (entry,)}))
    Backend.objects.update(contract=contract)
    assert dialects.discover(again=True, probe=lambda _: pytest.fail("asked without need")) == {}
    backend.refresh_from_db()
    assert (backend.takes_calls, targets.configured()["b1"].closed) == (takes_calls, closed)
