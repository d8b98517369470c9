from __future__ import annotations

from uuid import UUID

import grpc
import pytest

from leases.chain import messages
from leases.chain.client import Account
from leases.chain.codes import Verdict
from leases.chain.errors import AccountAbsent, GasTooHigh
from leases.chain.gas import GasPolicy
from leases.chain.proto import auth_pb2, tx_pb2
from leases.chain.signer import GasSource, Role, Signer, WouldFail
from tests.leases.chain import vectors
from tests.leases.chain.node import ACCOUNT, LEASE, SIMULATE, Refusal

KEY = vectors.key("devnet_provider/0")
PLACE = " [x/errors.go:155] with gas used: '37098'"
NOT_PENDING = (
    f"failed to execute message; message index: 0: lease {LEASE} is not in PENDING state: lease not in pending state"
)
MISMATCH = "account sequence mismatch, expected 8, got 7: incorrect account sequence"
ACCOUNT_7 = Account(vectors.PROVIDER, 1, 7)


def _signer(**gas):
    policy = GasPolicy(**{"gas_limit": 200_000, **gas})
    return Signer(key=KEY, chain_id="c", provider_address=vectors.PROVIDER, gas=policy)


def _acknowledgement():
    return messages.acknowledge(vectors.PROVIDER, [LEASE])


def _used(gas):
    answer = tx_pb2.SimulateResponse()
    answer.gas_info.gas_used = gas
    return answer


def _refused(text):
    return Refusal(grpc.StatusCode.UNKNOWN, text + PLACE)


def _sequence_of(request):
    raw = tx_pb2.TxRaw.FromString(tx_pb2.SimulateRequest.FromString(request).tx_bytes)
    return tx_pb2.AuthInfo.FromString(raw.auth_info_bytes).signer_infos[0].sequence


def test_an_estimate_is_what_the_node_used_adjusted(node, client):
    """CH-21"""
    node.answers[SIMULATE] = _used(200_000)
    estimate = _signer().estimate(client, _acknowledgement(), account=ACCOUNT_7)
    assert (estimate.gas_limit, estimate.source, estimate.account) == (240_000, GasSource.SIMULATED, ACCOUNT_7)
    assert node.calls == {"Simulate": 1}


def test_an_estimate_above_the_cap_is_an_error(node, client):
    """CH-22"""
    node.answers[SIMULATE] = _used(260_000)
    with pytest.raises(GasTooHigh, match="estimated gas 312000 exceeds max_gas_limit 300000"):
        _signer(max_gas_limit=300_000).estimate(client, _acknowledgement(), account=ACCOUNT_7)


@pytest.mark.parametrize(
    ("answer", "cap", "expected"),
    [
        pytest.param(Refusal(grpc.StatusCode.UNAVAILABLE), 0, 240_000, id="CH-24"),
        pytest.param(Refusal(grpc.StatusCode.UNAVAILABLE), 210_000, 210_000, id="CH-25"),
        pytest.param(tx_pb2.SimulateResponse(), 0, 240_000, id="CH-26"),
        pytest.param(_refused("something entirely new"), 0, 240_000, id="an unknown text is not final"),
        pytest.param(Refusal(grpc.StatusCode.INVALID_ARGUMENT), 0, 240_000, id="a refused call"),
    ],
)
def test_without_an_estimate_the_fallback_is_used(node, client, answer, cap, expected):
    node.answers[SIMULATE] = answer
    estimate = _signer(max_gas_limit=cap).estimate(client, _acknowledgement(), account=ACCOUNT_7)
    assert (estimate.gas_limit, estimate.source) == (expected, GasSource.FALLBACK)
    assert estimate.error


def test_a_transaction_that_would_fail_is_not_sent(node, client):
    """CH-33"""
    node.answers[SIMULATE] = _refused(NOT_PENDING)
    with pytest.raises(WouldFail) as raised:
        _signer().estimate(client, _acknowledgement(), account=ACCOUNT_7)
    failure = raised.value.failure
    assert (failure.codespace, failure.code, failure.verdict) == ("billing", 22, Verdict.FINISHED)
    assert str(raised.value) == NOT_PENDING


def test_a_wrong_sequence_is_read_again_once(node, client):
    node.answers[SIMULATE] = lambda request: _used(100_000) if _sequence_of(request) == 8 else _refused(MISMATCH)
    answer = auth_pb2.QueryAccountResponse()
    answer.account.Pack(auth_pb2.BaseAccount(address=vectors.PROVIDER, account_number=1, sequence=8), "")
    node.answers[ACCOUNT] = answer
    estimate = _signer().estimate(client, _acknowledgement(), account=ACCOUNT_7)
    assert estimate.account.sequence == 8
    assert estimate.source is GasSource.SIMULATED
    assert node.calls == {"Simulate": 2, "Account": 1}


def test_a_sequence_that_stays_wrong_gives_the_fallback(node, client):
    node.answers[SIMULATE] = _refused(MISMATCH)
    answer = auth_pb2.QueryAccountResponse()
    answer.account.Pack(auth_pb2.BaseAccount(account_number=1, sequence=7), "")
    node.answers[ACCOUNT] = answer
    estimate = _signer().estimate(client, _acknowledgement(), account=ACCOUNT_7)
    assert estimate.source is GasSource.FALLBACK
    assert node.calls == {"Simulate": 2, "Account": 1}


def test_an_account_that_is_gone_meanwhile_is_said(node, client):
    node.answers[SIMULATE] = _refused(MISMATCH)
    node.answers[ACCOUNT] = Refusal(grpc.StatusCode.NOT_FOUND)
    with pytest.raises(AccountAbsent):
        _signer().estimate(client, _acknowledgement(), account=ACCOUNT_7)


def test_a_chosen_gas_limit_is_not_multiplied_again():
    """CH-12"""
    signed = _signer().sign(_acknowledgement(), account=ACCOUNT_7, gas_limit=123_456)
    info = tx_pb2.AuthInfo.FromString(tx_pb2.TxRaw.FromString(signed.tx_bytes).auth_info_bytes)
    assert info.fee.gas_limit == signed.gas_limit == 123_456
    assert (info.fee.amount[0].denom, info.fee.amount[0].amount) == ("umfx", str(signed.fee.amount))
    assert signed.fee.amount == 4


def test_a_provider_sends_plainly_a_sub_signer_wraps():
    """CH-62"""
    packed = messages.acknowledge(vectors.PROVIDER, [UUID(int=n) for n in range(250)])
    provider = _signer()
    assert provider.in_providers_name(packed) == packed
    sub_signer = Signer(
        key=vectors.key("devnet_provider/1"),
        chain_id="c",
        provider_address=vectors.PROVIDER,
        role=Role.SUB_SIGNER,
    )
    assert [message.type_url for message in sub_signer.in_providers_name(packed)] == ["/cosmos.authz.v1beta1.MsgExec"]
    assert sub_signer.in_providers_name([]) == []


def test_a_fee_is_paid_even_where_gas_is_free():
    """CH-10"""
    assert _signer(gas_price=0).sign(_acknowledgement(), account=ACCOUNT_7, gas_limit=100).fee.amount == 1
