"""What the generations A and C of the ledger do otherwise than B."""

from __future__ import annotations

import grpc
import pytest

from leases.chain import devchain as simulated
from leases.chain.devchain.keys import DISTRIBUTION
from leases.chain.proto import billing_pb2, pagination_pb2
from tests.devchain_fixture import PWR, Wallet

QUERY = "liftedinit.billing.v1.Query"
MICRO = 1_000


@pytest.fixture
def old():
    with simulated.run(profile="A", block_mode="manual") as chain:
        yield chain


@pytest.fixture
def new():
    with simulated.run(profile="C", block_mode="manual") as chain:
        yield chain


def events_of(chain, kind):
    last = chain.txs()[-1]
    return [dict(event.attributes) for event in last.events if event.type == kind]


def withdrawable(ask, chain, **request):
    request = billing_pb2.QueryProviderWithdrawableRequest(provider_uuid=chain.provider_uuid, **request)
    return ask(chain, f"{QUERY}/ProviderWithdrawable", request, billing_pb2.QueryProviderWithdrawableResponse)


def withdraw(chain, **how):
    """A provider-wide withdrawal; its answer."""
    wallet = Wallet.of(chain, "provider")
    message = billing_pb2.MsgWithdraw(sender=wallet.address, provider_uuid=chain.provider_uuid, **how)
    checked = chain.broadcast(wallet.sign(message, gas=20_000_000))
    if checked.code:
        return checked
    chain.produce_block(step=1)
    result = chain.txs()[-1]
    assert result.code == 0, result.log
    return billing_pb2.MsgWithdrawResponse.FromString(result.data[-_length(result.data) :])


def _length(data):
    packed = data.split(b"MsgWithdrawResponse", 1)[1]
    return packed[1]


def acked(chain, count, **how):
    uuids = chain.create_leases(count, **how)
    chain.ack_leases(uuids)
    chain.produce_block(step=10)
    return uuids


# --- A ------------------------------------------------------------------------------


def test_a_cursor_is_an_unknown_field_to_the_old_chain(old):
    """CH-148"""
    checked = withdraw(old, key=b"x")
    assert (checked.codespace, checked.code) == ("sdk", 2)
    assert "TagNum: 5" in checked.log


def test_the_old_chain_withdraws_from_the_first_leases_again_and_again(old):
    """CH-148: without a key it withdraws."""
    uuids = acked(old, 3)
    first, second = withdraw(old, limit=2), withdraw(old, limit=2)
    assert (first.withdrawal_count, first.has_more, first.next_key) == (2, True, b"")
    assert (second.withdrawal_count, second.has_more) == (2, True)
    settled = [old.lease(uuid).settled_at for uuid in sorted(uuids)]
    assert settled[0] == settled[1] > settled[2]


def test_the_old_chain_sums_leases_of_every_state_and_says_whether_there_are_more(old, ask):
    """No cursor, only a mark that the sum is not the whole."""
    acked(old, 2)
    old.create_lease()
    answer = withdrawable(ask, old)
    assert (answer.lease_count, answer.has_more, answer.HasField("pagination")) == (2, False, False)
    assert int(answer.amounts[0].amount) == 2 * 10 * MICRO
    assert withdrawable(ask, old, limit=2).has_more


def test_domain_events_of_the_old_chain_do_not_name_the_provider(old):
    [uuid] = old.create_leases(1)
    tenant = next(name for name in old.keys if old.keys[name].address == old.lease(uuid).tenant)
    wallet = Wallet.of(old, tenant)
    message = billing_pb2.MsgSetItemCustomDomain(sender=wallet.address, lease_uuid=uuid, custom_domain="a.example")
    old.broadcast(wallet.sign(message))
    old.produce_block()
    assert "provider_uuid" not in events_of(old, "lease_custom_domain_set")[0]
    old.set_profile("B")
    old.broadcast(
        Wallet.of(old, tenant).sign(billing_pb2.MsgSetItemCustomDomain(sender=wallet.address, lease_uuid=uuid))
    )
    old.produce_block()
    assert events_of(old, "lease_custom_domain_cleared")[0]["provider_uuid"] == old.provider_uuid


# --- C ------------------------------------------------------------------------------


def test_after_its_deadline_a_pending_lease_cannot_be_acknowledged(new):
    """CH-134 on C"""
    uuid = new.create_lease()
    new.change_params(pending_timeout=60)
    new.broadcast(Wallet.of(new, "provider").ack([uuid]))
    new.produce_block(step=61)
    last = new.txs()[-1]
    assert (last.codespace, last.code) == ("billing", 34)
    assert new.state_of(uuid) == 5


def test_the_limit_of_active_leases_holds_for_a_whole_batch(new):
    """35, and nothing of the batch is acknowledged."""
    uuids = new.create_leases(3, tenant=new.keys["t0"].address)
    new.change_params(max_leases_per_tenant=2)
    new.broadcast(Wallet.of(new, "provider").ack(uuids))
    new.produce_block()
    assert (new.txs()[-1].codespace, new.txs()[-1].code) == ("billing", 35)
    assert {new.state_of(uuid) for uuid in uuids} == {1}


