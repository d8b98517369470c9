"""The watcher against a simulated chain: nothing is lost, doubled or believed that should not be."""

import signal
import subprocess
import sys
from datetime import timedelta
from uuid import UUID

import pytest
from django.conf import settings as django_settings
from django.db import OperationalError
from django.db.models.functions import Now

from backends.models import HealthCheck
from fred.models import PeriodicTask
from leases import lanes
from leases.chain.events import EventType
from leases.models import ChainCursor, ChainEvent, ChainTx, Lease, Signer
from reconciliation import waiting_sql, watcher
from tests.leases.house import config_of, environment_of, pending, want
from tests.reconciliation.watching import until_begun, until_read, until_stored, watching
from tests.waiting import wait_until

T = EventType


@pytest.fixture
def house(settings, transactional_db, monkeypatch):
    """A chain with a block per transaction that the settings name; no beat of the watcher does what news should."""
    from leases import lane_draft, node
    from leases.chain.devchain import running

    monkeypatch.setattr(watcher, "BEAT_SECONDS", 600.0)
    with running.run() as chain:
        settings.FRED = config_of(
            chain,
            settings.FRED,
            websocket_reconnect_initial=timedelta(milliseconds=50),
            websocket_reconnect_max=timedelta(milliseconds=200),
        )
        lanes.ensure_signers()
        lane_draft.simulations.__init__()
        yield chain
        node.client().close()


def create(chain, number: int = 1) -> list[UUID]:
    return [UUID(one) for one in chain.create_leases(number)]


def texts(uuids: list[UUID]) -> list[str]:
    return [str(one) for one in uuids]


def test_a_new_lease_wants_a_look_and_its_block_moves_the_cursor(house):
    with watching():
        until_begun()
        leases = create(house, 3)
        until_stored(T.CREATED, leases)
        cursor = until_read(house.height)
    assert Lease.objects.filter(uuid__in=leases, due_at__lte=Now()).count() == 3
    assert cursor.head_height == house.height


def test_our_transactions_are_looked_up_again_a_moment_after_a_block(house, monkeypatch):
    """CH-49: the index comes after the block, and the next block may be a second away."""
    monkeypatch.setattr(watcher, "AGAIN_S", (0.02, 0.03, 0.04))
    with watching():
        until_read(until_begun().head_height)
        tx = ChainTx.objects.create(
            signer=Signer.objects.get(), kind="ack", sequence=1, tx_bytes=b"x", tx_hash="AB",
            state=ChainTx.State.BROADCAST, due_at=Now() + timedelta(hours=1),
        )  # fmt: skip
        create(house)
        wait_until(lambda: ChainTx.objects.get().epoch >= tx.epoch + 4, message="a nudge by the header and three more")


def test_older_leases_are_left_to_the_first_sweep(house):
    create(house, 2)
    with watching():
        cursor = until_begun()
    assert cursor.last_height == house.height
    assert not Lease.objects.exists()
    assert PeriodicTask.objects.filter(name="sweep", due_at__lte=Now()).exists()


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        pytest.param(T.EXPIRED, lambda chain, uuids: chain.expire_leases(uuids), id="LC-13 expired: a block event"),
        pytest.param(T.CANCELLED, lambda chain, uuids: chain.cancel_leases(uuids), id="cancelled"),
        pytest.param(T.REJECTED, lambda chain, uuids: chain.reject_leases(uuids), id="rejected: only in blocks"),
        pytest.param(
            T.CLOSED,
            lambda chain, uuids: (chain.ack_leases(uuids), [chain.close_lease(one) for one in uuids]),
            id="closed",
        ),
    ],
)
def test_every_end_of_a_lease_wakes_it_without_a_sweep(house, kind, end):
    """LC-13, CH-98."""
    with watching():
        until_begun()
        leases = pending(house, 2)
        until_read(house.height)
        Lease.objects.update(due_at=None)
        end(house, texts(leases))
        until_stored(kind, leases)
        wait_until(lambda: Lease.objects.filter(uuid__in=leases, due_at__isnull=False).count() == 2)


