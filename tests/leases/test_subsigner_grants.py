"""Grants of sub-signers against a simulated chain: who has them signs, who lacks one is left out and comes back."""

from __future__ import annotations

from datetime import timedelta

from django.db.models.functions import Now

from fred import metrics
from fred.models import PeriodicTask
from leases import inclusion, lanes, node, subsigner_sql, subsigners
from leases.chain.devchain import bank
from leases.chain.devchain import messages as table
from leases.chain.devchain.errors import Refused
from leases.chain.messages import DELEGATED_TYPES
from leases.models import ChainAction, ChainTx, Lease, Signer
from leases.status import LeaseState
from tests.leases.house import action_states, messages_on_chain, ours_on_chain, pending, states, want
from tests.leases.signers import (
    MINIMUM,
    TOP_UP,
    address_of,
    balance,
    errands,
    everything_for,
    give,
    grant,
    grants,
    have_sub_signers,
    look_after,
    make_due,
    questions,
    run_until_done,
    settle,
    signed_by,
    usable,
)
from tests.waiting import wait_until

ACTIVE = int(LeaseState.ACTIVE)
GRANTS = "/cosmos.authz.v1beta1.Query/Grants"


def count(metric, *labels):
    return metric.labels(*labels)._value.get()


def settle_with(*indexes: int) -> None:
    """Look after the sub-signers until these may sign: a read that was not answered leaves one out for a while."""
    wait_until(lambda: settle() or usable() == [*indexes])


def test_three_without_grants_get_nine_in_one_transaction_and_then_their_funds(house, settings):
    """CH-65, CH-32: nine questions, then one transaction with nine grants in order, its gas simulated."""
    have_sub_signers(settings, 3)
    look_after()
    assert questions(house) == 9
    settle()
    [granting] = errands(house, "MsgGrant")
    assert [message.grantee for message in granting] == [address_of(house, n) for n in (1, 1, 1, 2, 2, 2, 3, 3, 3)]
    assert grants(house) == everything_for(house, 1, 2, 3)
    [funding] = errands(house, "MsgSend")
    assert len(funding) == 3
    assert [balance(house, n) for n in (1, 2, 3)] == [TOP_UP] * 3
    assert usable() == [0, 1, 2]
    assert ChainTx.objects.get(kind="grant").gas_limit != node.provider().gas.fallback()


def test_with_all_grants_and_funds_nothing_is_sent(house, settings):
    """CH-66"""
    have_sub_signers(settings, 2)
    grant(house, 1, 2)
    give(house, {1: MINIMUM, 2: MINIMUM})
    look_after()
    assert usable() == [0, 1]
    assert ours_on_chain(house) == []
    task = PeriodicTask.objects.get(name="sub-signers")
    assert task.due_at - task.finished_at >= timedelta(minutes=59), "the usual interval"


def test_a_silent_chain_demotes_nobody(house, settings):
    """CH-68, CH-71: unverified is not missing."""
    have_sub_signers(settings, 2)
    settle()
    assert usable() == [0, 1]
    errors = count(metrics.GRANT_CHECKS, "error")
    with house.fault("grpc_error", where=GRANTS, code="UNAVAILABLE", text="away"):
        look_after()
    assert usable() == [0, 1]
    assert count(metrics.GRANT_CHECKS, "error") == errors + 1
    task = PeriodicTask.objects.get(name="sub-signers")
    assert task.outcome == "error"
    assert (task.due_at - task.finished_at) <= timedelta(seconds=2)


def test_a_question_that_fails_once_is_asked_again_and_nothing_is_sent(house, settings):
    """CH-69: four questions in all."""
    have_sub_signers(settings, 1)
    grant(house, 1)
    give(house, {1: MINIMUM})
    with house.fault("grpc_error", where=GRANTS, code="UNAVAILABLE", text="away", times=1):
        look_after()
        assert usable() == []
        look_after()
    assert usable() == [0]
    assert questions(house) == 4
    assert ours_on_chain(house) == []


def test_grants_that_fail_together_are_made_one_by_one(house, settings):
    """CH-72, CH-55: one transaction, tried once, and then one for each."""
    have_sub_signers(settings, 1)
    give(house, {1: MINIMUM})
    with house.fault("chain_error", where="chain:exec", codespace="sdk", code=111222, raw_log="panic", times=1):
        look_after()
        wait_until(lambda: (make_due(), lanes.run(), ChainTx.objects.filter(state="failed").exists())[-1])
    settle()
    assert [(tx.state, len(tx.about)) for tx in ChainTx.objects.filter(kind="grant").order_by("id")] == [
        ("failed", 3),
        ("included", 1),
        ("included", 1),
        ("included", 1),
    ]
    assert usable() == [0]


