"""Events as rows, the cursor, and since when this database can be trusted."""

import threading
from datetime import timedelta
from uuid import uuid4

import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now

from fred import due
from fred.models import PeriodicTask
from fred.tasks import LANES, LOOK, hint
from leases import wake
from leases.chain.errors import ResultsNotYet, ResultsPruned, RpcError
from leases.chain.events import EventType
from leases.models import ChainAction, ChainCursor, ChainEvent, ChainTx, Lease, Signer
from leases.status import LeaseState
from placements.status import OperationState
from reconciliation import watch_blocks, watch_sql, watch_store
from tests.factories.leases import LeaseFactory
from tests.factories.placements import CommandFactory, OperationFactory
from tests.reconciliation.watching import event, now

pytestmark = pytest.mark.django_db(transaction=True)

T = EventType


def epochs() -> dict:
    return dict(Lease.objects.values_list("uuid", "epoch"))


def test_an_event_of_an_unknown_lease_makes_a_stub_that_wants_a_look():
    made = event()
    assert watch_store.store_events([made]) == 1
    lease = Lease.objects.get()
    assert (lease.uuid, lease.chain_state, lease.news_height) == (made.lease_uuid, None, 20)
    assert lease.due_at is not None
    assert ChainEvent.objects.get().height == 20


def test_the_same_event_wakes_once_however_often_it_comes():
    """LC-12, part; CH-97: two listeners, a frame and its block."""
    made = event(T.CLOSED)
    assert watch_store.store_events([made, made]) == 1
    before = epochs()
    assert watch_store.store_events([made]) == 0
    assert epochs() == before


def test_two_listeners_at_once_store_an_event_once(run_in_threads):
    """LC-12, part."""
    made = [event(T.CLOSED) for _ in range(50)]
    stored = run_in_threads(4, lambda: watch_store.store_events(made))
    assert sum(stored) == 50
    assert ChainEvent.objects.count() == 50
    assert set(epochs().values()) == {1}


def test_every_event_of_one_transaction_counts():
    """LC-14."""
    first, second = event(T.CREATED), event(T.CLOSED)
    LeaseFactory(uuid=second.lease_uuid)
    assert watch_store.store_events([first, second]) == 2
    assert set(Lease.objects.filter(due_at__isnull=False).values_list("uuid", flat=True)) == {
        first.lease_uuid,
        second.lease_uuid,
    }


def test_events_in_any_order_leave_the_newest_height():
    made = uuid4()
    watch_store.store_events([event(T.CLOSED, made, height=31)])
    watch_store.store_events([event(T.CREATED, made, height=30)])
    assert Lease.objects.get().news_height == 31


def test_leases_of_other_providers_get_no_rows():
    watch_store.store_events([event(T.AUTO_CLOSED, provider_uuid=uuid4()), event(T.AUTO_CLOSED, provider_uuid=None)])
    assert not Lease.objects.exists()
    assert not ChainEvent.objects.exists()


def test_an_automatic_close_without_a_provider_wakes_a_lease_we_know():
    lease = LeaseFactory(chain_state=LeaseState.ACTIVE)
    watch_store.store_events([event(T.AUTO_CLOSED, lease.uuid, provider_uuid=None)])
    lease.refresh_from_db()
    assert lease.due_at is not None


@pytest.mark.parametrize(
    ("state", "woken"),
    [(None, True), (LeaseState.PENDING, True), (LeaseState.ACTIVE, False), (LeaseState.CLOSED, False)],
)
def test_an_acknowledgement_wakes_only_who_does_not_know_of_it(state, woken):
    lease = LeaseFactory(chain_state=state)
    watch_store.store_events([event(T.ACKNOWLEDGED, lease.uuid)])
    lease.refresh_from_db()
    assert (lease.due_at is not None) is woken


@pytest.mark.parametrize(("state", "woken"), [("queued", True), ("in_tx", False), ("moot", True)])
def test_an_acknowledgement_that_a_lane_will_tell_of_wakes_nobody(state, woken):
    lease = LeaseFactory(chain_state=LeaseState.PENDING, chain_height=10, news_height=10)
    ChainAction.objects.create(lease=lease, verb="ack", state=state)
    watch_store.store_events([event(T.ACKNOWLEDGED, lease.uuid, height=20)])
    lease.refresh_from_db()
    assert (lease.due_at is not None, lease.news_height == 20) == (woken, woken)
    assert ChainEvent.objects.count() == 1


def test_an_end_beside_an_acknowledgement_wakes_all_the_same():
    lease = LeaseFactory(chain_state=LeaseState.PENDING)
    ChainAction.objects.create(lease=lease, verb="ack", state="in_tx")
    watch_store.store_events([event(T.ACKNOWLEDGED, lease.uuid), event(T.CLOSED, lease.uuid)])
    lease.refresh_from_db()
    assert lease.due_at is not None