def test_what_no_frame_told_is_found_in_its_block(house):
    """LC-4, second half: lost and unreadable frames are the same."""
    with watching():
        until_begun()
        house.add_fault("ws_drop", where="ws")
        leases = create(house, 2)
        house.clear_faults()
        house.produce_block()
        until_stored(T.CREATED, leases)


def test_a_gap_is_filled_after_the_connection_is_back(house):
    """CH-99, CH-101."""
    with watching():
        until_begun()
        with house.fault("ws_close", where="ws"):
            created = create(house, 1)
            expired = create(house, 1)
            house.expire_leases(texts(expired))
        until_stored(T.CREATED, [*created, *expired])
        until_stored(T.EXPIRED, expired)
        until_read(house.height)


def test_while_the_stream_is_away_the_node_is_asked_and_its_blocks_are_read(house, settings):
    """The next try to connect may be long away."""
    waits = dict.fromkeys(("websocket_reconnect_initial", "websocket_reconnect_max"), timedelta(hours=1))
    settings.FRED = settings.FRED.model_copy(update=waits)
    with watching() as found:
        until_begun()
        with house.fault("ws_close", where="ws"):
            wait_until(lambda: found._away == {"events", "headers"})
            leases = create(house, 2)
            until_stored(T.CREATED, leases)
            found._write_beat()
            until_refused("the event stream is not connected")


def test_a_block_is_read_also_when_nobody_can_be_sent_ahead_of_what_waits(house, monkeypatch):
    def away():
        raise OperationalError("canceling statement due to statement timeout")

    monkeypatch.setattr(waiting_sql, "scout", away)
    with watching():
        until_begun()
        create(house)
        until_read(house.height)


def test_what_happened_while_nobody_watched_is_read(house):
    with watching():
        until_begun()
    leases = create(house, 3)
    house.cancel_leases(texts(leases[:1]))
    with watching():
        until_stored(T.CREATED, leases)
        until_stored(T.CANCELLED, leases[:1])


def test_a_flood_of_frames_is_stored_and_none_is_dropped(house):
    """CH-94: nothing between the frame and its row has a limit that drops."""
    from fred import metrics

    def dropped() -> float:
        return metrics.EVENTS_DROPPED.labels("lease_created")._value.get()

    before = dropped()
    with watching():
        until_begun()
        with house.fault("rpc_error", where="block_results", text="broken"):
            leases = create(house, 200)
            until_stored(T.CREATED, leases)
    assert dropped() == before


def test_a_node_that_is_gone_is_left_for_the_next(house, settings):
    settings.FRED = settings.FRED.model_copy(
        update={
            "grpc_endpoint": f"127.0.0.1:9,{house.grpc}",
            "websocket_url": f"ws://127.0.0.1:9/websocket,{house.websocket}",
        }
    )
    with watching():
        until_begun()
        leases = create(house, 2)
        until_stored(T.CREATED, leases)


def test_what_our_own_transactions_cause_is_told_by_frames(house):
    """Acknowledgements come over the second connection, also while no block can be read."""
    with watching():
        until_begun()
        leases = pending(house, 2)
        until_read(house.height)
        with house.fault("rpc_error", where="block_results", text="broken"):
            house.ack_leases(texts(leases))
            until_stored(T.ACKNOWLEDGED, leases)


def test_two_watchers_do_each_other_no_harm(house):
    with watching(), watching():
        until_begun()
        leases = create(house, 20)
        house.cancel_leases(texts(leases))
        until_stored(T.CANCELLED, leases)
        until_read(house.height)
    assert ChainEvent.objects.count() == 40
    assert set(Lease.objects.values_list("epoch", flat=True)) <= {1, 2}


def test_a_block_makes_open_transactions_due(house):
    house.set_block_mode("manual")
    with watching():
        until_begun()
        leases = pending(house, 2)
        want("ack", leases)
        lanes.run()
        ChainTx.objects.update(due_at=Now() + timedelta(minutes=5))
        house.produce_block()
        wait_until(lambda: ChainTx.objects.filter(due_at__lte=Now()).exists())


def until_refused(reason: str) -> None:
    """Wait until the health routes would show this reason."""
    wait_until(lambda: HealthCheck.objects.filter(name="watcher", healthy=False, detail__contains=reason).exists())


@pytest.fixture
def quick_beats(monkeypatch, house):
    monkeypatch.setattr(watcher, "BEAT_SECONDS", 0.1)


