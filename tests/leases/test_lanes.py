"""Lanes against a simulated chain: what is acknowledged, in how many transactions, and what is left out."""

from datetime import timedelta

import pytest
from django.db.models import F
from django.db.models.functions import Now

from fred import metrics
from leases import lane_sql, lanes
from leases.chain.client import Broadcast
from leases.models import ChainAction, ChainTx, Lease, Signer
from leases.status import LeaseState
from tests.leases.house import action_states, messages_on_chain, ours_on_chain, pending, sent, states, stored, want
from tests.waiting import wait_until

ACTIVE, CLOSED, REJECTED = int(LeaseState.ACTIVE), int(LeaseState.CLOSED), int(LeaseState.REJECTED)


def run_until_idle() -> None:
    """Run lanes until no transaction is open and nothing that may be sent waits."""

    def is_idle() -> bool:
        lanes.run()
        busy = ChainTx.objects.filter(state__in=["signed", "broadcast"]).exists()
        return not busy and not ChainAction.objects.filter(state="queued", due_at__lte=Now()).exists()

    wait_until(is_idle)


def test_five_acknowledgements_of_one_moment_take_at_most_two_transactions(house):
    """LC-65."""
    leases = pending(house, 5)
    want("ack", leases)
    run_until_idle()
    assert states(house, leases) == [ACTIVE] * 5
    assert action_states() == {"done": 5}
    assert len(ours_on_chain(house)) <= 2


@pytest.mark.parametrize(("number", "transactions"), [(60, 1), (250, 1), (1000, 1)])
def test_what_waits_goes_at_once_in_messages_of_a_hundred(house, number, transactions):
    """LC-66, CH-60."""
    leases = pending(house, number)
    want("ack", leases)
    run_until_idle()
    assert states(house, leases) == [ACTIVE] * number
    assert stored(leases) == [ACTIVE] * number
    ours = ours_on_chain(house)
    assert len(ours) == transactions
    parts = [len(message.lease_uuids) for messages in messages_on_chain(house) for message in messages]
    assert max(parts) <= 100
    assert sum(parts) == number


def test_more_than_the_limit_takes_two_transactions(house, settings):
    """CH-60."""
    settings.FRED = settings.FRED.model_copy(update={"ack_max_per_tx": 100})
    leases = pending(house, 250)
    want("ack", leases)
    run_until_idle()
    assert states(house, leases) == [ACTIVE] * 250
    assert len(ours_on_chain(house)) == 3


def test_an_inclusion_wakes_its_leases_and_counts_as_a_read_of_the_block_before(house):
    leases = pending(house, 2)
    want("ack", leases)
    run_until_idle()
    height = ChainTx.objects.get().height
    for lease in Lease.objects.filter(uuid__in=leases):
        assert lease.due_at is not None
        assert lease.chain_height == height - 1
    assert Signer.objects.get().due_at is not None


def test_of_eight_one_closed_already_seven_become_active_and_one_is_over(house):
    """LC-68: nobody here knew of the end; the simulation shows it, no fee is lost."""
    leases = pending(house, 8)
    house.cancel_leases([str(leases[3])])
    want("ack", leases)
    run_until_idle()
    assert states(house, leases) == [ACTIVE] * 3 + [REJECTED] + [ACTIVE] * 4
    assert action_states() == {"done": 7, "moot": 1}
    assert stored(leases)[3] == REJECTED
    assert Lease.objects.get(uuid=leases[3]).due_at is not None
    assert len(ours_on_chain(house)) == 1


def test_of_fifty_one_expired_the_others_become_active(house):
    """CH-64."""
    leases = pending(house, 50)
    house.expire_lease(str(leases[17]))
    want("ack", leases)
    run_until_idle()
    assert states(house, leases).count(ACTIVE) == 49
    assert action_states() == {"done": 49, "moot": 1}
    assert len(ours_on_chain(house)) <= 13


