"""What becomes of signed transactions: only the hash decides, whatever is refused, lost, late or killed in between."""

import signal
import subprocess
import sys
from datetime import timedelta

import pytest
from django.conf import settings as django_settings
from django.db.models import F
from django.db.models.functions import Now

from fred import metrics
from leases import inclusion, lane_evidence, lanes
from leases.models import ChainAction, ChainTx, Lease, Signer
from leases.status import LeaseState
from tests.leases.house import action_states, environment_of, ours_on_chain, pending, sent, states, stored, want
from tests.waiting import wait_until

PENDING, ACTIVE, CLOSED, REJECTED = (
    int(one) for one in (LeaseState.PENDING, LeaseState.ACTIVE, LeaseState.CLOSED, LeaseState.REJECTED)
)
BROADCAST = "/cosmos.tx.v1beta1.Service/BroadcastTx"


def make_all_due() -> None:
    """As if every pause were over."""
    ChainTx.objects.filter(due_at__isnull=False).update(due_at=Now())
    ChainAction.objects.filter(due_at__isnull=False).update(due_at=Now())
    Signer.objects.filter(due_at__isnull=False).update(due_at=Now())


def run_until_settled() -> None:
    """Run lanes, all pauses cut short, until no action is open."""

    def is_settled() -> bool:
        make_all_due()
        lanes.run()
        return not ChainAction.objects.filter(state__in=["queued", "in_tx"]).exists()

    wait_until(is_settled)


CHILD = """
import django
django.setup()
from leases import lanes
import threading
for _ in range(2000):
    lanes.run()
    threading.Event().wait(0.01)
"""


def run_in_child(chain, point: str) -> None:
    """Run lanes in a process that dies at this point."""
    child = subprocess.run(
        [sys.executable, "-c", CHILD],
        env=environment_of(chain, FRED_CRASH_AT=point), cwd=django_settings.BASE_DIR,
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert child.returncode == -signal.SIGKILL, child.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "rows"),
    [("lane.before_sign", 0), ("lane.stored", 1), ("lane.broadcast", 1), ("lane.included_seen", 1)],
)
def test_a_kill_at_any_point_leaves_one_transaction_and_active_leases(house, point, rows):
    """LC-72, CH-56; P9 to P11 of the crash table."""
    leases = pending(house, 20)
    want("ack", leases)
    run_in_child(house, point)
    assert ChainTx.objects.count() == rows
    before = list(ChainTx.objects.values_list("tx_hash", flat=True))
    run_until_settled()
    assert states(house, leases) == [ACTIVE] * 20
    assert action_states() == {"done": 20}
    assert len(ours_on_chain(house)) == 1
    assert ChainTx.objects.count() == 1
    if before:
        assert ChainTx.objects.get().tx_hash == before[0]
    assert Signer.objects.get().due_at is not None


@pytest.mark.slow
def test_a_killed_claim_ends_by_itself(house):
    """What a killed lane held before it stored anything is free again within five seconds."""
    leases = pending(house, 3)
    want("ack", leases)
    run_in_child(house, "lane.before_sign")
    soon = Now() + timedelta(seconds=5.1)
    assert Signer.objects.filter(due_at__lt=soon).exists()
    assert ChainAction.objects.filter(state="queued", due_at__lt=soon).count() == 3


def test_a_lost_answer_to_the_broadcast_changes_nothing(house):
    """The bytes arrived, nobody said so: the hash is found."""
    leases = pending(house, 3)
    want("ack", leases)
    with house.fault("lose_response", where=BROADCAST, times=1):
        lanes.run()
    run_until_settled()
    assert len(ours_on_chain(house)) == 1
    assert [tx.state for tx in sent(house)] == ["included"]


def test_a_lost_broadcast_is_sent_again_with_the_same_bytes(house):
    leases = pending(house, 3)
    want("ack", leases)
    with house.fault("lose_request", where=BROADCAST, times=1):
        lanes.run()
    tx = ChainTx.objects.get()
    assert tx.state == "signed"
    run_until_settled()
    assert [result.tx.hash for result in ours_on_chain(house)] == [tx.tx_hash]
    assert states(house, leases) == [ACTIVE] * 3


def test_a_late_index_brings_no_second_transaction(house):
    """CH-57, CH-49: the same bytes come again, whatever the node says to them nothing new is signed."""
    leases = pending(house, 3)
    want("ack", leases)
    number = house.add_fault("index_lag", blocks=50)
    lanes.run()
    for _ in range(5):
        ChainTx.objects.update(created_at=Now() - timedelta(seconds=6))
        make_all_due()
        lanes.run()
    assert [tx.state for tx in sent(house)] == ["broadcast"]
    house.remove_fault(number)
    run_until_settled()
    assert len(ours_on_chain(house)) == 1
    assert action_states() == {"done": 3}


