"""Queries over gRPC: answers, heights, pages and refusals, as real nodes give them."""

from __future__ import annotations

import grpc
import pytest

from leases.chain import devchain as simulated
from leases.chain.proto import (
    abci_pb2,
    auth_pb2,
    authz_pb2,
    bank_pb2,
    billing_pb2,
    sku_pb2,
    tendermint_pb2,
    tx_pb2,
)
from leases.chain.proto.pagination_pb2 import PageRequest
from tests.devchain_fixture import Wallet

BILLING = "liftedinit.billing.v1.Query"
TX = "cosmos.tx.v1beta1.Service"
UNKNOWN = "01902a9b-1234-7000-8000-000000000001"


@pytest.fixture(scope="module")
def chain():
    with simulated.run() as chain:
        yield chain


def listing(ask, chain, *, state=0, **page):
    request = billing_pb2.QueryLeasesByProviderRequest(
        provider_uuid=chain.provider_uuid, state_filter=state, pagination=PageRequest(**page)
    )
    return ask(chain, f"{BILLING}/LeasesByProvider", request, billing_pb2.QueryLeasesByProviderResponse)


def refused(ask, chain, method, request, answer):
    with pytest.raises(grpc.RpcError) as caught:
        ask(chain, method, request, answer)
    return caught.value.code(), caught.value.details()


def test_a_lease_is_answered_with_the_height_it_was_read_at(chain, ask):
    uuid = chain.create_lease()
    request = billing_pb2.QueryLeaseRequest(lease_uuid=uuid)
    lease = ask(chain, f"{BILLING}/Lease", request, billing_pb2.QueryLeaseResponse).lease
    assert (lease.uuid, lease.state, lease.provider_uuid) == (uuid, 1, chain.provider_uuid)
    assert lease.last_settled_at == lease.created_at
    assert not lease.HasField("acknowledged_at")
    assert lease.items[0].locked_price.amount == "1000"
    assert ask.headers["x-cosmos-block-height"] == str(chain.height)


@pytest.mark.parametrize(
    ("uuid", "code", "text"),
    [
        (UNKNOWN, grpc.StatusCode.NOT_FOUND, "lease not found"),
        ("nope", grpc.StatusCode.NOT_FOUND, "lease not found"),
        ("", grpc.StatusCode.INVALID_ARGUMENT, "lease_uuid cannot be empty"),
    ],
)
def test_a_lease_that_is_not_there(chain, ask, uuid, code, text):
    request = billing_pb2.QueryLeaseRequest(lease_uuid=uuid)
    assert refused(ask, chain, f"{BILLING}/Lease", request, billing_pb2.QueryLeaseResponse) == (code, text)


def test_an_unknown_method_is_unimplemented(chain, ask):
    code, _ = refused(ask, chain, f"{BILLING}/Nothing", billing_pb2.QueryParamsRequest(), billing_pb2.Params)
    assert code == grpc.StatusCode.UNIMPLEMENTED


def test_pages_follow_each_other_in_uuid_order(ask):
    """CH-82: keys are passed back unchanged."""
    with simulated.run() as chain:
        made = sorted(chain.create_leases(25))
        seen, key = [], b""
        while True:
            page = listing(ask, chain, state=1, limit=10, key=key)
            seen += [lease.uuid for lease in page.leases]
            assert page.HasField("pagination")
            key = page.pagination.next_key
            if not key:
                break
            assert key.decode() == made[len(seen)]
        assert seen == made
        assert listing(ask, chain, limit=2, count_total=True).pagination.total == 25
        assert [lease.uuid for lease in listing(ask, chain, limit=3, reverse=True).leases] == made[:-4:-1]
        assert [lease.uuid for lease in listing(ask, chain, limit=3, offset=4).leases] == made[4:7]
        assert len(listing(ask, chain, limit=5000).leases) == 25


def test_a_vanished_cursor_ends_the_listing_silently(ask):
    """CH-85: the lease the cursor names left the list between two pages."""
    with simulated.run() as chain:
        made = sorted(chain.create_leases(5))
        key = listing(ask, chain, state=1, limit=2).pagination.next_key
        assert key.decode() == made[2]
        chain.ack_leases([made[2]])
        page = listing(ask, chain, state=1, limit=2, key=key)
        assert (list(page.leases), page.pagination.next_key) == ([], b"")


def test_an_unknown_provider_has_no_leases(chain, ask):
    request = billing_pb2.QueryLeasesByProviderRequest(provider_uuid=UNKNOWN)
    page = ask(chain, f"{BILLING}/LeasesByProvider", request, billing_pb2.QueryLeasesByProviderResponse)
    assert (len(page.leases), page.HasField("pagination")) == (0, True)


