"""Faults: each does what it says, and no longer than it was asked to."""

from __future__ import annotations

import time

import grpc
import pytest

from leases.chain.devchain.faults import Faults
from leases.chain.proto import billing_pb2, tendermint_pb2, tx_pb2
from tests.devchain_fixture import Wallet
from tests.waiting import wait_until

LEASE = "liftedinit.billing.v1.Query/Lease"


def read(ask, chain, uuid):
    request = billing_pb2.QueryLeaseRequest(lease_uuid=uuid)
    return ask(chain, LEASE, request, billing_pb2.QueryLeaseResponse).lease


def status(ask, chain, uuid):
    with pytest.raises(grpc.RpcError) as caught:
        read(ask, chain, uuid)
    return caught.value.code()


def test_an_error_is_answered_as_often_as_asked_for(devchain, ask):
    uuid = devchain.create_lease()
    devchain.add_fault("grpc_error", where="/liftedinit.billing.v1.Query/*", times=2, code="INTERNAL", text="broken")
    assert [status(ask, devchain, uuid), status(ask, devchain, uuid)] == [grpc.StatusCode.INTERNAL] * 2
    assert read(ask, devchain, uuid).uuid == uuid


def test_a_silent_chain_answers_nothing_until_the_fault_goes(devchain):
    uuid = devchain.create_lease()
    number = devchain.add_fault("hang")
    with grpc.insecure_channel(devchain.grpc) as channel:
        call = channel.unary_unary(f"/{LEASE}", request_serializer=None, response_deserializer=None)
        request = billing_pb2.QueryLeaseRequest(lease_uuid=uuid).SerializeToString()
        with pytest.raises(grpc.RpcError) as caught:
            call(request, timeout=0.2)
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        waiting = call.future(request, timeout=10)
        assert not waiting.done()
        assert devchain.remove_fault(number)
        assert billing_pb2.QueryLeaseResponse.FromString(waiting.result()).lease.uuid == uuid


def test_stale_reads_answer_an_old_height_with_its_header(devchain, ask):
    """CH-87"""
    uuid = devchain.create_lease()
    before = devchain.height
    devchain.ack_leases([uuid])
    with devchain.fault("stale_reads", blocks=1):
        assert read(ask, devchain, uuid).state == 1
        assert ask.headers["x-cosmos-block-height"] == str(before)
        request = tendermint_pb2.GetLatestBlockRequest()
        method = "cosmos.base.tendermint.v1beta1.Service/GetLatestBlock"
        assert ask(devchain, method, request, tendermint_pb2.GetLatestBlockResponse).sdk_block.header.height == before
    assert read(ask, devchain, uuid).state == 2


def test_old_states_stay_readable_after_many_changes(devchain):
    uuids = devchain.create_leases(3)
    first = devchain.height
    devchain.ack_leases(uuids[:2])
    devchain.close_lease(uuids[0])
    devchain.expire_lease(uuids[2])
    now = [devchain.state_of(uuid) for uuid in uuids]

    def states(height):
        return devchain.call(lambda: [devchain.node.chain.view(height).state.leases[u].state for u in uuids])

    assert (states(first), states(first + 1), now) == ([1, 1, 1], [2, 2, 1], [3, 2, 5])
    pending = devchain.call(
        lambda: devchain.node.chain.view(first).state.lease_uuids("provider", devchain.provider_uuid, 1)
    )
    assert pending == sorted(uuids)


def test_an_empty_chain_knows_no_lease(devchain, ask):
    uuid = devchain.create_lease()
    with devchain.fault("empty_chain"):
        assert status(ask, devchain, uuid) == grpc.StatusCode.NOT_FOUND
        request = billing_pb2.QueryLeasesByProviderRequest(provider_uuid=devchain.provider_uuid)
        method = "liftedinit.billing.v1.Query/LeasesByProvider"
        assert not ask(devchain, method, request, billing_pb2.QueryLeasesByProviderResponse).leases
    assert read(ask, devchain, uuid).uuid == uuid


def test_a_vanished_lease_is_in_no_answer(devchain, ask):
    gone, there = devchain.create_leases(2)
    with devchain.fault("lease_vanish", uuid=gone):
        assert status(ask, devchain, gone) == grpc.StatusCode.NOT_FOUND
        request = billing_pb2.QueryLeasesByProviderRequest(provider_uuid=devchain.provider_uuid)
        method = "liftedinit.billing.v1.Query/LeasesByProvider"
        answer = ask(devchain, method, request, billing_pb2.QueryLeasesByProviderResponse)
        assert [lease.uuid for lease in answer.leases] == [there]


def test_a_reset_chain_starts_at_height_one_with_its_old_id(devchain):
    """CH-146"""
    devchain.create_lease()
    devchain.reset()
    assert (devchain.height, devchain.chain_id, devchain.provider_uuid) == (1, "manifest-localnet", "")


