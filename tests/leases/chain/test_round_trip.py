"""Client, signer, RPC and stream together, against the simulated chain over its real ports."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from uuid import UUID

import pytest

from leases.chain import devchain, messages
from leases.chain.client import Absent, BlockHead, Coin, ExactLease, TxResult, Unknown
from leases.chain.codes import expected_sequence
from leases.chain.cosmos import CosmosClient
from leases.chain.errors import ChainUnavailable, ResultsNotYet
from leases.chain.events import EventType, Header
from leases.chain.gas import GasPolicy
from leases.chain.keys import SigningKey
from leases.chain.rpc import NodeRpc, base_url
from leases.chain.signer import GasSource, Role, Signer, WouldFail
from leases.chain.stream import HEADER_QUERY, ChainStream, Connected, LeaseEvents, Lost, event_queries
from leases.status import LeaseState
from tests.waiting import wait_until


@pytest.fixture
def chain():
    with devchain.run() as chain:
        yield chain


@pytest.fixture
def provider_uuid(chain):
    return UUID(chain.provider_uuid)


@pytest.fixture
def client(chain, provider_uuid):
    client = CosmosClient(chain.grpc, provider_uuid=provider_uuid)
    yield client
    client.close()


@pytest.fixture
def rpc(chain, provider_uuid):
    return NodeRpc(base_url(chain.websocket), provider_uuid=provider_uuid)


def _signer(chain, name="provider", *, role=Role.PROVIDER):
    return Signer(
        key=SigningKey.from_hex(chain.keys[name].private_key_hex),
        chain_id=chain.chain_id,
        provider_address=chain.keys["provider"].address,
        gas=GasPolicy(),
        role=role,
    )


def _send(client, signer, packed):
    """Estimate, sign, broadcast, and wait for the transaction."""
    estimate = signer.estimate(client, packed, account=client.account(signer.address))
    assert estimate.source is GasSource.SIMULATED
    timeout_height = client.latest_height().height + 20
    signed = signer.sign(packed, account=estimate.account, gas_limit=estimate.gas_limit, timeout_height=timeout_height)
    said = client.broadcast(signed.tx_bytes)
    assert said.is_accepted, said
    assert said.tx_hash == signed.tx_hash
    return wait_until(lambda: _included(client.tx(signed.tx_hash)))


def _included(read):
    return read if isinstance(read, TxResult) else None


def test_a_lease_is_created_and_acknowledged(chain, client, provider_uuid, rpc):
    """Tenant and provider, each with its own key, as on a real chain."""
    tenant = _signer(chain, "tenant")
    items = [(UUID(chain.sku_uuid), 1, "")]
    created = _send(client, tenant, [messages.create_lease(tenant.address, items, meta_hash=b"\x01" * 32)])
    assert created.is_success, created
    [page] = client.list_leases(provider_uuid, LeaseState.PENDING)
    [lease] = page.leases
    assert (lease.tenant, lease.state, lease.meta_hash) == (tenant.address, LeaseState.PENDING, b"\x01" * 32)
    assert page.height >= created.height

    provider = _signer(chain)
    acknowledged = _send(client, provider, messages.acknowledge(provider.address, [lease.uuid]))
    assert acknowledged.is_success, acknowledged
    read = client.lease(lease.uuid)
    assert isinstance(read, ExactLease)
    assert read.lease.state is LeaseState.ACTIVE
    assert read.lease.acknowledged_at > read.lease.created_at
    assert read.height >= acknowledged.height

    assert [event.type for event in rpc.block_events(created.height)] == [EventType.CREATED]
    [event] = rpc.block_events(acknowledged.height)
    assert (event.type, event.lease_uuid, event.provider_uuid) == (EventType.ACKNOWLEDGED, lease.uuid, provider_uuid)
    [found] = rpc.search(f"lease_acknowledged.provider_uuid='{provider_uuid}'")
    assert (found.tx_hash, found.height) == (acknowledged.tx_hash, acknowledged.height)


def test_reject_close_and_cancel(chain, client):
    provider = _signer(chain)
    to_reject, to_close, to_cancel = map(UUID, chain.create_leases(3, tenant=chain.keys["tenant"].address))
    assert _send(client, provider, messages.acknowledge(provider.address, [to_close])).is_success
    packed = messages.reject(provider.address, [to_reject], reason="x" * 300)
    packed += messages.close(provider.address, [to_close], reason="over")
    assert _send(client, provider, packed).is_success
    tenant = _signer(chain, "tenant")
    assert _send(client, tenant, messages.cancel(tenant.address, [to_cancel])).is_success
    read = client.leases([to_reject, to_close, to_cancel])
    states = [read[uuid].lease.state for uuid in (to_reject, to_close, to_cancel)]
    assert states == [LeaseState.REJECTED, LeaseState.CLOSED, LeaseState.REJECTED]
    assert read[to_reject].lease.rejection_reason == "x" * 253 + "..."
    assert read[to_close].lease.closure_reason == "over"
    assert all(value.lease.is_terminal for value in read.values())


def test_a_thousand_leases_are_acknowledged_in_one_transaction(chain, client):
    """CH-60"""
    chain.change_params(max_pending_leases_per_tenant=1000)
    uuids = [UUID(text) for text in chain.create_leases(1000)]
    provider = _signer(chain)
    included = _send(client, provider, messages.acknowledge(provider.address, uuids))
    assert included.is_success, included
    reads = client.leases(uuids)
    assert len(reads) == 1000
    assert {read.lease.state for read in reads.values()} == {LeaseState.ACTIVE}


def test_a_sub_signer_acknowledges_in_the_providers_name(chain, client):
    """CH-62"""
    provider, sub = _signer(chain), _signer(chain, "provider-sub-1", role=Role.SUB_SIGNER)
    grants = [messages.grant(provider.address, sub.address, type_url=kind) for kind in messages.DELEGATED_TYPES]
    money = messages.send(provider.address, sub.address, coins=[Coin("umfx", 10**7)])
    assert _send(client, provider, [*grants, money]).is_success
    assert client.balance(sub.address, "umfx") >= 10**7
    lease = UUID(chain.create_lease())
    included = _send(client, sub, sub.in_providers_name(messages.acknowledge(sub.provider_address, [lease])))
    assert included.is_success, included
    assert client.lease(lease).lease.state is LeaseState.ACTIVE


def test_a_lease_that_moved_on_is_found_out_without_a_fee(chain, client):
    """CH-33"""
    provider = _signer(chain)
    lease = UUID(chain.create_lease())
    chain.cancel_lease(str(lease))
    before = client.balance(provider.address, "umfx")
    account = client.account(provider.address)
    with pytest.raises(WouldFail) as raised:
        provider.estimate(client, messages.acknowledge(provider.address, [lease]), account=account)
    assert (raised.value.failure.codespace, raised.value.failure.code) == ("billing", 22)
    assert client.balance(provider.address, "umfx") == before


def test_a_wrong_sequence_names_the_right_one(chain, client):
    """CH-34"""
    provider = _signer(chain)
    chain_account = client.account(provider.address)
    behind = type(chain_account)(chain_account.address, chain_account.number, chain_account.sequence + 5)
    packed = messages.acknowledge(provider.address, [UUID(chain.create_lease())])
    said = client.broadcast(provider.sign(packed, account=behind, gas_limit=300_000).tx_bytes)
    assert (said.codespace, said.code) == ("sdk", 32)
    assert expected_sequence(said.codespace, said.code, said.raw_log) == chain_account.sequence


def test_the_same_bytes_again_are_recognised(chain, client):
    provider = _signer(chain)
    packed = messages.acknowledge(provider.address, [UUID(chain.create_lease())])
    signed = provider.sign(packed, account=client.account(provider.address), gas_limit=300_000)
    assert client.broadcast(signed.tx_bytes).is_accepted
    again = client.broadcast(signed.tx_bytes)
    assert (again.codespace, again.code, again.tx_hash) == ("sdk", 19, signed.tx_hash)


def test_what_is_absent_is_absent_at_the_height_of_the_chain(chain, client):
    read = client.lease(UUID(chain.provider_uuid))
    assert isinstance(read, Absent)
    assert read.height == chain.height
    assert isinstance(client.tx("0" * 64), Absent)


def test_an_empty_chain_answers_with_low_heights(chain, client):
    lease = UUID(chain.create_lease())
    chain.produce_block(count=10)
    before = client.lease(lease).height
    chain.reset()
    read = client.lease(lease)
    assert isinstance(read, Absent)
    assert read.height < before


def test_an_erring_node_gives_doubt_only(chain, client, provider_uuid):
    lease = UUID(chain.create_lease())
    with chain.fault("grpc_error", where="*", code="UNAVAILABLE", text="down"):
        assert isinstance(client.lease(lease), Unknown)
        with pytest.raises(ChainUnavailable):
            list(client.list_leases(provider_uuid))
        with pytest.raises(ChainUnavailable):
            client.latest_height()
    assert isinstance(client.lease(lease), ExactLease)


def test_head_status_and_registration(chain, client, provider_uuid, rpc):
    head = client.latest_height()
    assert head == BlockHead(chain.height, head.time, chain.chain_id)
    status = rpc.status()
    assert (status.chain_id, status.height, status.is_catching_up) == (chain.chain_id, chain.height, False)
    assert not client.is_syncing()
    provider = client.provider(provider_uuid)
    assert (provider.address, provider.is_active) == (chain.keys["provider"].address, True)
    assert isinstance(client.provider(UUID(int=7)), Absent)


def test_results_above_the_tip_are_not_there_yet(chain, rpc):
    with pytest.raises(ResultsNotYet):
        rpc.block_events(chain.height + 5)


def test_a_silent_rpc_is_unavailable(provider_uuid):
    with pytest.raises(ChainUnavailable):
        NodeRpc("http://127.0.0.1:9/", provider_uuid=provider_uuid).status()


def _follow(chain, provider_uuid, queries, *, act, until):
    """Follow a stream; once connected, act in a thread; return all items when `until` is content with them."""

    async def sleep(_):
        return

    async def main():
        stream = ChainStream(chain.websocket, queries=queries, provider_uuid=provider_uuid, sleep=sleep)
        items, work = [], None
        async with asyncio.timeout(60), aclosing(stream.items()) as arriving:
            async for item in arriving:
                items.append(item)
                if isinstance(item, Connected) and work is None:
                    work = asyncio.create_task(asyncio.to_thread(act))
                if until(items):
                    break
        await work
        return items

    return asyncio.run(main())


def test_the_stream_tells_of_every_end_of_a_lease(chain, provider_uuid):
    """CH-98"""
    made = []

    def act():
        made.extend(chain.create_leases(4, tenant=chain.keys["tenant"].address))
        chain.ack_leases([made[0]])
        chain.close_lease(made[0], reason="enough")
        chain.cancel_lease(made[1])
        chain.expire_lease(made[2])

    def events(items):
        return [event for item in items if isinstance(item, LeaseEvents) for event in item.events]

    items = _follow(chain, provider_uuid, event_queries(provider_uuid), act=act, until=lambda i: len(events(i)) == 7)
    told = {(event.type, str(event.lease_uuid)) for event in events(items)}
    assert told == {
        *((EventType.CREATED, uuid) for uuid in made),
        (EventType.CLOSED, made[0]),
        (EventType.CANCELLED, made[1]),
        (EventType.EXPIRED, made[2]),
    }
    assert all(event.height > 0 and event.provider_uuid == provider_uuid for event in events(items))


def test_headers_arrive_one_by_one(chain, provider_uuid):
    def headers(items):
        return [item for item in items if isinstance(item, Header)]

    items = _follow(
        chain,
        provider_uuid,
        (HEADER_QUERY,),
        act=lambda: chain.produce_block(count=5),
        until=lambda i: len(headers(i)) == 5,
    )
    heights = [header.height for header in headers(items)]
    assert heights == list(range(chain.height - 4, chain.height + 1))
    assert {header.chain_id for header in headers(items)} == {chain.chain_id}


def test_a_closed_stream_comes_back(chain, provider_uuid):
    def connections(items):
        return sum(isinstance(item, Connected) for item in items)

    items = _follow(
        chain,
        provider_uuid,
        event_queries(provider_uuid),
        act=lambda: chain.add_fault("ws_close", where="ws", times=1),
        until=lambda i: connections(i) == 2,
    )
    assert any(isinstance(item, Lost) and item.reason == "closed" for item in items)