def test_a_chain_that_began_anew_is_refused_and_nothing_moves(house, quick_beats):
    with watching():
        until_begun()
        leases = create(house, 2)
        house.produce_block(count=10)
        before = until_read(house.height)
        wait_until(lambda: HealthCheck.objects.filter(name="watcher", healthy=True).exists())
        rows = list(Lease.objects.order_by("uuid").values())
        house.reset()
        house.create_provider(house.keys["tenant"].address)
        until_refused("below what was seen before")
    after = ChainCursor.objects.get()
    assert (after.last_height, after.head_height) == (before.last_height, before.head_height)
    assert list(Lease.objects.order_by("uuid").values()) == rows
    assert {row["uuid"] for row in rows} == set(leases)


def test_a_lagging_node_is_refused_until_it_is_back(house, quick_beats):
    with watching():
        until_begun()
        with house.fault("catching_up"):
            until_refused("the node is catching up")
        wait_until(lambda: HealthCheck.objects.filter(name="watcher", healthy=True).exists())


def test_another_chain_is_refused(house, settings, quick_beats):
    settings.FRED = settings.FRED.model_copy(update={"chain_id": "manifest-other"})
    with watching():
        until_refused(f"the node serves chain {house.chain_id}")
        create(house, 2)
        HealthCheck.objects.all().delete()
        until_refused("serves chain")
    assert not ChainCursor.objects.exists()
    assert not Lease.objects.exists()


def test_readiness_shows_why_a_chain_is_refused(house, quick_beats):
    from fred import checks

    def shown() -> dict[str, str]:
        checks._remote_results.keep({}, watcher=checks._watchers_complaint())
        return {finding.name: finding.message for finding in checks._remote_results.findings()}

    assert shown()["watcher"] == checks.NO_WATCHER  # none ever ran
    with watching():
        until_begun()
        wait_until(lambda: shown()["watcher"] == "")
        with house.fault("catching_up"):
            wait_until(lambda: shown()["watcher"] == "the node is catching up")
    HealthCheck.objects.update(checked_at=Now() - timedelta(minutes=2))
    assert shown()["watcher"] == checks.NO_WATCHER


def test_a_gauge_says_whether_the_stream_is_connected(house, quick_beats):
    from fred.readings import of_the_database

    def shown() -> float | None:
        return of_the_database().get("fred_chain_events_connected", {}).get(())

    with watching():
        until_begun()
        wait_until(lambda: shown() == 1)
        with house.fault("ws_error", where="ws"), house.fault("ws_close", where="ws", times=1):
            wait_until(lambda: shown() == 0)
        wait_until(lambda: shown() == 1)


def test_somebody_watches_also_while_the_chain_is_silent(house, quick_beats):
    with watching():
        until_begun()
        with house.fault("rpc_error", text="down"):
            ChainCursor.objects.update(alive_at=Now() - timedelta(minutes=1))
            wait_until(lambda: ChainCursor.objects.filter(alive_at__gt=Now() - timedelta(seconds=10)).exists())
            until_refused("the chain does not answer")


@pytest.mark.slow
@pytest.mark.parametrize("point", ["watcher.before_store", "watcher.stored"])
def test_a_kill_loses_no_event(house, point):
    """P1 of the crash table: the cursor stands below what was not stored."""
    with watching():
        until_begun()
    leases = create(house, 5)
    child = subprocess.run(
        [sys.executable, "manage.py", "watch_chain"],
        env=environment_of(house, FRED_CRASH_AT=point), cwd=django_settings.BASE_DIR,
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert child.returncode == -signal.SIGKILL, child.stderr[-2000:]
    assert ChainCursor.objects.get().last_height < house.height
    with watching():
        until_stored(T.CREATED, leases)
        until_read(house.height)
    assert set(Lease.objects.values_list("epoch", flat=True)) == {1}


@pytest.mark.slow
def test_sigterm_ends_the_watcher(house):
    child = subprocess.Popen(
        [sys.executable, "manage.py", "watch_chain"], env=environment_of(house), cwd=django_settings.BASE_DIR
    )
    try:
        until_begun()
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
    finally:
        child.kill()
        child.wait()
