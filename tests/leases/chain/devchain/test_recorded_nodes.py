"""The simulated chain against recordings of real nodes of two generations."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from leases.chain import devchain as simulated
from leases.chain.devchain.responses import classes_of, decode_responses
from tests.leases.chain.devchain.likeness import differences
from tests.leases.chain.devchain.scenario import play

VECTORS = Path(__file__).parents[4] / "fixtures" / "vectors"
ALWAYS = {
    "Lease": ("created_at", "last_settled_at"),
    "LeaseItem": ("locked_price",),
    "SKU": ("base_price",),
    "QueryLeaseResponse": ("lease",),
    "QueryParamsResponse": ("params",),
    "QueryCreditAccountResponse": ("credit_account",),
    "QueryLeasesByProviderResponse": ("pagination",),
    "QueryLeasesByTenantResponse": ("pagination",),
    "QueryProviderResponse": ("provider",),
    "QuerySKUsByProviderResponse": ("pagination",),
    "QueryProviderByAddressResponse": ("pagination",),
    "QueryAccountResponse": ("account",),
    "QueryBalanceResponse": ("balance",),
    "BroadcastTxResponse": ("tx_response",),
    "GetTxResponse": ("tx", "tx_response"),
    "SimulateResponse": ("gas_info", "result"),
    "GetLatestBlockResponse": ("block_id", "block", "sdk_block"),
    "MsgFundCreditResponse": ("new_balance",),
    "MsgAcknowledgeLeaseResponse": ("acknowledged_at",),
    "MsgRejectLeaseResponse": ("rejected_at",),
    "MsgCancelLeaseResponse": ("cancelled_at",),
    "MsgCloseLeaseResponse": ("closed_at",),
}
"""Messages that a client in Go reads without asking whether they are there."""


@pytest.fixture(scope="module")
def played():
    """The scenario on this generation; played once for each."""
    runs = {}

    def run(profile):
        if profile not in runs:
            with simulated.run(fixture="scenario", block_mode="manual", profile=profile) as chain:
                runs[profile] = play(chain)
        return runs[profile]

    return run


@pytest.mark.parametrize(("profile", "name"), [("A", "node-a.json"), ("B", "node-b.json")])
def test_a_whole_scenario_is_answered_as_real_nodes_did(played, profile, name):
    """55 steps with everything they cause: checks, results, events, frames, answers."""
    recorded = json.loads((VECTORS / name).read_text())
    run = played(profile)
    assert len(run["steps"]) == len(recorded["steps"]) == 55
    assert differences(recorded, run) == []


def missing(message):
    """Required messages that are not there, in a message and all inside it."""
    kind = message.DESCRIPTOR.name
    found = [f"{kind}.{name}" for name in ALWAYS.get(kind, ()) if not message.HasField(name)]
    if kind == "Coin" and not message.amount:
        found.append("Coin.amount")
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.is_repeated else (value,):
                found += missing(part)
    return found


@pytest.mark.parametrize("profile", ["A", "B", "C"])
def test_no_answer_lacks_what_a_reader_takes_for_granted(played, profile):
    """CH-149"""
    run, seen = played(profile), set()
    for call in run["grpc"]:
        if "response" in call:
            answer = classes_of(call["method"])[1].FromString(bytes.fromhex(call["response"]))
            seen.add(answer.DESCRIPTOR.name)
            assert missing(answer) == [], call["method"]
    for step in run["steps"]:
        if "tx" in step:
            for answer in decode_responses(base64.b64decode(step["tx"]["tx_result"]["data"] or "")):
                seen.add(answer.DESCRIPTOR.name)
                assert missing(answer) == [], step["step"]
    assert ALWAYS.keys() - seen <= {"Lease", "LeaseItem", "SKU"}
