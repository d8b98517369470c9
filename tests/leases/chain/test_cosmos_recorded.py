from __future__ import annotations

import datetime as dt
from uuid import UUID

import grpc
import pytest

from leases.chain.client import Absent, ExactLease, Provider, TxResult
from leases.chain.cosmos import CosmosClient
from leases.chain.errors import (
    AccountAbsent,
    SimulationRefused,
)
from leases.chain.proto import auth_pb2, tx_pb2
from leases.status import LeaseState
from tests.leases.chain import vectors
from tests.leases.chain.node import (
    ACCOUNT,
    OURS,
    SIMULATE,
    Node,
    Refusal,
    running,
)


@pytest.fixture(scope="module")
def recorded():
    """A node that answers what a real one answered, each request byte for byte."""
    calls = vectors.recording()["grpc"]
    node = Node()

    def answer_to(method):
        known = {
            call["request"]: bytes.fromhex(call["response"])
            if "response" in call
            else Refusal(grpc.StatusCode[call["code"]], call["details"])
            for call in calls
            if call["method"] == method
        }
        return lambda request: known.get(request.hex(), Refusal(grpc.StatusCode.DATA_LOSS, "never recorded"))

    node.answers = {call["method"]: answer_to(call["method"]) for call in calls}
    provider = UUID(vectors.recording()["ids"]["provider"])
    with running(node) as node:
        client = CosmosClient(node.endpoint, provider_uuid=provider, page_limit=2)
        yield client
        client.close()


def test_a_recorded_lease_is_read_exactly(recorded):
    ids = vectors.recording()["ids"]
    read = recorded.lease(UUID(ids["leases"][0]))
    assert isinstance(read, ExactLease)
    assert read.height == 39
    lease = read.lease
    assert lease.state is LeaseState.ACTIVE
    assert (lease.uuid, lease.provider_uuid) == (UUID(ids["leases"][0]), UUID(ids["provider"]))
    assert lease.items[0].sku_uuid == UUID(ids["sku"])
    assert (lease.items[0].quantity, lease.items[0].locked_price.amount) == (1, 1)
    assert lease.acknowledged_at > lease.created_at
    assert lease.acknowledged_at.tzinfo is dt.UTC
    assert lease.closed_at is None
    assert not lease.is_terminal


def test_a_recorded_absence_is_an_absence_at_the_nodes_height(recorded):
    """CH-83"""
    assert recorded.lease(OURS) == Absent(39)


def test_a_recorded_node_tells_its_newestblock(recorded):
    head = recorded.latest_height()
    assert (head.height, head.chain_id) == (39, "manifest-ledger-beta")
    assert head.time.tzinfo is dt.UTC


def test_recorded_accounts(recorded):
    found = [call for call in vectors.recording()["grpc"] if call["method"] == ACCOUNT]
    for call in found:
        address = auth_pb2.QueryAccountRequest.FromString(bytes.fromhex(call["request"])).address
        if "response" in call:
            assert recorded.account(address).address == address
        else:
            with pytest.raises(AccountAbsent, match="not found"):
                recorded.account(address)


def test_recorded_transactions(recorded):
    assert recorded.tx("0" * 64) == Absent(39)
    hashes_ = [
        tx_pb2.GetTxRequest.FromString(bytes.fromhex(call["request"])).hash
        for call in vectors.recording()["grpc"]
        if call["method"].endswith("/GetTx") and "response" in call
    ]
    read = recorded.tx(hashes_[0])
    assert isinstance(read, TxResult)
    assert read.tx_hash == hashes_[0]
    assert read.height > 0


def test_recorded_simulations(recorded):
    outcomes = []
    for call in vectors.recording()["grpc"]:
        if call["method"] != SIMULATE:
            continue
        tx_bytes = tx_pb2.SimulateRequest.FromString(bytes.fromhex(call["request"])).tx_bytes
        try:
            outcomes.append(recorded.simulate(tx_bytes))
        except SimulationRefused as refused:
            outcomes.append(refused.text)
    assert outcomes[0] > 50_000
    assert outcomes[1].endswith("is not in PENDING state: lease not in pending state")
    assert outcomes[2].endswith("invalid format: nope: invalid lease")
    assert outcomes[3].startswith("account sequence mismatch, expected 11, got 0")


def test_the_recorded_provider(recorded):
    provider = recorded.provider(UUID(vectors.recording()["ids"]["provider"]))
    assert isinstance(provider, Provider)
    assert provider.is_active
    assert provider.address.startswith("manifest1")


def test_a_recorded_broadcast(recorded):
    [call] = [call for call in vectors.recording()["grpc"] if call["method"].endswith("/BroadcastTx")]
    tx_bytes = tx_pb2.BroadcastTxRequest.FromString(bytes.fromhex(call["request"])).tx_bytes
    said = recorded.broadcast(tx_bytes)
    assert (said.codespace, said.code) == ("sdk", 32)
    assert not said.is_accepted
    assert len(said.tx_hash) == 64
