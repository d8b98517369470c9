from __future__ import annotations

from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leases.chain import messages
from leases.chain.client import Coin
from leases.chain.proto import authz_pb2, bank_pb2, billing_pb2
from leases.chain.proto import generate as protos
from tests.leases.chain import vectors


@pytest.mark.parametrize("vector", vectors.named("messages"))
def test_every_message_decodes_and_encodes(vector):
    """CH-13"""
    kind = vectors.message_class(vector["type"])
    raw = bytes.fromhex(vector["hex"])
    expected = vectors.from_json({**vector["json"], **vector.get("extra_json", {})}, kind())
    decoded = kind.FromString(raw)
    if "unknown_field" in vector["name"]:
        decoded.DiscardUnknownFields()
        assert decoded == expected
        assert raw.startswith(expected.SerializeToString(deterministic=True))
    else:
        assert decoded == expected
        assert expected.SerializeToString(deterministic=True) == raw


def test_the_checked_in_classes_are_those_of_the_definitions():
    assert protos.main(["--check"]) == 0


@pytest.mark.parametrize(
    ("number", "sizes"),
    [(0, []), (1, [1]), (100, [100]), (101, [100, 1]), (1000, [100] * 10)],
)
def test_a_message_holds_at_most_a_hundred_leases(number, sizes):
    """CH-60"""
    uuids = [uuid4() for _ in range(number)]
    packed = messages.acknowledge("p", uuids)
    parts = [list(billing_pb2.MsgAcknowledgeLease.FromString(message.value).lease_uuids) for message in packed]
    assert [len(part) for part in parts] == sizes
    assert [uuid for part in parts for uuid in part] == [str(uuid) for uuid in uuids]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        pytest.param("a" * 300, "a" * 253 + "...", id="CH-63 cut"),
        pytest.param("a" * 256, "a" * 256, id="CH-63 just fits"),
        pytest.param("", "", id="empty"),
    ],
)
def test_a_reason_fits_the_chain(reason, expected):
    assert messages.cut_reason(reason) == expected


@given(st.text(max_size=400))
def test_a_reason_is_cut_at_whole_characters(reason):
    """CH-63"""
    cut = messages.cut_reason(reason)
    assert len(cut.encode()) <= 256
    assert cut == reason or (cut.endswith("...") and reason.startswith(cut[:-3]))


def test_a_long_reason_of_wide_characters_keeps_as_much_as_fits():
    """CH-63"""
    cut = messages.cut_reason("é€" * 100)
    assert cut.endswith("...")
    assert 251 <= len(cut.encode()) <= 256


def test_every_message_of_a_sub_signer_stands_in_one_exec():
    uuids = [uuid4() for _ in range(250)]
    inner = messages.reject("p", uuids, reason="no room")
    outer = authz_pb2.MsgExec.FromString(messages.execute("sub", inner).value)
    assert [message.type_url for message in outer.msgs] == [messages.REJECT_TYPE] * 3


def test_coins_are_sent_in_the_order_the_chain_wants():
    packed = messages.send("a", "b", coins=[Coin("umfx", 1), Coin("factory/x", 2)])
    sent = bank_pb2.MsgSend.FromString(packed.value)
    assert [(coin.denom, coin.amount) for coin in sent.amount] == [("factory/x", "2"), ("umfx", "1")]


def test_a_right_is_taken_back_by_granter_grantee_and_type():
    packed = messages.revoke(vectors.PROVIDER, "manifest1sub", type_url=messages.CLOSE_TYPE)
    assert packed.type_url == "/cosmos.authz.v1beta1.MsgRevoke"
    taken = authz_pb2.MsgRevoke.FromString(packed.value)
    assert (taken.granter, taken.grantee, taken.msg_type_url) == (
        vectors.PROVIDER,
        "manifest1sub",
        messages.CLOSE_TYPE,
    )
