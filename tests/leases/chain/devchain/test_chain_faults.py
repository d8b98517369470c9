"""Faults of the chain itself: what it takes, what it answers, and chains that are exchanged."""

from __future__ import annotations

import json
from urllib import request as http

import grpc
import pytest

from leases.chain.devchain.faults import Faults
from leases.chain.proto import abci_pb2, auth_pb2, billing_pb2, tendermint_pb2
from tests.devchain_fixture import Wallet

QUERY = "liftedinit.billing.v1.Query"


def listing(ask, chain, **page):
    request = billing_pb2.QueryLeasesByProviderRequest(
        provider_uuid=chain.provider_uuid, pagination=page, state_filter=billing_pb2.LEASE_STATE_PENDING
    )
    return ask(chain, f"{QUERY}/LeasesByProvider", request, billing_pb2.QueryLeasesByProviderResponse)


def status(chain):
    with http.urlopen(f"{chain.rpc}/status", timeout=5) as answer:
        return json.load(answer)["result"]


def test_sequences_that_somebody_else_used_are_named(manual_devchain):
    chain = manual_devchain
    uuid = chain.create_lease()
    wallet = Wallet.of(chain, "provider")
    chain.add_fault("sequence_skip", n=2, times=1)
    refused = chain.broadcast(wallet.ack([uuid]))
    assert (refused.codespace, refused.code) == ("sdk", 32)
    assert f"expected {wallet.sequence + 2}, got {wallet.sequence}" in refused.log
    assert chain.broadcast(wallet.ack([uuid], sequence=wallet.sequence + 2)).code == 0
    chain.produce_block()
    assert chain.state_of(uuid) == 2


def test_what_waited_with_a_used_sequence_is_dropped_and_may_be_sent_again(manual_devchain):
    chain = manual_devchain
    first, second = chain.create_leases(2)
    wallet = Wallet.of(chain, "provider")
    waiting = wallet.ack([first])
    assert chain.broadcast(waiting).code == 0
    signer = chain.keys["provider"].address
    chain.add_fault("sequence_skip", times=1, match={"signer": signer})
    assert chain.broadcast(wallet.ack([second], sequence=wallet.sequence + 1)).code == 0
    assert chain.broadcast(waiting).code == 32
    chain.produce_block()
    assert (chain.state_of(first), chain.state_of(second)) == (1, 2)


@pytest.mark.parametrize(
    ("effect", "parameters", "code"), [("mempool_full", {}, 20), ("min_gas_price", {"price": "0.5"}, 13)]
)
def test_a_node_may_not_take_a_transaction(manual_devchain, effect, parameters, code):
    chain = manual_devchain
    raw = Wallet.of(chain, "provider").ack([chain.create_lease()])
    with chain.fault(effect, **parameters):
        refused = chain.broadcast(raw)
        assert (refused.codespace, refused.code) == ("sdk", code)
    assert chain.broadcast(raw).code == 0
    with chain.fault(effect, **parameters):
        chain.produce_block()
    assert chain.txs()[-1].code == 0


def test_answers_can_carry_fields_nobody_knows(devchain, ask):
    uuid = devchain.create_lease()
    request = billing_pb2.QueryLeaseRequest(lease_uuid=uuid)
    plain = ask(devchain, f"{QUERY}/Lease", request, billing_pb2.QueryLeaseResponse)
    with devchain.fault("unknown_field"):
        strange = ask(devchain, f"{QUERY}/Lease", request, billing_pb2.QueryLeaseResponse)
        assert status(devchain)["odd"] is True
        with http.urlopen(f"{devchain.rest}/liftedinit/billing/v1/lease/{uuid}", timeout=5) as answer:
            assert json.load(answer)["odd"] is True
    assert strange.lease.uuid == plain.lease.uuid
    assert strange.ByteSize() > plain.ByteSize()
    assert strange.lease.items[0].ByteSize() > plain.lease.items[0].ByteSize()


def test_a_node_of_another_chain_says_so_everywhere(devchain, ask):
    node = "cosmos.base.tendermint.v1beta1.Service"

    def names():
        info = ask(
            devchain, f"{node}/GetNodeInfo", tendermint_pb2.GetNodeInfoRequest(), tendermint_pb2.GetNodeInfoResponse
        )
        block = ask(
            devchain,
            f"{node}/GetLatestBlock",
            tendermint_pb2.GetLatestBlockRequest(),
            tendermint_pb2.GetLatestBlockResponse,
        )
        told = status(devchain)["node_info"]["network"]
        return {info.default_node_info.network, block.sdk_block.header.chain_id, block.block.header.chain_id, told}

    assert names() == {"manifest-localnet"}
    with devchain.fault("wrong_chain"):
        assert names() == {"manifest-localnet-other"}
    with devchain.fault("wrong_chain", chain_id="elsewhere-1"):
        assert names() == {"elsewhere-1"}


def test_a_chain_that_began_anew_makes_way_for_the_old_one(manual_devchain):
    """CH-146"""
    chain = manual_devchain
    uuid = chain.create_lease()
    height, head = chain.height, chain.call(lambda: chain.node.chain.head.hash)
    number = chain.add_fault("reorg_reset")
    assert (chain.height, chain.provider_uuid, chain.chain_id) == (1, "", "manifest-localnet")
    chain.produce_block(count=3)
    assert chain.height == 4
    chain.remove_fault(number)
    assert (chain.height, chain.call(lambda: chain.node.chain.head.hash)) == (height, head)
    assert chain.state_of(uuid) == 1
    chain.ack_leases([uuid])
    assert chain.state_of(uuid) == 2


