"""Blocks: what transactions do, what they cost, what they leave when they fail, what a block does by itself."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest

from leases.chain import devchain as simulated
from leases.chain.devchain.context import Context
from leases.chain.devchain.errors import Refused
from leases.chain.devchain.keys import PWR, credit_address
from leases.chain.devchain.profiles import PROFILES
from leases.chain.devchain.state import State
from leases.chain.proto import authz_pb2, bank_pb2, billing_pb2
from leases.chain.proto.coin_pb2 import Coin
from tests.devchain_fixture import Wallet

UNKNOWN = "01902a9b-1234-7000-8000-000000000001"


@pytest.fixture(scope="module")
def chain():
    with simulated.run(block_mode="manual") as chain:
        yield chain


def execute(chain, raw):
    checked = chain.broadcast(raw)
    assert checked.code == 0, checked.log
    chain.produce_block()
    return chain.call(lambda: chain.node.chain.txs[checked.hash])


def outcome(result):
    return result.codespace, result.code, result.log


def types(events):
    return [event.type for event in events]


def test_an_acknowledgement_says_what_a_node_says(chain):
    """Types and attributes, in order, as recorded on a node."""
    wallet, leases = Wallet.of(chain, "provider"), chain.create_leases(2, tenant=chain.keys["t0"].address)
    result = execute(chain, wallet.ack(leases, fee=7))
    assert types(result.events) == [
        *("coin_spent", "coin_received", "transfer", "message", "tx", "tx", "tx", "message"),
        *("lease_acknowledged", "lease_acknowledged", "batch_acknowledged"),
    ]
    assert result.events[5].attributes == (("acc_seq", f"{wallet.address}/{wallet.sequence}"),)
    assert result.events[7].attributes == (
        ("action", "/liftedinit.billing.v1.MsgAcknowledgeLease"),
        ("sender", wallet.address),
        ("module", "billing"),
        ("msg_index", "0"),
    )
    assert result.events[8].attributes == (
        ("lease_uuid", leases[0]),
        ("tenant", chain.keys["t0"].address),
        ("provider_uuid", chain.provider_uuid),
        ("acknowledged_by", wallet.address),
        ("msg_index", "0"),
    )
    assert result.gas_used == pytest.approx(204_854, rel=0.2)


@pytest.mark.parametrize(
    ("name", "uuids", "expected"),
    [
        ("provider", [UNKNOWN], ("billing", 2, f"lease {UNKNOWN} not found: lease not found")),
        ("provider", ["active"], ("billing", 22, "lease U is not in PENDING state: lease not in pending state")),
        ("t5", ["active"], ("billing", 22, "lease U is not in PENDING state: lease not in pending state")),
        (
            "t5",
            ["pending"],
            ("billing", 6, "sender S is not authorized to acknowledge leases for provider P: unauthorized"),
        ),
    ],
    ids=["unknown", "not pending", "CH-130 stranger, not pending", "CH-130 stranger"],
)
def test_refused_acknowledgements(chain, name, uuids, expected):
    active, pending = chain.create_leases(2)
    chain.ack_leases([active])
    known = {"active": active, "pending": pending}
    wallet = Wallet.of(chain, name)
    codespace, code, text = expected
    text = text.replace("U", known.get(uuids[0], "U")).replace("sender S", f"sender {wallet.address}")
    text = text.replace("provider P", f"provider {chain.provider_uuid}")
    result = execute(chain, wallet.ack([known.get(uuid, uuid) for uuid in uuids]))
    assert outcome(result) == (codespace, code, f"failed to execute message; message index: 0: {text}")
    assert types(result.events) == ["tx", "tx", "tx"]
    assert result.data == b""


def test_one_bad_lease_fails_its_whole_transaction_but_not_the_sequence(chain):
    """CH-131"""
    wallet, lease = Wallet.of(chain, "provider"), chain.create_lease()
    first = billing_pb2.MsgAcknowledgeLease(sender=wallet.address, lease_uuids=[lease])
    second = billing_pb2.MsgAcknowledgeLease(sender=wallet.address, lease_uuids=[UNKNOWN])
    result = execute(chain, wallet.sign(first, second, fee=5))
    assert result.log.startswith("failed to execute message; message index: 1: ")
    assert chain.state_of(lease) == 1
    assert Wallet.of(chain, "provider").sequence == wallet.sequence + 1


def test_out_of_gas_costs_fee_and_sequence_and_does_nothing(chain):
    """CH-142"""
    wallet, lease = Wallet.of(chain, "provider"), chain.create_lease()
    before = chain.call(lambda: chain.node.chain.state.balance(wallet.address, "umfx"))
    result = execute(chain, wallet.ack([lease], gas=70_000, fee=3))
    assert outcome(result)[:2] == ("sdk", 11)
    assert result.log.startswith("out of gas in location: ReadFlat; gasWanted: 70000, gasUsed: ")
    assert chain.state_of(lease) == 1
    assert chain.call(lambda: chain.node.chain.state.balance(wallet.address, "umfx")) == before - 3
    assert Wallet.of(chain, "provider").sequence == wallet.sequence + 1


def test_a_grant_lets_one_type_of_message_through(chain):
    """CH-145"""
    provider, sub = Wallet.of(chain, "provider"), Wallet.of(chain, "t7")
    lease, other = chain.create_leases(2)
    inner = billing_pb2.MsgAcknowledgeLease(sender=provider.address, lease_uuids=[lease])
    acting = authz_pb2.MsgExec(grantee=sub.address)
    acting.msgs.add(type_url="/liftedinit.billing.v1.MsgAcknowledgeLease", value=inner.SerializeToString())
    missing = (
        f"failed to execute message; message index: 0: failed to get grant with given granter: {provider.address}, "
        f"grantee: {sub.address} & msgType: /liftedinit.billing.v1.MsgAcknowledgeLease : authorization not found"
    )
    assert outcome(execute(chain, sub.sign(acting))) == ("authz", 2, missing)
    grant = authz_pb2.MsgGrant(granter=provider.address, grantee=sub.address)
    allowed = authz_pb2.GenericAuthorization(msg="/liftedinit.billing.v1.MsgAcknowledgeLease")
    grant.grant.authorization.type_url = "/cosmos.authz.v1beta1.GenericAuthorization"
    grant.grant.authorization.value = allowed.SerializeToString()
    granted = execute(chain, provider.sign(grant))
    assert granted.events[-1].attributes[0] == ("grantee", f'"{sub.address}"')
    result = execute(chain, Wallet.of(chain, "t7").sign(acting))
    assert result.code == 0
    assert result.events[-1].attributes[-2:] == (("authz_msg_index", "0"), ("msg_index", "0"))
    assert chain.state_of(lease) == 2
    rejecting = authz_pb2.MsgExec(grantee=sub.address)
    reject = billing_pb2.MsgRejectLease(sender=provider.address, lease_uuids=[other])
    rejecting.msgs.add(type_url="/liftedinit.billing.v1.MsgRejectLease", value=reject.SerializeToString())
    assert outcome(execute(chain, Wallet.of(chain, "t7").sign(rejecting)))[:2] == ("authz", 2)


def test_sending_money_makes_the_receivers_account(chain):
    wallet = Wallet.of(chain, "t0")
    receiver = chain.keys["provider-sub-1"].address
    message = bank_pb2.MsgSend(
        from_address=wallet.address, to_address=receiver, amount=[Coin(denom="umfx", amount="5")]
    )
    assert execute(chain, wallet.sign(message)).code == 0
    account = chain.call(lambda: chain.node.chain.state.accounts[receiver])
    assert account.sequence == 0
    assert chain.call(lambda: chain.node.chain.state.balance(receiver, "umfx")) == 5


@pytest.fixture
def small():
    """A chain whose first tenant owns exactly what one reservation needs, at 1000 per second."""
    with simulated.run(block_mode="manual") as chain:
        chain.change_params(min_lease_duration=10)
        yield chain


def leave_credit(chain, amount):
    tenant = chain.keys["t0"].address
    chain.drain_credit(tenant)
    chain.mint(credit_address(tenant), {PWR: amount})
    return tenant


def test_a_reservation_must_be_covered_exactly(small):
    """CH-135"""
    tenant = leave_credit(small, 10_000)
    assert small.create_lease(tenant=tenant)
    with pytest.raises(Refused, match="insufficient credit balance"):
        small.create_lease(tenant=tenant)


def test_the_eleventh_pending_lease_is_refused(small):
    """CH-135"""
    small.change_params(max_pending_leases_per_tenant=10)
    tenant = small.keys["t1"].address
    small.create_leases(10, tenant=tenant)
    with pytest.raises(Refused, match="maximum pending leases reached"):
        small.create_lease(tenant=tenant)


def test_a_settlement_pays_whole_seconds(small):
    """CH-137"""
    lease = small.create_lease(tenant=small.keys["t0"].address)
    small.ack_leases([lease])
    started = small.lease(lease).settled_at
    provider = small.keys["provider"].address
    before = small.call(lambda: small.node.chain.state.balance(provider, PWR))
    small.freeze_clock(10.9)
    small.withdraw_leases([lease])
    assert small.call(lambda: small.node.chain.state.balance(provider, PWR)) == before + 10_000
    assert small.lease(lease).settled_at - started in range(10_900_000_000, 10_900_000_002)


def test_an_exhausted_lease_closes_when_it_is_touched(small):
    """CH-138: accrued equals the balance."""
    tenant = leave_credit(small, 10_000)
    lease = small.create_lease(tenant=tenant)
    small.ack_leases([lease])
    small.freeze_clock(10)
    small.produce_block()
    assert small.state_of(lease) == 2
    wallet = Wallet.of(small, "provider")
    message = billing_pb2.MsgWithdraw(sender=wallet.address, provider_uuid=small.provider_uuid)
    result = execute(small, wallet.sign(message))
    assert types(result.events)[-2:] == ["lease_auto_closed", "batch_withdraw"]
    assert dict(result.events[-2].attributes)["reason"] == "credit_exhausted"
    assert (small.lease(lease).state, small.lease(lease).closure_reason) == (3, "credit exhausted")


def test_a_close_that_finds_no_credit_says_so(small):
    """CH-136"""
    tenant = leave_credit(small, 10_000)
    lease = small.create_lease(tenant=tenant)
    small.ack_leases([lease])
    small.drain_credit(tenant)
    [result] = small.close_leases([lease], reason="x")
    closed = dict(result.events[-1].attributes)
    assert (closed["closed_by"], closed["closure_reason"]) == ("credit_exhaustion", "credit exhausted")


def test_nothing_to_withdraw_is_refused_by_uuid_and_fine_provider_wide(small):
    """CH-139"""
    leases = small.create_leases(2)
    with pytest.raises(Refused, match="no withdrawable amount"):
        small.withdraw_leases(leases)
    wallet = Wallet.of(small, "provider")
    message = billing_pb2.MsgWithdraw(sender=wallet.address, provider_uuid=small.provider_uuid)
    result = execute(small, wallet.sign(message))
    assert (result.code, dict(result.events[-1].attributes)["lease_count"]) == (0, "0")


def test_a_pending_lease_expires_strictly_after_its_time(small):
    """CH-133: at created_at + time-out it is PENDING, one nanosecond later it ends with the block."""
    lease = small.create_lease()
    timeout = 1_800 * 10**9
    chain = small.node.chain

    def block_at(moment):
        return small.call(lambda: chain.produce(step=moment - chain.time))

    created = small.lease(lease).created_at
    block_at(created + timeout)
    assert small.state_of(lease) == 1
    block = block_at(created + timeout + 1)
    assert small.state_of(lease) == 5
    last = block.events[-1]
    assert last.type == "lease_expired"
    assert last.attributes[0] == ("lease_uuid", lease)
    assert last.attributes[3:] == (("reason", "pending_timeout"), ("mode", "EndBlock"))


def test_a_hundred_leases_expire_in_one_block(small):
    """CH-133"""
    leases = sorted(small.create_leases(150))
    small.make_overdue(leases)
    small.produce_block()
    assert [small.state_of(lease) for lease in leases] == [5] * 100 + [1] * 50
    small.produce_block()
    assert {small.state_of(lease) for lease in leases} == {5}


def test_an_acknowledgement_wins_in_the_block_of_the_time_out(small):
    """CH-134"""
    lease = small.create_lease()
    wallet = Wallet.of(small, "provider")
    small.broadcast(wallet.ack([lease]))
    small.produce_block(step=3_600)
    assert small.state_of(lease) == 2


def test_custom_domains_are_claimed_once(small):
    """CH-141"""
    first, second = small.create_leases(2, tenant=small.keys["t0"].address)
    wallet = Wallet.of(small, "t0")

    def claim(lease, domain):
        message = billing_pb2.MsgSetItemCustomDomain(sender=wallet.address, lease_uuid=lease, custom_domain=domain)
        checked = small.broadcast(Wallet.of(small, "t0").sign(message))
        if checked.code:
            return checked.code, []
        small.produce_block()
        result = small.txs()[-1]
        return result.code, [event.type for event in result.events if event.type.startswith("lease_")]

    assert claim(first, "App.example.com")[0] == 29
    assert claim(first, "10.0.0.1")[0] == 29
    assert claim(first, "a.b") == (0, ["lease_custom_domain_set"])
    assert claim(first, "a.b") == (0, [])
    assert claim(second, "a.b")[0] == 30
    small.cancel_lease(first)
    assert claim(second, "a.b") == (0, ["lease_custom_domain_set"])


def test_uuids_follow_the_rule_of_the_chain():
    vectors = json.loads((Path(__file__).parents[4] / "fixtures/vectors/chain.json").read_text())
    for case in vectors["lease_uuid"]["cases"]:
        moment = dt.datetime.fromisoformat(case["block_time"])
        nanoseconds = round(moment.timestamp() * 1000) * 10**6
        state = State()
        state.sequences[case["module"]] = int(case["sequence"])
        header = bytes.fromhex(case["header_hash_hex"])
        ctx = Context(state, time=nanoseconds, header_hash=header, chain_id=case["chain_id"], profile=PROFILES["B"])
        assert ctx.new_uuid(case["module"]) == case["uuid"]