def test_a_lease_stored_as_active_is_done_without_a_transaction(house):
    """LC-71, first half."""
    leases = pending(house, 1)
    house.ack_leases([str(leases[0])])
    Lease.objects.update(chain_state=ACTIVE)
    want("ack", leases)
    run_until_idle()
    assert action_states() == {"done": 1}
    assert sent(house) == []


def test_a_lease_nobody_has_read_is_read_exactly_first(house):
    """LC-71: exact read ACTIVE is done without a transaction."""
    leases = pending(house, 2)
    house.ack_leases([str(leases[0])])
    Lease.objects.update(chain_state=None, chain_height=-1)
    want("ack", leases)
    run_until_idle()
    assert states(house, leases) == [ACTIVE, ACTIVE]
    assert action_states() == {"done": 2}
    assert len(ours_on_chain(house)) == 1


def test_a_lease_that_cannot_be_read_is_not_acknowledged_but_tried_again(house):
    """LC-71, second half."""
    leases = pending(house, 1)
    Lease.objects.update(chain_state=None, chain_height=-1)
    want("ack", leases)
    with house.fault("grpc_error", where="/liftedinit.billing.v1.Query/Lease", code="UNAVAILABLE", text="away"):
        lanes.run()
        action = ChainAction.objects.get()
        assert (action.state, action.attempts) == ("queued", 1)
        assert "away" in action.last_error
    ChainAction.objects.update(due_at=Now())
    run_until_idle()
    assert action_states() == {"done": 1}


def test_rejects_of_one_reason_share_a_message(house):
    leases = pending(house, 5)
    want("reject", leases[:3], reason="invalid manifest")
    want("reject", leases[3:], reason="image not allowed")
    run_until_idle()
    assert states(house, leases) == [REJECTED] * 5
    messages = [message for messages in messages_on_chain(house) for message in messages]
    assert {message.reason: len(message.lease_uuids) for message in messages} == {
        "invalid manifest": 3,
        "image not allowed": 2,
    }
    assert Lease.objects.get(uuid=leases[4]).chain_reason == "image not allowed"


def test_a_close_ends_an_active_lease(house):
    leases = pending(house, 2)
    house.ack_leases([str(one) for one in leases])
    Lease.objects.update(chain_state=ACTIVE)
    want("close", leases, reason="credit exhausted")
    run_until_idle()
    assert states(house, leases) == [CLOSED] * 2
    assert stored(leases) == [CLOSED] * 2


@pytest.mark.parametrize("verb", ["reject", "close"])
def test_a_destructive_wish_falls_when_its_lease_moved_on_and_the_rest_goes(house, verb):
    leases = pending(house, 3)
    if verb == "close":
        house.ack_leases([str(one) for one in leases])
        Lease.objects.update(chain_state=ACTIVE)
    want(verb, leases, reason="callback timeout")
    Lease.objects.filter(uuid=leases[1]).update(epoch=F("epoch") + 1)
    run_until_idle()
    before = 2 if verb == "close" else 1
    assert states(house, leases)[1] == before
    fallen = ChainAction.objects.get(lease_id=leases[1])
    assert (fallen.state, fallen.due_at) == ("queued", None)
    assert Lease.objects.get(uuid=leases[1]).due_at is not None
    assert action_states() == {"done": 2, "queued": 1}


def test_an_acknowledgement_stands_though_its_lease_was_woken(house):
    leases = pending(house, 1)
    want("ack", leases)
    Lease.objects.update(epoch=F("epoch") + 1)
    run_until_idle()
    assert action_states() == {"done": 1}


def test_nobody_signs_a_wish_whose_time_is_over_and_its_lease_is_looked_at(house):
    leases = pending(house, 1)
    want("reject", leases, reason="callback timeout", valid_until=Now() - timedelta(seconds=1))
    lanes.run()
    action = ChainAction.objects.get()
    assert (action.state, action.due_at) == ("queued", None)
    assert Lease.objects.get().due_at is not None
    assert states(house, leases) == [1]