def test_a_row_can_leave_between_two_pages(devchain, ask):
    """CH-85"""
    uuids = sorted(devchain.create_leases(4))
    devchain.add_fault("drop_page_row", where="*/LeasesByProvider", times=1)
    first = listing(ask, devchain, limit=2)
    assert first.pagination.next_key.decode() == uuids[2]
    second = listing(ask, devchain, limit=2, key=first.pagination.next_key)
    assert not second.leases
    assert not second.pagination.next_key
    assert devchain.state_of(uuids[2]) == 4


def test_a_page_can_be_short_and_lead_on(devchain, ask):
    uuids = sorted(devchain.create_leases(3))
    with devchain.fault("short_page"):
        seen, empty, key = [], 0, b""
        while True:
            page = listing(ask, devchain, limit=2, key=key)
            seen += [lease.uuid for lease in page.leases]
            empty += not page.leases
            key = page.pagination.next_key
            if not key:
                break
    assert (seen, empty) == (uuids, 2)


def test_a_withdrawal_can_lose_its_data(manual_devchain):
    chain = manual_devchain
    uuid = chain.create_lease()
    chain.ack_leases([uuid])
    wallet = Wallet.of(chain, "provider")
    message = billing_pb2.MsgWithdraw(sender=wallet.address, provider_uuid=chain.provider_uuid)
    with chain.fault("empty_data"):
        chain.broadcast(wallet.sign(message))
        chain.broadcast(Wallet.of(chain, "t0").ack([uuid]))
        chain.produce_block(step=5)
    withdrawn = chain.txs()[-2]
    assert (withdrawn.code, withdrawn.data) == (0, b"")
    assert chain.lease(uuid).settled_at == chain.time_ns
    chain.broadcast(Wallet.of(chain, "provider").sign(message))
    chain.produce_block(step=5)
    assert abci_pb2.TxMsgData.FromString(chain.txs()[-1].data).msg_responses


# --- where and match -----------------------------------------------------------------


def test_a_rule_can_be_about_one_lease(devchain, ask):
    hit, spared = devchain.create_leases(2)
    devchain.add_fault("grpc_error", where="*/Lease", match={"lease": hit})
    ask(devchain, f"{QUERY}/Lease", billing_pb2.QueryLeaseRequest(lease_uuid=spared), billing_pb2.QueryLeaseResponse)
    with pytest.raises(grpc.RpcError):
        ask(devchain, f"{QUERY}/Lease", billing_pb2.QueryLeaseRequest(lease_uuid=hit), billing_pb2.QueryLeaseResponse)


def test_a_rule_can_be_about_one_signer_and_one_message(manual_devchain):
    chain = manual_devchain
    uuid = chain.create_lease()
    provider = chain.keys["provider"].address
    rule = {"signer": provider, "message": "MsgAcknowledgeLease"}
    chain.add_fault("chain_error", where="checktx", match=rule, codespace="sdk", code=20, raw_log="full")
    assert chain.broadcast(Wallet.of(chain, "provider").ack([uuid])).code == 20
    assert chain.broadcast(Wallet.of(chain, "t0").ack([uuid])).code == 0
    other = billing_pb2.MsgWithdraw(sender=provider, provider_uuid=chain.provider_uuid)
    assert chain.broadcast(Wallet.of(chain, "provider").sign(other)).code == 0


def test_a_rule_can_hit_the_nth_call_only(devchain, ask):
    request = auth_pb2.QueryAccountRequest(address=devchain.keys["t0"].address)
    devchain.add_fault("grpc_error", where="/cosmos.auth.v1beta1.Query/*", match={"nth": [2, 3]})

    def works():
        try:
            ask(devchain, "cosmos.auth.v1beta1.Query/Account", request, auth_pb2.QueryAccountResponse)
        except grpc.RpcError:
            return False
        return True

    assert [works() for _ in range(4)] == [True, False, False, True]


def test_a_rule_with_a_probability_hits_about_so_often():
    faults = Faults()
    faults.add("grpc_error", match={"probability": 0.25})
    hits = sum(faults.find("grpc_error", "/a/b") is not None for _ in range(1_000))
    assert 180 < hits < 320


@pytest.mark.parametrize(
    ("where", "place", "expected"),
    [
        ("rpc:block_results", "rpc:block_results", True),
        ("block_results", "rpc:block_results", True),
        ("checktx", "chain:checktx", True),
        ("exec", "chain:checktx", False),
        ("/a.B/*", "/a.B/C", True),
        ("ws", "/a.B/C", False),
        ("*", "ws", True),
    ],
)
def test_places(where, place, expected):
    faults = Faults()
    faults.add("hang", where=where)
    assert (faults.find("hang", place) is not None) is expected


def test_what_nobody_matches_is_refused():
    with pytest.raises(ValueError, match="unknown match tenant"):
        Faults().add("hang", match={"tenant": "x"})


def test_a_random_delay_stays_between_its_bounds():
    faults = Faults()
    rule = faults.add("delay", ms=10, to_ms=20)
    drawn = {faults.delay_of(rule) for _ in range(50)}
    assert min(drawn) >= 0.010
    assert max(drawn) <= 0.020
    assert len(drawn) > 10
