from __future__ import annotations

import grpc
import pytest

from leases.chain.channel import RETRIED
from leases.chain.client import Absent, Account, Coin, Doubt, ExactLease, Unknown
from leases.chain.errors import (
    AccountUnreadable,
    CallRefused,
    ChainUnavailable,
    GasUnknown,
)
from leases.chain.proto import abci_pb2, auth_pb2, billing_pb2, tx_pb2, vesting_pb2
from leases.status import LeaseState
from tests.leases.chain import vectors
from tests.leases.chain.node import (
    ACCOUNT,
    GET_TX,
    LATEST,
    LEASE,
    ONE_LEASE,
    OURS,
    SIMULATE,
    At,
    Refusal,
    block,
    lease_row,
    uuids,
)

NOT_FOUND = Refusal(grpc.StatusCode.NOT_FOUND, "lease not found")


@pytest.mark.parametrize(
    ("answer", "doubt"),
    [
        pytest.param(Refusal(grpc.StatusCode.UNAVAILABLE, "down"), Doubt.SILENT, id="CH-83 silence is no absence"),
        pytest.param(Refusal(grpc.StatusCode.INTERNAL, "store"), Doubt.SILENT, id="a fault is no absence"),
        pytest.param(Refusal(grpc.StatusCode.PERMISSION_DENIED, "proxy"), Doubt.SILENT, id="a refusing proxy"),
        pytest.param(Refusal(grpc.StatusCode.INVALID_ARGUMENT, "v7"), Doubt.UNREADABLE, id="a refused argument"),
        pytest.param(billing_pb2.QueryLeaseResponse(), Doubt.SILENT, id="an answer without a lease"),
        pytest.param(b"\xff\xff", Doubt.SILENT, id="an answer that is none"),
        pytest.param(
            At(billing_pb2.QueryLeaseResponse(lease=lease_row(uuid=str(LEASE))), None), Doubt.SILENT, id="no height"
        ),
        pytest.param(
            billing_pb2.QueryLeaseResponse(lease=lease_row(uuid=str(OURS))), Doubt.UNREADABLE, id="another lease"
        ),
        pytest.param(
            billing_pb2.QueryLeaseResponse(lease=lease_row(uuid=str(LEASE), provider_uuid=str(LEASE))),
            Doubt.FOREIGN,
            id="another provider's lease",
        ),
        pytest.param(
            billing_pb2.QueryLeaseResponse(lease=lease_row(uuid=str(LEASE), state=9)),
            Doubt.UNREADABLE,
            id="CH-147 a state nobody knows",
        ),
        pytest.param(
            billing_pb2.QueryLeaseResponse(lease=lease_row(uuid=str(LEASE), state=0)), Doubt.UNREADABLE, id="no state"
        ),
    ],
)
def test_doubt_is_never_a_fact(node, client, answer, doubt):
    node.answers[ONE_LEASE] = answer
    read = client.lease(LEASE)
    assert isinstance(read, Unknown)
    assert read.doubt is doubt
    assert read.reason
    assert read.state is (LeaseState.ACTIVE if doubt is Doubt.FOREIGN else None)


def test_absence_is_asked_twice_and_holds_the_height_between(node, client):
    node.answers[ONE_LEASE] = NOT_FOUND
    node.answers[LATEST] = block(70)
    assert client.lease(LEASE) == Absent(70)
    assert node.calls == {"Lease": 2, "GetLatestBlock": 1}


def test_a_lease_found_at_the_second_look_is_there(node, client):
    answers = iter([NOT_FOUND, billing_pb2.QueryLeaseResponse(lease=lease_row(uuid=str(LEASE)))])
    node.answers[ONE_LEASE] = lambda _: next(answers)
    assert isinstance(client.lease(LEASE), ExactLease)


def test_without_the_nodes_height_absence_is_unknown(node, client):
    node.answers[ONE_LEASE] = NOT_FOUND
    node.answers[LATEST] = Refusal(grpc.StatusCode.UNAVAILABLE)
    read = client.lease(LEASE)
    assert isinstance(read, Unknown)
    assert read.doubt is Doubt.SILENT


def test_many_leases_are_read_side_by_side(node, client):
    wanted = uuids(300)

    def answer(request):
        uuid = billing_pb2.QueryLeaseRequest.FromString(request).lease_uuid
        return NOT_FOUND if uuid == str(wanted[7]) else billing_pb2.QueryLeaseResponse(lease=lease_row(uuid=uuid))

    node.answers[ONE_LEASE] = answer
    read = client.leases([*wanted, wanted[0]])
    assert set(read) == set(wanted)
    assert read.pop(wanted[7]) == Absent(39)
    assert all(isinstance(value, ExactLease) and value.lease.uuid == uuid for uuid, value in read.items())
    assert node.calls["Lease"] == 301