def test_a_free_signer_is_not_taken_without_work(house):
    before = Signer.objects.values().get()
    lanes.run()
    assert Signer.objects.values().get() == before


def test_an_open_transaction_keeps_its_signer_and_what_comes_meanwhile_waits(house):
    house.set_block_mode("manual")
    first, second = pending(house, 3), pending(house, 2)
    want("ack", first)
    lanes.run()
    assert Signer.objects.get().due_at is None
    want("ack", second)
    lanes.run()
    assert ChainTx.objects.count() == 1
    assert action_states() == {"in_tx": 3, "queued": 2}
    house.produce_block()
    house.set_block_mode("instant")
    ChainTx.objects.update(due_at=Now())
    run_until_idle()
    assert action_states() == {"done": 5}
    assert ChainTx.objects.count() == 2


def test_a_silent_chain_costs_no_attempt_and_leaves_everything_queued(house):
    leases = pending(house, 2)
    want("ack", leases)
    with house.fault("grpc_error", where="/cosmos.auth.v1beta1.Query/Account", code="UNAVAILABLE", text="away"):
        lanes.run()
        assert action_states() == {"queued": 2}
        assert set(ChainAction.objects.values_list("attempts", flat=True)) == {0}
    Signer.objects.update(due_at=Now())
    run_until_idle()
    assert action_states() == {"done": 2}


def test_without_a_simulation_a_transaction_takes_what_the_fallback_gas_carries(house):
    leases = pending(house, 60)
    want("ack", leases)
    with house.fault("grpc_error", where="/cosmos.tx.v1beta1.Service/Simulate", code="INTERNAL", text="no"):
        run_until_idle()
    assert states(house, leases) == [ACTIVE] * 60
    sizes = [sum(len(message.lease_uuids) for message in messages) for messages in messages_on_chain(house)]
    assert sizes == [24, 24, 12]


def test_above_the_cap_on_gas_a_transaction_is_halved_until_it_fits(house, settings):
    """CH-60, last part."""
    settings.FRED = settings.FRED.model_copy(update={"max_gas_limit": 3_000_000})
    leases = pending(house, 100)
    want("ack", leases)
    run_until_idle()
    assert states(house, leases) == [ACTIVE] * 100
    assert all(tx.gas_limit <= 3_000_000 for tx in sent(house))


def test_running_out_of_gas_raises_the_gas_and_splits_nothing(house):
    """LC-69, CH-40: the eight stay together."""
    leases = pending(house, 8)
    want("ack", leases)
    before = metrics.ACK_FEE_GAS_ERRORS.labels("0")._value.get()
    with house.fault("gas_factor", times=1, factor=0.4):
        lanes.run()
        wait_until(lambda: (lanes.run(), ChainTx.objects.filter(state="failed").exists())[1])
    run_until_idle()
    first, second = sent(house)
    assert (first.state, first.codespace, first.code) == ("failed", "sdk", 11)
    assert second.state == "included"
    assert second.gas_limit >= first.gas_limit * 3 // 2
    assert states(house, leases) == [ACTIVE] * 8
    assert metrics.ACK_FEE_GAS_ERRORS.labels("0")._value.get() == before + 1


def test_no_lease_is_asked_for_twice(house):
    """LC-67: a lease and a verb are one row."""
    leases = pending(house, 1)
    want("ack", leases)
    with pytest.raises(Exception, match="chain_action_once"):
        want("ack", leases)


def test_two_processes_with_one_key_never_use_a_sequence_twice(house, run_in_threads):
    """CH-59."""
    leases = pending(house, 120)
    want("ack", leases)
    run_in_threads(3, run_until_idle)
    assert states(house, leases) == [ACTIVE] * 120
    sequences = [tx.sequence for tx in sent(house)]
    assert len(sequences) == len(set(sequences))
    assert not ChainTx.objects.filter(code=32).exists()