def test_what_was_read_at_that_height_is_no_news():
    lease = LeaseFactory(chain_height=20)
    watch_store.store_events([event(T.CREATED, lease.uuid, height=20)])
    lease.refresh_from_db()
    assert lease.due_at is None
    assert ChainEvent.objects.count() == 1


def test_a_domain_may_change_often_and_each_change_is_news_once():
    lease = LeaseFactory()
    for height, woken in ((21, True), (21, False), (22, True)):
        Lease.objects.update(due_at=None)
        watch_store.store_events([event(T.DOMAIN_SET, lease.uuid, height=height)])
        lease.refresh_from_db()
        assert (lease.due_at is not None) is woken
    assert not ChainEvent.objects.exists()


def begin(height: int = 50) -> ChainCursor:
    watch_store.begin(height=height, block_time=now())
    return ChainCursor.objects.get()


def transaction_of_ours(**how) -> ChainTx:
    signer = Signer.objects.create(address="manifest1signer", due_at=None)
    return ChainTx.objects.create(signer=signer, kind="ack", sequence=1, tx_bytes=b"x", tx_hash="AB", **how)


def sweep_is_due() -> bool:
    return PeriodicTask.objects.filter(name="sweep", due_at__lte=Now()).exists()


def test_the_first_start_stands_at_the_head_and_asks_for_a_sweep():
    cursor = begin()
    assert (cursor.last_height, cursor.head_height, cursor.trusted_from_height) == (50, 50, 50)
    assert cursor.trusted_block_at is not None
    assert cursor.trusted_block_at > cursor.head_time
    assert cursor.system_identifier
    assert cursor.timeline_id > 0
    assert sweep_is_due()


def test_a_second_start_changes_nothing():
    first = begin()
    PeriodicTask.objects.all().delete()
    second = begin(90)
    assert (second.last_height, second.trusted_from_at) == (50, first.trusted_from_at)
    assert not sweep_is_due()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"alive_at": Now() - timedelta(minutes=11)}, id="nobody watched for long"),
        pytest.param({"system_identifier": "another"}, id="another database"),
        pytest.param({"timeline_id": 99}, id="a restored database"),
    ],
)
def test_a_database_that_missed_something_vouches_only_from_now_on(change):
    begin()
    operations = [
        OperationFactory(state=state, valid_until=Now() + timedelta(minutes=1))
        for state in (OperationState.RESERVED, OperationState.IN_DOUBT, OperationState.ACCEPTED)
    ]
    commands = [CommandFactory(state=state, due_at=Now()) for state in ("reserved", "accepted")]
    PeriodicTask.objects.all().delete()
    ChainCursor.objects.update(trusted_from_at=Now() - timedelta(days=1), **change)
    before = now()
    assert watch_store.stay_trusted() is False
    for command in commands:
        command.refresh_from_db()
        command.lease.refresh_from_db()
    assert [(one.state, one.due_at is None) for one in commands] == [("in_doubt", True), ("accepted", False)]
    assert commands[0].lease.due_at is not None
    cursor = ChainCursor.objects.get()
    assert cursor.trusted_from_at >= before - timedelta(seconds=1)
    assert cursor.trusted_block_at is None
    for operation in operations:
        operation.refresh_from_db()
        operation.lease.refresh_from_db()
    assert [one.valid_until <= now() for one in operations] == [True, True, False]
    assert [one.lease.due_at is not None for one in operations] == [True, True, False]
    assert sweep_is_due()

    assert watch_store.stay_trusted() is True
    head = now()
    assert watch_store.see_block(height=60, block_time=head)
    cursor.refresh_from_db()
    assert cursor.trusted_from_height == 60
    assert cursor.trusted_block_at == head + timedelta(microseconds=1)


def test_a_lower_head_is_refused_and_moves_nothing():
    begin(50)
    watch_store.see_block(height=60, block_time=now())
    seen = ChainCursor.objects.get()
    assert watch_store.see_block(height=59, block_time=now()) is False
    cursor = ChainCursor.objects.get()
    assert (cursor.head_height, cursor.head_seen_at) == (60, seen.head_seen_at)


def test_the_cursor_never_goes_back():
    begin(50)
    watch_sql.move_cursor(django_settings.FRED.chain_id, to=40)
    assert ChainCursor.objects.get().last_height == 50


class Rpc:
    """A node's RPC with the answers of a test."""

    def __init__(self, events=None, *, fails=None, found=(), earliest=1):
        self.events, self.fails, self.found, self.earliest = events or {}, fails or {}, found, earliest
        self.read = []
        self.queries = []

    def block_events(self, height):
        self.read.append(height)
        if self.fails.get(height):
            raise self.fails[height].pop(0)
        return tuple(self.events.get(height, ()))

    def search(self, query):
        self.queries.append(query)
        return iter(self.found if "lease_created" in query else ())

    def status(self):
        from leases.chain.rpc import NodeStatus

        return NodeStatus("manifest-localnet", 100, now(), self.earliest, False)


def follow(rpc: Rpc, head: int) -> int:
    return watch_blocks.Blocks(lambda: rpc, pause=lambda _: None, told=lambda _: None).follow(head)