def test_an_accepted_transaction_can_stay_out_of_every_block_until_its_time_is_over(devchain):
    """CH-58"""
    uuid = devchain.create_lease()
    wallet = Wallet.of(devchain, "provider")
    timeout = devchain.height + 3
    with devchain.fault("never_include"):
        checked = devchain.broadcast(wallet.ack([uuid], timeout_height=timeout))
        assert checked.code == 0
        devchain.produce_block(count=2)
        assert devchain.call(lambda: list(devchain.node.chain.mempool)) == [checked.hash]
        devchain.produce_block(count=2)
        assert devchain.call(lambda: list(devchain.node.chain.mempool)) == []
    assert devchain.state_of(uuid) == 1
    assert Wallet.of(devchain, "provider").sequence == wallet.sequence


def test_a_withheld_transaction_goes_in_when_the_fault_ends(devchain):
    uuid = devchain.create_lease()
    with devchain.fault("never_include"):
        devchain.broadcast(Wallet.of(devchain, "provider").ack([uuid]))
        devchain.produce_block()
    devchain.produce_block()
    assert devchain.state_of(uuid) == 2


def test_the_index_can_lag_behind_the_state(devchain, ask):
    """CH-57"""
    uuid = devchain.create_lease()
    number = devchain.add_fault("index_lag", blocks=2)
    checked = devchain.broadcast(Wallet.of(devchain, "provider").ack([uuid]))
    wait_until(lambda: devchain.state_of(uuid) == 2)
    request = tx_pb2.GetTxRequest(hash=checked.hash)
    with pytest.raises(grpc.RpcError) as caught:
        ask(devchain, "cosmos.tx.v1beta1.Service/GetTx", request, tx_pb2.GetTxResponse)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    devchain.produce_block(count=2)
    assert ask(devchain, "cosmos.tx.v1beta1.Service/GetTx", request, tx_pb2.GetTxResponse).tx_response.code == 0
    devchain.remove_fault(number)


@pytest.mark.parametrize("stage", ["checktx", "exec"])
def test_a_transaction_can_be_refused_with_any_code(devchain, stage):
    uuid = devchain.create_lease()
    devchain.add_fault("chain_error", where=f"chain:{stage}", times=1, codespace="billing", code=35, raw_log="cap")
    checked = devchain.broadcast(Wallet.of(devchain, "provider").ack([uuid]))
    if stage == "checktx":
        assert (checked.codespace, checked.code, checked.log) == ("billing", 35, "cap")
        return
    result = wait_until(lambda: devchain.call(lambda: devchain.node.chain.txs.get(checked.hash)))
    assert (result.codespace, result.code, result.log) == ("billing", 35, "cap")
    assert devchain.state_of(uuid) == 1


def test_a_lost_answer_did_happen_and_a_lost_request_did_not(devchain, ask):
    uuid = devchain.create_lease()
    raw = Wallet.of(devchain, "provider").ack([uuid])
    request = tx_pb2.BroadcastTxRequest(tx_bytes=raw, mode=tx_pb2.BROADCAST_MODE_SYNC)
    for effect, state in (("lose_request", 1), ("lose_response", 2)):
        devchain.add_fault(effect, where="*/BroadcastTx", times=1)
        with pytest.raises(grpc.RpcError) as caught:
            ask(devchain, "cosmos.tx.v1beta1.Service/BroadcastTx", request, tx_pb2.BroadcastTxResponse)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        wait_until(lambda expected=state: devchain.state_of(uuid) == expected)


def test_simulated_gas_can_be_wrong_or_missing(devchain, ask):
    """CH-26"""
    raw = Wallet.of(devchain, "provider").ack([devchain.create_lease()])

    def simulate():
        request = tx_pb2.SimulateRequest(tx_bytes=raw)
        return ask(devchain, "cosmos.tx.v1beta1.Service/Simulate", request, tx_pb2.SimulateResponse)

    right = simulate().gas_info.gas_used
    with devchain.fault("gas_factor", factor=0.5):
        assert simulate().gas_info.gas_used == right // 2
    with devchain.fault("gas_info_missing"):
        assert not simulate().HasField("gas_info")


def test_a_node_can_say_that_it_is_syncing(devchain, ask):
    def syncing():
        request = tendermint_pb2.GetSyncingRequest()
        method = "cosmos.base.tendermint.v1beta1.Service/GetSyncing"
        return ask(devchain, method, request, tendermint_pb2.GetSyncingResponse).syncing

    assert not syncing()
    with devchain.fault("catching_up"):
        assert syncing()


def test_a_delay_comes_before_the_answer(devchain, ask):
    uuid = devchain.create_lease()
    with devchain.fault("delay", where=f"/{LEASE}", ms=60):
        begun = time.monotonic()
        read(ask, devchain, uuid)
        assert time.monotonic() - begun >= 0.06


def test_an_unknown_effect_is_refused():
    with pytest.raises(ValueError, match="unknown effect nonsense"):
        Faults().add("nonsense")