def at(monkeypatch, point: str, happens) -> None:
    """Let something happen, once, while a lane stands at this point: as if the process had stalled there."""
    left = [happens]

    def reached(name: str) -> None:
        if name == point and left:
            left.pop()()

    monkeypatch.setattr(lanes.crash, "point", reached)


def test_a_lane_that_lost_its_signer_stores_nothing(house, monkeypatch):
    """A stall longer than the claim, before the bytes are stored."""
    leases = pending(house, 3)
    want("ack", leases)
    at(monkeypatch, "lane.before_sign", lambda: Signer.objects.update(epoch=F("epoch") + 1))
    assert lanes.send_next() is False
    assert sent(house) == []
    assert action_states() == {"queued": 3}
    Signer.objects.update(due_at=Now())
    run_until_idle()
    assert action_states() == {"done": 3}


def test_actions_that_another_lane_took_over_are_left_out(house, monkeypatch):
    leases = pending(house, 3)
    want("ack", leases)
    first = ChainAction.objects.filter(lease_id=leases[0])
    at(monkeypatch, "lane.before_sign", lambda: first.update(epoch=F("epoch") + 1))
    assert lanes.send_next() is True
    assert [len(message.lease_uuids) for messages in messages_on_chain(house) for message in messages] == [2]
    assert first.get().state == "queued"


def test_a_refusal_of_bytes_that_another_lane_took_over_decides_nothing(house, monkeypatch):
    """A stall longer than the claim, between the stored bytes and the answer: the other may have sent them."""
    leases = pending(house, 2)
    want("ack", leases)
    chain, broadcast = lanes.client(), lanes.client().broadcast

    def taken_over(tx_bytes: bytes) -> Broadcast:
        broadcast(tx_bytes)
        ChainTx.objects.update(epoch=F("epoch") + 1)
        return Broadcast(code=32, codespace="sdk", tx_hash="", raw_log="expected 1, got 0")

    monkeypatch.setattr(chain, "broadcast", taken_over)
    assert lanes.send_next() is True
    assert [tx.state for tx in sent(house)] == ["signed"]
    monkeypatch.undo()
    ChainTx.objects.update(due_at=Now())
    run_until_idle()
    assert [tx.state for tx in sent(house)] == ["included"]
    assert len(ours_on_chain(house)) == 1


def test_a_push_starts_only_soon_after_the_claim(house, monkeypatch):
    """A process that stalled between commit and push leaves the push to whoever claims the row next."""
    leases = pending(house, 2)
    want("ack", leases)
    from leases import inclusion

    monkeypatch.setattr(inclusion, "PUSH_WITHIN_S", -1)
    lanes.send_next()
    assert [tx.state for tx in sent(house)] == ["signed"]
    assert ours_on_chain(house) == []


def test_a_signer_without_a_key_here_is_left_alone(house):
    Signer.objects.create(address="manifest1old", due_at=Now() - timedelta(days=1))
    leases = pending(house, 60)
    want("ack", leases)
    run_until_idle()
    assert len(ours_on_chain(house)) == 1
    assert Signer.objects.get(address="manifest1old").epoch == 0


def test_signers_left_at_rest_without_a_transaction_are_freed_at_start(house):
    Signer.objects.update(due_at=None)
    lanes.ensure_signers()
    assert Signer.objects.get().due_at is not None


def test_two_claims_of_the_same_actions_share_nothing(house):
    leases = pending(house, 4)
    want("ack", leases)
    from fred import due

    first = due.claim(ChainAction, 2, where=lane_sql.SENDABLE)
    second = due.claim(ChainAction, 4, where=lane_sql.SENDABLE)
    assert len(first) == len(second) == 2
    assert not {one.pk for one in first} & {one.pk for one in second}


def test_a_new_database_gets_its_signer_from_the_first_lane(house):
    Signer.objects.all().delete()
    leases = pending(house, 1)
    want("ack", leases)
    run_until_idle()
    assert action_states() == {"done": 1}