def test_only_the_sub_signer_whose_grant_cannot_be_made_is_left_out(house, settings, monkeypatch):
    """CH-70: the others sign; the reason is kept; it is tried again later."""
    have_sub_signers(settings, 2)
    give(house, {1: MINIMUM, 2: MINIMUM})
    ours, refused = bank.grant, address_of(house, 1)

    def fails(ctx, msg):
        if msg.grantee == refused:
            raise Refused("sdk", 18, "no")
        return ours(ctx, msg)

    name = "/cosmos.authz.v1beta1.MsgGrant"
    monkeypatch.setitem(table.TYPES, name, table.TYPES[name]._replace(run=fails))
    errors = count(metrics.GRANT_CHECKS, "error")
    settle()
    assert usable() == [1]
    assert Signer.objects.get(address=refused).last_error.startswith("failed to create grant")
    assert count(metrics.GRANT_CHECKS, "error") > errors
    monkeypatch.undo()
    ChainTx.objects.filter(kind="grant").update(decided_at=Now() - timedelta(hours=1))
    settle()
    assert usable() == [0, 1]


def test_sub_signers_sign_in_the_providers_name_and_the_provider_only_without_them(house, settings):
    """CH-62, CH-79"""
    have_sub_signers(settings, 1)
    first = pending(house, 2)
    want("ack", first)
    run_until_done()
    [plain] = [result.tx for result in ours_on_chain(house)]
    assert plain.messages[0][1].DESCRIPTOR.name == "MsgAcknowledgeLease"
    settle()
    second = pending(house, 2)
    want("ack", second)
    run_until_done()
    [wrapped] = messages_on_chain(house)[-1:]
    assert wrapped[0].DESCRIPTOR.name == "MsgExec"
    assert signed_by(house) == {address_of(house, 0): 1, address_of(house, 1): 1}
    have_sub_signers(settings, 0)
    third = pending(house, 2)
    want("ack", third)
    run_until_done()
    assert signed_by(house)[address_of(house, 0)] == 2
    assert states(house, first + second + third) == [ACTIVE] * 6


def test_a_revoked_grant_leaves_its_signer_out_at_once_and_it_comes_back(house, settings):
    """The chain says authz 2: another signer takes the work, and the grant is made again without a restart."""
    have_sub_signers(settings, 2)
    settle_with(0, 1)
    for kind in DELEGATED_TYPES:
        house.call(
            lambda kind=kind: house.node.chain.state.grants.pop((address_of(house, 0), address_of(house, 1), kind))
        )
    Signer.objects.filter(index=1).update(due_at=Now() + timedelta(hours=1))  # so that nobody else is quicker
    leases = pending(house, 30)
    want("ack", leases)
    wait_until(lambda: lanes.run() or usable() == [1])
    run_until_done()
    assert states(house, leases) == [ACTIVE] * 30
    assert usable() == [1]
    assert Signer.objects.get(index=0).demoted_at is not None
    assert set(ChainAction.objects.values_list("attempts", flat=True)) == {0}
    soon = Now() + timedelta(seconds=31)
    assert PeriodicTask.objects.filter(name="sub-signers", due_at__lt=soon).exists()
    settle_with(0, 1)


def test_a_check_that_began_before_the_chain_refused_promotes_nobody(house, settings):
    have_sub_signers(settings, 1)
    settle()
    began = subsigner_sql.now()
    inclusion.give_signer_up(address_of(house, 1), error="authorization not found")
    assert not subsigner_sql.promote(address_of(house, 1), granted=DELEGATED_TYPES, seen_at=began)
    assert subsigner_sql.promote(address_of(house, 1), granted=DELEGATED_TYPES, seen_at=subsigner_sql.now())


def test_an_errand_gets_the_providers_key_though_leases_wait(house, settings):
    """Without sub-signers all leases go by the provider's key; it does not keep grants and funds away."""
    house.set_block_mode("manual")
    have_sub_signers(settings, 1, ack_max_per_tx=25)
    leases = pending(house, 100)
    want("ack", leases)
    lanes.run()
    look_after()
    assert not ChainTx.objects.filter(kind="grant").exists()
    house.produce_block()
    make_due()
    lanes.run()
    assert ChainTx.objects.filter(kind="ack").count() == 1, "lanes leave the key to the errand"
    look_after()
    assert ChainTx.objects.filter(kind="grant", state="broadcast").exists()
    house.set_block_mode("instant")
    house.produce_block()
    settle()
    run_until_done()
    assert states(house, leases) == [ACTIVE] * 100


def test_a_wish_is_asked_for_once_though_two_passes_run_at_once(house, settings, run_in_threads):
    have_sub_signers(settings, 2)
    run_in_threads(3, look_after)
    settle()
    assert len(errands(house, "MsgGrant")) == 1
    assert [balance(house, n) for n in (1, 2)] == [TOP_UP] * 2


def test_without_sub_signers_the_chain_is_not_asked(house):
    look_after()
    assert questions(house) == 0
    assert Lease.objects.count() == 0
    assert action_states() == {}
    assert subsigners.look_after() is None