def test_every_block_is_read_in_order_and_the_cursor_follows():
    begin(50)
    made = event(height=53)
    rpc = Rpc({53: [made]})
    assert follow(rpc, 55) == 55
    assert rpc.read == [51, 52, 53, 54, 55]
    assert ChainCursor.objects.get().last_height == 55
    assert Lease.objects.get().uuid == made.lease_uuid


def test_the_cursor_stands_before_a_block_that_could_not_be_read():
    begin(50)
    broken = RpcError(code=-32603, message="broken")
    rpc = Rpc({51: [event(height=51)]}, fails={72: [broken]})
    with pytest.raises(RpcError):
        follow(rpc, 75)
    assert ChainCursor.objects.get().last_height == 70
    assert follow(rpc, 75) == 75
    assert rpc.read[-5:] == [71, 72, 73, 74, 75]


def test_results_that_come_a_moment_later_are_waited_for():
    begin(50)
    late = ResultsNotYet(code=-32603, message="could not find results for height #51")
    assert follow(Rpc(fails={51: [late, late]}), 51) == 51


@pytest.mark.parametrize(
    "rpc",
    [
        pytest.param(Rpc(fails={51: [ResultsPruned(code=-32603, message="lowest height is 60")]}), id="said so"),
        pytest.param(Rpc(fails={51: [ResultsNotYet(code=-32603, message="no results")]}, earliest=60), id="found out"),
    ],
)
def test_pruned_blocks_are_leapt_over_and_a_sweep_covers_them(rpc):
    begin(50)
    PeriodicTask.objects.all().delete()
    assert follow(rpc, 60) == 60
    assert ChainCursor.objects.get().last_height == 60
    assert sweep_is_due()


def test_a_long_gap_is_searched_and_swept_and_not_read_block_by_block():
    begin(50)
    PeriodicTask.objects.all().delete()
    made = event(height=100)
    rpc = Rpc(found=[made])
    assert follow(rpc, 251) == 251
    assert rpc.read == []
    assert "tx.height>50 AND tx.height<=251" in rpc.queries[0]
    assert Lease.objects.get().uuid == made.lease_uuid
    assert sweep_is_due()
    assert ChainCursor.objects.get().last_height == 251


def test_a_gap_of_two_hundred_blocks_is_read():
    begin(50)
    rpc = Rpc()
    follow(rpc, 250)
    assert len(rpc.read) == 200


def test_an_unreadable_frame_is_counted():
    """LC-4, first half."""
    from fred import metrics
    from reconciliation.watcher import STREAM_TOPIC, _CountedStream

    stream = _CountedStream("ws://127.0.0.1:1", queries=(), provider_uuid=uuid4())
    counter = metrics.MALFORMED_MESSAGES.labels(STREAM_TOPIC)
    before = counter._value.get()
    with pytest.raises(ValueError):
        stream.read("{not json")
    assert counter._value.get() == before + 1


def test_a_stored_head_keeps_its_age_by_the_databases_clock():
    begin(50)
    ChainCursor.objects.update(head_seen_at=F("head_seen_at") - timedelta(minutes=1))
    watch_store.see_block(height=50, block_time=now())
    assert ChainCursor.objects.filter(head_seen_at__gt=Now() - timedelta(seconds=5)).exists()


@pytest.mark.parametrize("due_in", [timedelta(seconds=-1), timedelta(seconds=3)], ids=["due already", "due later"])
def test_a_block_has_our_open_transactions_looked_up_at_once(monkeypatch, due_in):
    begin(50)
    hinted = []
    monkeypatch.setattr(hint, "send", hinted.append)
    tx = transaction_of_ours(state=ChainTx.State.BROADCAST, due_at=now() + due_in)
    watch_store.see_block(height=60, block_time=now())
    assert hinted == [LANES]
    epoch = tx.epoch
    tx.refresh_from_db()
    assert tx.due_at <= now()
    assert tx.epoch > epoch


def test_a_block_without_open_transactions_hints_nobody(monkeypatch):
    begin(50)
    hinted = []
    monkeypatch.setattr(hint, "send", hinted.append)
    transaction_of_ours(state=ChainTx.State.INCLUDED, due_at=None)
    watch_store.see_block(height=60, block_time=now())
    assert hinted == []


def test_a_repeat_of_news_hints_too_because_a_claim_passed_over_what_it_locked(monkeypatch):
    made = event()
    watch_store.store_events([made])
    hinted = []
    monkeypatch.setattr(hint, "send", hinted.append)
    claimed = []
    with wake.news_about([made.lease_uuid]) as news:
        worker = threading.Thread(target=lambda: (claimed.extend(due.claim(Lease)), connection.close()))
        worker.start()
        worker.join()
        assert hinted == []
    assert news.woken == set()
    assert claimed == []
    assert hinted == [LOOK]
    assert [claim.pk for claim in due.claim(Lease)] == [made.lease_uuid]
