"""What the client reads of grants and blocks, against written answers."""

from __future__ import annotations

import grpc
import pytest

from leases.chain.errors import CallRefused, ChainUnavailable
from leases.chain.messages import ACKNOWLEDGE_TYPE
from leases.chain.proto import authz_pb2, tendermint_pb2
from tests.leases.chain import vectors
from tests.leases.chain.node import Refusal

GRANTS = "/cosmos.authz.v1beta1.Query/Grants"
BLOCK = "/cosmos.base.tendermint.v1beta1.Service/GetBlockByHeight"
MISSING = f"codespace authz code 2: authorization not found: authorization not found for {ACKNOWLEDGE_TYPE} type"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(authz_pb2.QueryGrantsResponse(grants=[authz_pb2.Grant()]), True, id="one grant"),
        pytest.param(authz_pb2.QueryGrantsResponse(), False, id="an empty list"),
        pytest.param(Refusal(grpc.StatusCode.UNKNOWN, MISSING), False, id="CH-67 the node's text for none"),
    ],
)
def test_a_grant_is_there_or_not(node, client, answer, expected):
    node.answers[GRANTS] = answer
    assert client.has_grant("a", "b", type_url=ACKNOWLEDGE_TYPE) is expected


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL])
def test_a_silent_node_says_nothing_of_a_grant(node, client, code):
    """CH-68"""
    node.answers[GRANTS] = Refusal(code, "store")
    with pytest.raises(ChainUnavailable, match="failed to query grant for a → b"):
        client.has_grant("a", "b", type_url=ACKNOWLEDGE_TYPE)


def test_a_block_has_a_time(node, client):
    said = tendermint_pb2.GetBlockByHeightResponse()
    said.sdk_block.header.height = 7
    said.sdk_block.header.time.seconds = 1_800_000_000
    node.answers[BLOCK] = said
    assert client.block_time(7).timestamp() == 1_800_000_000
    node.answers[BLOCK] = Refusal(grpc.StatusCode.INVALID_ARGUMENT, "requested block height is bigger")
    with pytest.raises(CallRefused):
        client.block_time(8)


def test_an_account_is_read_at_a_height(node, client):
    from leases.chain.proto import auth_pb2

    answer = auth_pb2.QueryAccountResponse()
    answer.account.Pack(
        auth_pb2.BaseAccount(address=vectors.PROVIDER, account_number=1, sequence=2), type_url_prefix="/"
    )
    node.answers["/cosmos.auth.v1beta1.Query/Account"] = answer
    assert client.account(vectors.PROVIDER).height == 39