def test_a_lost_index_is_made_up_for_by_the_leases(house, monkeypatch):
    """CH-57: the node died between its block and its index. The signer is free long before the timeout height."""
    leases = pending(house, 3)
    want("ack", leases)
    number = house.add_fault("index_lag", blocks=10_000)
    lanes.run()
    house.close_lease(str(leases[1]))
    ChainTx.objects.update(created_at=Now() - timedelta(hours=1))
    for _ in range(2):
        make_all_due()
        lanes.run()
    assert [tx.state for tx in sent(house)] == ["broadcast"], "what was slow to be included is not lost yet"
    monkeypatch.setattr(lane_evidence, "INDEX_LOST_AFTER", timedelta())
    make_all_due()
    with house.fault("grpc_error", where="/liftedinit.billing.v1.Query/Lease*", code="UNAVAILABLE", text="away"):
        lanes.run()
    assert [tx.state for tx in sent(house)] == ["broadcast"], "silence decides nothing"
    make_all_due()
    lanes.run()
    (tx,) = sent(house)
    assert (tx.state, tx.height) == ("included", None)
    assert house.height < tx.timeout_height
    assert action_states() == {"done": 2, "moot": 1}
    assert Signer.objects.get().due_at is not None
    assert list(Lease.objects.filter(uuid__in=leases).order_by("uuid").values_list("chain_state", flat=True)) == [
        ACTIVE, CLOSED, ACTIVE
    ]  # fmt: skip
    house.remove_fault(number)
    more = pending(house, 2)
    want("ack", more)
    run_until_settled()
    assert states(house, more) == [ACTIVE] * 2
    assert len(ours_on_chain(house)) == 2


def test_so_many_sightings_are_kept():
    seen = lane_evidence.Sightings()
    for number in range(lane_evidence.MOST_SIGHTINGS + 10):
        assert seen.since(number) == timedelta()
    assert len(seen._first) == lane_evidence.MOST_SIGHTINGS
    assert seen.since(lane_evidence.MOST_SIGHTINGS) > timedelta()


def test_never_included_and_too_late_is_dropped_after_two_looks_and_sent_anew(house):
    """CH-58."""
    leases = pending(house, 3)
    want("ack", leases)
    with house.fault("never_include", times=1):
        lanes.run()
        tx = ChainTx.objects.get()
        house.produce_block(count=tx.timeout_height + 3 - house.height)
    make_all_due()
    lanes.run()
    tx.refresh_from_db()
    assert tx.state == "broadcast"
    assert tx.missed_at is not None
    make_all_due()
    lanes.run()
    tx.refresh_from_db()
    assert tx.state == "broadcast", "the second look has to be five seconds later"
    ChainTx.objects.update(missed_at=F("missed_at") - timedelta(seconds=5))
    run_until_settled()
    assert [one.state for one in sent(house)] == ["dropped", "included"]
    assert states(house, leases) == [ACTIVE] * 3


def test_a_syncing_node_proves_nothing(house):
    leases = pending(house, 1)
    want("ack", leases)
    with house.fault("never_include", times=1), house.fault("catching_up"):
        lanes.run()
        tx = ChainTx.objects.get()
        house.produce_block(count=tx.timeout_height + 3 - house.height)
        ChainTx.objects.update(missed_at=Now() - timedelta(minutes=1))
        make_all_due()
        lanes.run()
    tx.refresh_from_db()
    assert tx.state == "broadcast"


def test_the_sequence_a_node_names_is_used_next(house):
    """CH-34: the account says another one."""
    leases = pending(house, 2)
    want("ack", leases)
    text = "account sequence mismatch, expected 7, got 0: incorrect account sequence"
    with house.fault("chain_error", where="chain:checktx", codespace="sdk", code=32, raw_log=text, times=1):
        lanes.run()
    run_until_settled()
    sequences = [tx.sequence for tx in sent(house)]
    assert sequences[:2] == [0, 7]
    assert states(house, leases) == [ACTIVE] * 2
    assert {tx.state for tx in sent(house)} == {"dropped", "included"}


def test_a_fee_that_is_too_low_splits_nothing(house):
    """CH-47, LC-69: all stay queued, with a pause."""
    leases = pending(house, 8)
    want("ack", leases)
    before = metrics.ACK_FEE_GAS_ERRORS.labels("0")._value.get()
    with house.fault("chain_error", where="chain:checktx", codespace="sdk", code=13, raw_log="insufficient fee"):
        lanes.run()
    assert [tx.state for tx in sent(house)] == ["dropped"]
    assert action_states() == {"queued": 8}
    assert not ChainAction.objects.filter(due_at__lte=Now()).exists()
    assert metrics.ACK_FEE_GAS_ERRORS.labels("0")._value.get() == before + 1
    run_until_settled()
    assert states(house, leases) == [ACTIVE] * 8


def test_a_full_mempool_keeps_the_bytes(house):
    leases = pending(house, 2)
    want("ack", leases)
    with house.fault(
        "chain_error", where="chain:checktx", codespace="sdk", code=20, raw_log="mempool is full", times=1
    ):
        lanes.run()
    assert [tx.state for tx in sent(house)] == ["signed"]
    run_until_settled()
    assert [tx.state for tx in sent(house)] == ["included"]


