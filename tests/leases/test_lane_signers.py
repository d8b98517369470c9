"""Several signers: who takes what waits, and in which order."""

from __future__ import annotations

from leases import lanes
from leases.chain.proto import billing_pb2
from leases.models import ChainAction, ChainTx, Signer
from tests.leases.house import messages_on_chain, pending, want
from tests.leases.signers import address_of, have_sub_signers, make_due, settle, signed_by
from tests.waiting import wait_until


def run_until_done() -> None:
    """Run lanes until no action is open."""

    def is_done() -> bool:
        make_due()
        lanes.run()
        return not ChainAction.objects.filter(state__in=["queued", "in_tx"]).exists()

    wait_until(is_done)


def test_signers_take_turns(house, settings):
    """CH-77: six transactions one after the other, each by the one that has rested longest."""
    have_sub_signers(settings, 3)
    settle()
    order = []
    for _ in range(6):
        want("ack", pending(house, 1))
        wait_until(lambda: (lanes.run(), not ChainAction.objects.filter(state__in=["queued", "in_tx"]).exists())[-1])
        order.append(Signer.objects.get(address=ChainTx.objects.latest("id").signer_id).index)
    assert order[:3] == order[3:]
    assert sorted(order[:3]) == [0, 1, 2]


def test_two_signers_share_what_waits(house, settings):
    """LC-73: both are used, and no lease is in two transactions."""
    have_sub_signers(settings, 2)
    settle()
    leases = pending(house, 100)
    want("ack", leases)
    run_until_done()
    assert set(signed_by(house)) == {address_of(house, 1), address_of(house, 2)}
    told = [
        uuid
        for messages in messages_on_chain(house)
        for message in messages
        if message.DESCRIPTOR.name == "MsgExec"
        for inner in message.msgs
        for uuid in acknowledged(inner)
    ]
    assert sorted(told) == sorted(str(one) for one in leases)


def acknowledged(inner) -> list[str]:
    return list(billing_pb2.MsgAcknowledgeLease.FromString(inner.value).lease_uuids)