def test_leases_by_tenant_and_credit(ask):
    with simulated.run() as chain:
        tenant = chain.keys["t3"].address
        uuid = chain.create_lease(tenant=tenant)
        request = billing_pb2.QueryLeasesByTenantRequest(tenant=tenant)
        answer = ask(chain, f"{BILLING}/LeasesByTenant", request, billing_pb2.QueryLeasesByTenantResponse)
        assert [lease.uuid for lease in answer.leases] == [uuid]
        request = billing_pb2.QueryCreditAccountRequest(tenant=tenant)
        credit = ask(chain, f"{BILLING}/CreditAccount", request, billing_pb2.QueryCreditAccountResponse)
        assert credit.credit_account.pending_lease_count == 1
        assert credit.credit_account.reserved_amounts[0].amount == "3600000"
        assert int(credit.balances[0].amount) - int(credit.available_balances[0].amount) == 3_600_000
        everyone = billing_pb2.QueryCreditAccountsRequest(pagination=PageRequest(count_total=True))
        accounts = ask(chain, f"{BILLING}/CreditAccounts", everyone, billing_pb2.QueryCreditAccountsResponse)
        assert accounts.pagination.total == 21


def test_credit_of_a_stranger_is_not_found(chain, ask):
    request = billing_pb2.QueryCreditAccountRequest(tenant=chain.keys["admin"].address)
    answer = refused(ask, chain, f"{BILLING}/CreditAccount", request, billing_pb2.QueryCreditAccountResponse)
    assert answer == (grpc.StatusCode.NOT_FOUND, "credit account not found")
    request = billing_pb2.QueryCreditAccountRequest(tenant="cosmos1nope")
    answer = refused(ask, chain, f"{BILLING}/CreditAccount", request, billing_pb2.QueryCreditAccountResponse)
    assert answer == (grpc.StatusCode.INVALID_ARGUMENT, "invalid tenant address")


def test_the_provider_and_its_offers(chain, ask):
    request = sku_pb2.QueryProviderRequest(uuid=chain.provider_uuid)
    provider = ask(chain, "liftedinit.sku.v1.Query/Provider", request, sku_pb2.QueryProviderResponse).provider
    assert (provider.address, provider.active) == (chain.keys["provider"].address, True)
    request = sku_pb2.QuerySKUsByProviderRequest(provider_uuid=chain.provider_uuid)
    skus = ask(chain, "liftedinit.sku.v1.Query/SKUsByProvider", request, sku_pb2.QuerySKUsByProviderResponse).skus
    assert [sku.name for sku in skus] == ["docker-micro", "docker-small", "docker-medium", "docker-large"]
    request = sku_pb2.QuerySKURequest(uuid=UNKNOWN)
    answer = refused(ask, chain, "liftedinit.sku.v1.Query/SKU", request, sku_pb2.QuerySKUResponse)
    assert answer == (grpc.StatusCode.NOT_FOUND, "sku not found")


def test_an_account_shows_its_key_after_its_first_transaction(ask):
    with simulated.run() as chain:
        wallet = Wallet.of(chain, "provider")

        def read():
            request = auth_pb2.QueryAccountRequest(address=wallet.address)
            answer = ask(chain, "cosmos.auth.v1beta1.Query/Account", request, auth_pb2.QueryAccountResponse)
            assert answer.account.type_url == "/cosmos.auth.v1beta1.BaseAccount"
            return auth_pb2.BaseAccount.FromString(answer.account.value)

        assert (read().sequence, read().HasField("pub_key")) == (0, False)
        chain.broadcast(wallet.ack([chain.create_lease()]))
        chain.call(lambda: None)
        assert (read().sequence, read().HasField("pub_key")) == (1, True)


def test_balances_and_grants_of_nobody(chain, ask):
    request = bank_pb2.QueryBalanceRequest(address=chain.keys["provider-sub-2"].address, denom="umfx")
    answer = ask(chain, "cosmos.bank.v1beta1.Query/Balance", request, bank_pb2.QueryBalanceResponse)
    assert answer.balance.amount == "0"
    msg_type = "/liftedinit.billing.v1.MsgAcknowledgeLease"
    request = authz_pb2.QueryGrantsRequest(
        granter=chain.keys["provider"].address, grantee=chain.keys["t0"].address, msg_type_url=msg_type
    )
    code, text = refused(ask, chain, "cosmos.authz.v1beta1.Query/Grants", request, authz_pb2.QueryGrantsResponse)
    assert code == grpc.StatusCode.UNKNOWN
    assert text == (f"codespace authz code 2: authorization not found: authorization not found for {msg_type} type")


def test_the_latest_block_has_height_and_time(chain, ask):
    request = tendermint_pb2.GetLatestBlockRequest()
    method = "cosmos.base.tendermint.v1beta1.Service/GetLatestBlock"
    header = ask(chain, method, request, tendermint_pb2.GetLatestBlockResponse).sdk_block.header
    assert (header.chain_id, header.height) == ("manifest-localnet", chain.height)
    assert header.time.seconds * 10**9 + header.time.nanos == chain.time_ns
    assert header.time.nanos