def test_a_lease_shows_its_reservation(new, ask):
    uuid = new.create_lease()
    request = billing_pb2.QueryLeaseRequest(lease_uuid=uuid)

    def reserved():
        data = ask(new, f"{QUERY}/Lease", request, billing_pb2.QueryLeaseResponse).lease.SerializeToString()
        return f"{MICRO * 3600}".encode() in data.split(b"\x82\x01", 1)[1]

    assert reserved()
    new.cancel_lease(uuid)
    assert not reserved()


def test_credit_reserved_for_other_leases_is_not_consumed(new):
    tenant = new.keys["t0"].address
    new.change_params(pending_timeout=86_400)
    mine, other = new.create_leases(2, tenant=tenant)
    new.ack_leases([mine])
    balance = new.call(lambda: new.node.chain.state.balance(credit(new, tenant), PWR))
    new.drain_credit(tenant, {PWR: balance - 2 * MICRO * 3600})
    new.produce_block(step=4_000)
    new.withdraw_leases([mine])
    assert new.state_of(mine) == 3
    left = new.call(lambda: new.node.chain.state.balance(credit(new, tenant), PWR))
    assert left == MICRO * 3600
    assert new.state_of(other) == 1


def credit(chain, tenant):
    return chain.node.chain.state.credits[tenant].address


def test_a_payout_that_cannot_be_received_is_named(new, ask):
    uuids = acked(new, 2)
    uuid = new.provider_uuid

    def block_payout():
        state = new.node.chain.state
        state.providers[uuid] = state.providers[uuid]._replace(payout_address=DISTRIBUTION)

    new.call(block_payout)
    answer = withdrawable(ask, new)
    assert (answer.lease_count, sorted(answer.failed_lease_uuids)) == (0, sorted(uuids))
    response = withdraw(new)
    assert sorted(response.failed_lease_uuids) == sorted(uuids)
    [told] = events_of(new, "batch_withdraw")
    assert (told["failed_lease_count"], told["failed_lease_uuids"]) == ("2", ",".join(sorted(uuids)))


def test_a_withdrawal_by_provider_tells_every_payment(new):
    uuids = acked(new, 2)
    withdraw(new)
    assert [told["lease_uuid"] for told in events_of(new, "provider_withdraw")] == sorted(uuids)
    assert events_of(new, "batch_withdraw")[0]["failed_lease_count"] == "0"


def test_creations_tell_their_sender(new):
    new.create_lease()
    [told] = events_of(new, "lease_created")
    assert told["sender"] == told["tenant"]


def test_a_vanished_cursor_does_no_harm_on_the_new_chain(new, ask):
    uuids = sorted(new.create_leases(4))
    by_provider = billing_pb2.QueryLeasesByProviderRequest

    def page(**how):
        request = by_provider(provider_uuid=new.provider_uuid, pagination={"limit": 2, **how}, state_filter=1)
        return ask(new, f"{QUERY}/LeasesByProvider", request, billing_pb2.QueryLeasesByProviderResponse)

    key = page().pagination.next_key
    assert key.decode() == uuids[2]
    new.cancel_lease(uuids[2])
    assert [lease.uuid for lease in page(key=key).leases] == uuids[3:]


@pytest.mark.parametrize(
    ("method", "request_", "code", "text"),
    [
        (
            "LeasesByProvider",
            billing_pb2.QueryLeasesByProviderRequest(provider_uuid="nope"),
            "INVALID_ARGUMENT",
            "provider_uuid must be a valid UUIDv7",
        ),
        (
            "LeasesBySKU",
            billing_pb2.QueryLeasesBySKURequest(sku_uuid="01902A9B-1234-7000-8000-000000000001"),
            "INVALID_ARGUMENT",
            "sku_uuid must be a valid UUIDv7",
        ),
        (
            "Leases",
            billing_pb2.QueryLeasesRequest(pagination=pagination_pb2.PageRequest(offset=20_000)),
            "RESOURCE_EXHAUSTED",
            "the query looks at more than 20000 rows",
        ),
        (
            "ProviderWithdrawable",
            billing_pb2.QueryProviderWithdrawableRequest(provider_uuid="x", pagination={"count_total": True}),
            "INVALID_ARGUMENT",
            "offset and count_total are not supported",
        ),
    ],
)
def test_the_new_chain_refuses(new, ask, method, request_, code, text):
    with pytest.raises(grpc.RpcError) as caught:
        ask(new, f"{QUERY}/{method}", request_, billing_pb2.QueryLeasesResponse)
    assert (caught.value.code().name, caught.value.details()) == (code, text)


def test_credit_comes_in_pages_of_which_the_first_may_be_empty(new, ask):
    """CH-86"""
    tenant = new.keys["t0"].address

    def hold():
        state = new.node.chain.state
        state.balances[credit(new, tenant), "aaa"] = 0
        state.balances[credit(new, tenant), "umfx"] = 5

    new.call(hold)

    def page(**how):
        request = billing_pb2.QueryCreditAccountRequest(tenant=tenant, pagination={"limit": 1, **how})
        return ask(new, f"{QUERY}/CreditAccount", request, billing_pb2.QueryCreditAccountResponse)

    first = page()
    assert not first.balances
    second = page(key=first.pagination.next_key)
    assert second.balances[0].denom == PWR
    assert page(key=second.pagination.next_key).balances[0].amount == "5"


def test_profiles_are_known_by_name(devchain):
    with pytest.raises(ValueError, match="unknown profile D; known are A, B, C"):
        devchain.set_profile("D")