def test_after_the_first_silence_nobody_is_asked(node, client):
    node.answers[ONE_LEASE] = Refusal(grpc.StatusCode.UNAVAILABLE, "down")
    read = client.leases(uuids(500))
    assert len(read) == 500
    assert {type(value) for value in read.values()} == {Unknown}
    assert node.calls["Lease"] == 64


def test_a_read_that_fails_among_answers_keeps_no_other_from_being_asked(node, client):
    wanted = uuids(200)

    def answer(request):
        uuid = billing_pb2.QueryLeaseRequest.FromString(request).lease_uuid
        if uuid == str(wanted[3]):
            return Refusal(grpc.StatusCode.INTERNAL, "broken row")
        return billing_pb2.QueryLeaseResponse(lease=lease_row(uuid=uuid))

    node.answers[ONE_LEASE] = answer
    read = client.leases(wanted)
    assert [uuid for uuid in wanted if isinstance(read[uuid], Unknown)] == [wanted[3]]


def _account(message):
    answer = auth_pb2.QueryAccountResponse()
    answer.account.Pack(message, "")
    return answer


BASE = auth_pb2.BaseAccount(address="a", account_number=7, sequence=3)
VESTING = vesting_pb2.BaseVestingAccount(base_account=BASE)


@pytest.mark.parametrize(
    "message",
    [
        BASE,
        auth_pb2.ModuleAccount(base_account=BASE, name="m"),
        VESTING,
        vesting_pb2.ContinuousVestingAccount(base_vesting_account=VESTING),
        vesting_pb2.DelayedVestingAccount(base_vesting_account=VESTING),
        vesting_pb2.PeriodicVestingAccount(base_vesting_account=VESTING),
        vesting_pb2.PermanentLockedAccount(base_vesting_account=VESTING),
    ],
    ids=lambda message: message.DESCRIPTOR.name,
)
def test_every_account_type_has_number_and_sequence(node, client, message):
    """CH-14"""
    node.answers[ACCOUNT] = _account(message)
    assert client.account("a") == Account("a", 7, 3)


def test_an_unrelated_account_type_is_unreadable(node, client):
    """CH-14"""
    node.answers[ACCOUNT] = _account(billing_pb2.Lease())
    with pytest.raises(AccountUnreadable, match="failed to unpack account: "):
        client.account("a")


def test_a_silent_node_has_no_account(node, client):
    node.answers[ACCOUNT] = Refusal(grpc.StatusCode.UNAVAILABLE)
    with pytest.raises(ChainUnavailable, match="failed to query account"):
        client.account("a")


def test_balance(node, client):
    said = vectors.entry("messages", "query_balance_response")
    node.answers["/cosmos.bank.v1beta1.Query/Balance"] = bytes.fromhex(said["hex"])
    assert Coin("umfx", client.balance("a", "umfx")).amount == int(said["json"]["balance"]["amount"])


# Transactions


def test_a_simulation_without_gas_is_no_estimate(node, client):
    """CH-26"""
    node.answers[SIMULATE] = tx_pb2.SimulateResponse()
    with pytest.raises(GasUnknown):
        client.simulate(b"x")


@pytest.mark.parametrize("code", list(grpc.StatusCode)[1:], ids=lambda code: code.name)
def test_every_status_says_whether_to_try_again(node, client, code):
    """CH-48"""
    node.answers[SIMULATE] = Refusal(code, "text")
    with pytest.raises((ChainUnavailable, CallRefused)) as raised:
        client.simulate(b"x")
    assert raised.value.code == code.name
    assert raised.value.retry is (code.name in RETRIED | {"CANCELLED"})
    assert len(RETRIED) == 6


def test_an_empty_broadcast_answer_leaves_it_open_whether_it_arrived(node, client):
    node.answers["/cosmos.tx.v1beta1.Service/BroadcastTx"] = tx_pb2.BroadcastTxResponse()
    with pytest.raises(ChainUnavailable):
        client.broadcast(b"x")


def test_a_transaction_is_absent_only_at_a_height(node, client):
    node.answers[GET_TX] = Refusal(grpc.StatusCode.NOT_FOUND, "tx not found: AB")
    assert client.tx("AB") == Absent(39)
    node.answers[LATEST] = Refusal(grpc.StatusCode.UNAVAILABLE)
    assert isinstance(client.tx("AB"), Unknown)


def test_a_transaction_indexed_between_two_looks_is_found(node, client):
    found = tx_pb2.GetTxResponse(tx_response=abci_pb2.TxResponse(height=40, txhash="AB", code=11, codespace="sdk"))
    answers = iter([Refusal(grpc.StatusCode.NOT_FOUND), found])
    node.answers[GET_TX] = lambda _: next(answers)
    read = client.tx("AB")
    assert (read.height, read.codespace, read.code, read.is_success) == (40, "sdk", 11, False)