def simulate(ask, chain, raw):
    return ask(chain, f"{TX}/Simulate", tx_pb2.SimulateRequest(tx_bytes=raw), tx_pb2.SimulateResponse)


def test_a_simulation_needs_no_signature_and_changes_nothing(chain, ask):
    wallet, lease = Wallet.of(chain, "provider"), chain.create_lease()
    raw = wallet.ack([lease], gas=200_000, signature=lambda _: b"")
    answer = simulate(ask, chain, raw)
    assert answer.gas_info.gas_wanted == 2**64 - 1
    assert answer.gas_info.gas_used == pytest.approx(110_000, rel=0.3)
    assert [event.type for event in answer.result.events][-1] == "lease_acknowledged"
    assert answer.result.msg_responses[0].type_url == "/liftedinit.billing.v1.MsgAcknowledgeLeaseResponse"
    assert abci_pb2.TxMsgData.FromString(answer.result.data).msg_responses[0] == answer.result.msg_responses[0]
    assert chain.state_of(lease) == 1
    checked = chain.broadcast(raw)
    assert (checked.codespace, checked.code) == ("sdk", 4)


def test_gas_grows_with_the_leases_of_an_acknowledgement(chain, ask):
    wallet, leases = Wallet.of(chain, "provider"), chain.create_leases(101)
    one = simulate(ask, chain, wallet.ack(leases[:1])).gas_info.gas_used
    hundred = simulate(ask, chain, wallet.ack(leases[1:])).gas_info.gas_used
    assert hundred - one == pytest.approx(99 * 62_100, rel=0.05)


def test_a_simulation_that_fails_says_why_and_where(chain, ask):
    """CH-33: the text carries the raw log, a source line and the gas."""
    wallet, lease = Wallet.of(chain, "provider"), chain.create_lease()
    chain.ack_leases([lease])
    with pytest.raises(grpc.RpcError) as caught:
        simulate(ask, chain, wallet.ack([lease]))
    assert caught.value.code() == grpc.StatusCode.UNKNOWN
    assert caught.value.details().startswith(
        f"failed to execute message; message index: 0: lease {lease} is not in PENDING state: "
        "lease not in pending state [cosmossdk.io/errors@v1.0.2/errors.go:155] with gas used: '"
    )
    with pytest.raises(grpc.RpcError) as caught:
        simulate(ask, chain, wallet.ack([lease], sequence=wallet.sequence + 5))
    expected = f"account sequence mismatch, expected {wallet.sequence}, got {wallet.sequence + 5}: "
    assert caught.value.details().startswith(expected + "incorrect account sequence [")


def broadcast(ask, chain, raw, mode=tx_pb2.BROADCAST_MODE_SYNC):
    request = tx_pb2.BroadcastTxRequest(tx_bytes=raw, mode=mode)
    return ask(chain, f"{TX}/BroadcastTx", request, tx_pb2.BroadcastTxResponse).tx_response


def get_tx(ask, chain, tx_hash):
    return ask(chain, f"{TX}/GetTx", tx_pb2.GetTxRequest(hash=tx_hash), tx_pb2.GetTxResponse)


def test_a_broadcast_is_found_by_its_hash(chain, ask):
    wallet, lease = Wallet.of(chain, "provider"), chain.create_lease()
    accepted = broadcast(ask, chain, wallet.ack([lease]))
    assert (accepted.code, accepted.height, accepted.raw_log) == (0, 0, "")
    answer = get_tx(ask, chain, accepted.txhash)
    assert (answer.tx_response.code, answer.tx_response.height) == (0, chain.height)
    assert answer.tx_response.data == answer.tx_response.data.upper()
    assert answer.tx_response.tx.type_url == "/cosmos.tx.v1beta1.Tx"
    assert answer.tx_response.events[-1].attributes[0].index
    assert get_tx(ask, chain, accepted.txhash.lower()).tx_response == answer.tx_response


@pytest.mark.parametrize(
    ("tx_hash", "code", "text"),
    [
        ("00" * 32, grpc.StatusCode.NOT_FOUND, "tx not found: " + "00" * 32),
        ("zz", grpc.StatusCode.UNKNOWN, "encoding/hex: invalid byte: U+007A 'z'"),
        ("00", grpc.StatusCode.INVALID_ARGUMENT, "The length of tx hash must be 64"),
    ],
)
def test_hashes_that_find_nothing(chain, ask, tx_hash, code, text):
    request = tx_pb2.GetTxRequest(hash=tx_hash)
    assert refused(ask, chain, f"{TX}/GetTx", request, tx_pb2.GetTxResponse) == (code, text)


def test_a_broadcast_mode_that_waits_is_refused(chain, ask):
    with pytest.raises(grpc.RpcError) as caught:
        broadcast(ask, chain, b"x", mode=tx_pb2.BROADCAST_MODE_BLOCK)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