def in_the_block(chain, uuid, state: int) -> None:
    """Somebody moves the lease in the block that comes, before our transaction."""
    chain.write_lease_state(str(uuid), state)
    chain.produce_block()


def test_a_failed_transaction_loses_its_finished_leases_and_sends_the_rest_again(house):
    """LC-68, CH-46, executed: one moved after the simulation."""
    house.set_block_mode("manual")
    leases = pending(house, 8)
    want("ack", leases)
    lanes.run()
    in_the_block(house, leases[5], REJECTED)
    house.set_block_mode("instant")
    run_until_settled()
    assert states(house, leases) == [ACTIVE] * 5 + [REJECTED] + [ACTIVE] * 2
    assert action_states() == {"done": 7, "moot": 1}
    assert [(tx.state, tx.code) for tx in sent(house)] == [("failed", 22), ("included", 0)]
    assert stored(leases)[5] == REJECTED
    assert Lease.objects.get(uuid=leases[5]).due_at is not None


def test_an_acknowledgement_that_somebody_else_made_is_done(house):
    """After a failed transaction ACTIVE proves the wish fulfilled, whoever did it."""
    house.set_block_mode("manual")
    leases = pending(house, 1)
    want("ack", leases)
    lanes.run()
    in_the_block(house, leases[0], ACTIVE)
    house.set_block_mode("instant")
    run_until_settled()
    assert action_states() == {"done": 1}
    assert stored(leases) == [ACTIVE]


def test_a_reject_of_a_lease_that_became_active_is_over_and_nothing_is_torn_down(house):
    """LC-75."""
    house.set_block_mode("manual")
    leases = pending(house, 1)
    want("reject", leases, reason="callback timeout")
    lanes.run()
    in_the_block(house, leases[0], ACTIVE)
    house.set_block_mode("instant")
    run_until_settled()
    assert action_states() == {"moot": 1}
    assert states(house, leases) == [ACTIVE]
    assert Lease.objects.get().due_at is not None


def test_a_read_that_fails_after_a_failed_transaction_decides_nothing(house):
    house.set_block_mode("manual")
    leases = pending(house, 2)
    want("ack", leases)
    lanes.run()
    in_the_block(house, leases[0], REJECTED)
    house.set_block_mode("instant")
    with house.fault("grpc_error", where="/liftedinit.billing.v1.Query/Lease", code="UNAVAILABLE", text="away"):
        make_all_due()
        inclusion.check_due()
        assert action_states() == {"queued": 2}
        assert stored(leases) == [PENDING, PENDING]
    run_until_settled()
    assert action_states() == {"done": 1, "moot": 1}


def test_two_processes_record_an_inclusion_once(house, run_in_threads):
    house.set_block_mode("manual")
    leases = pending(house, 30)
    want("ack", leases)
    lanes.run()
    house.produce_block()
    row = ChainTx.objects.get()
    epochs = dict(Lease.objects.values_list("uuid", "epoch"))
    found = lanes.client().tx(row.tx_hash)
    from fred.due import Claim
    from leases import tx_sql

    [tx] = tx_sql.read_open([Claim(row.id, row.epoch, 1)])
    recorded = run_in_threads(4, lambda: inclusion._included(tx, found))
    assert sorted(recorded) == [False, False, False, True]
    assert {uuid: epoch + 1 for uuid, epoch in epochs.items()} == dict(Lease.objects.values_list("uuid", "epoch"))


def test_a_close_ends_a_lease_that_another_closed_first(house):
    house.set_block_mode("instant")
    leases = pending(house, 2)
    house.ack_leases([str(one) for one in leases])
    Lease.objects.update(chain_state=ACTIVE)
    want("close", leases, reason="credit exhausted")
    house.close_lease(str(leases[0]))
    run_until_settled()
    assert states(house, leases) == [CLOSED] * 2
    assert action_states() == {"done": 2}


@pytest.mark.parametrize("age", [timedelta(), timedelta(hours=6)], ids=["young", "of before a long silence"])
def test_however_often_it_was_looked_for_it_is_looked_for_again(house, age):
    """Hours without an answer leave hundreds of attempts; the pause does not grow with them."""
    house.set_block_mode("manual")
    leases = pending(house, 2)
    want("ack", leases)
    wait_until(lambda: lanes.run() or ChainTx.objects.filter(state="broadcast").exists())
    ChainTx.objects.update(attempts=500, created_at=Now() - age, due_at=Now())
    assert not inclusion.check_due()
    assert ChainTx.objects.filter(state="broadcast", due_at__lt=Now() + inclusion.SLOWEST_POLL).exists()
    house.set_block_mode("instant")
    house.produce_block()
    run_until_settled()
    assert states(house, leases) == [ACTIVE] * 2
