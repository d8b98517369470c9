"""The simulated chain against bytes and frames that other implementations made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from google.protobuf import descriptor_pool, json_format, message_factory
from websockets.sync.client import connect

from leases.chain.devchain.keys import PWR
from leases.chain.devchain.records import PENDING, Account, CreditAccount, Grant, Item, Lease, Provider
from leases.chain.proto import tx_pb2

VECTORS = json.loads((Path(__file__).parents[4] / "fixtures" / "vectors" / "chain.json").read_text())
ACK = "/liftedinit.billing.v1.MsgAcknowledgeLease"
NEWER = {"lease_with_unknown_field_16", "query_credit_account_response_newer_chain_page_1_empty"}


@pytest.mark.parametrize("entry", VECTORS["messages"], ids=lambda entry: entry["name"])
def test_every_message_goes_through_its_class_unchanged(entry):
    descriptor = descriptor_pool.Default().FindMessageTypeByName(entry["type"])
    message = message_factory.GetMessageClass(descriptor).FromString(bytes.fromhex(entry["hex"]))
    assert message.SerializeToString().hex() == entry["hex"]
    if entry["name"] not in NEWER:
        made = json_format.ParseDict(entry["json"], message_factory.GetMessageClass(descriptor)())
        assert made.SerializeToString().hex() == entry["hex"]


def place(chain, entry):
    """The account that signs, and the PENDING leases of its provider that the messages name."""
    state = chain.node.chain.state
    signer = entry["signer"]["address"] if isinstance(entry["signer"], dict) else entry["signer"]
    state.accounts[signer] = Account(signer, 7, int(entry["sequence"]))
    message = entry["messages"][0]["json"]
    inner = message["msgs"][0] if "msgs" in message else message
    provider = Provider("01902a9b-1234-7000-8000-000000000001", inner["sender"], inner["sender"], "https://p.example")
    state.providers[provider.uuid] = provider
    tenant = chain.keys["t0"].address
    uuids = inner["lease_uuids"]
    state.credits[tenant] = CreditAccount(tenant, tenant, pending=len(uuids))
    now = chain.node.chain.time
    for uuid in uuids:
        state.put_lease(Lease(uuid, tenant, provider.uuid, (Item("x", 1, PWR, 1),), PENDING, now, now, b"", 10))
    if signer != inner["sender"]:
        state.grants[inner["sender"], signer, ACK] = Grant(inner["sender"], signer, ACK)


@pytest.mark.parametrize("entry", VECTORS["simulate_txs"], ids=lambda entry: entry["name"])
def test_what_is_made_to_be_simulated_can_only_be_simulated(devchain, ask, entry):
    devchain.call(lambda: place(devchain, entry))
    raw = bytes.fromhex(entry["tx_bytes_hex"])
    request = tx_pb2.SimulateRequest.FromString(bytes.fromhex(entry["simulate_request_hex"]))
    assert request.tx_bytes == raw
    answer = ask(devchain, "cosmos.tx.v1beta1.Service/Simulate", request, tx_pb2.SimulateResponse)
    assert answer.gas_info.gas_used > 60_000
    checked = devchain.broadcast(raw)
    assert (checked.codespace, checked.code) == ("sdk", 4)


def test_recorded_subscriptions_are_confirmed_and_fed(devchain):
    websocket = VECTORS["websocket"]
    [case] = [case for case in websocket["parse_cases"] if case["name"] == "created"]
    uuid = "01902a9b-1234-7000-8000-000000000001"

    def rename():
        """Give the provider the uuid that the recorded queries ask for."""
        state = devchain.node.chain.state
        state.providers[uuid] = next(iter(state.providers.values()))._replace(uuid=uuid)
        for key, sku in list(state.skus.items()):
            state.skus[key] = sku._replace(provider_uuid=uuid)

    devchain.call(rename)
    with connect(devchain.websocket, max_size=None) as socket:
        for frame in websocket["subscribe_frames_go"]:
            socket.send(json.dumps(frame))
            assert json.loads(socket.recv(timeout=5)) == {**websocket["confirm_frame"], "id": frame["id"]}
        devchain.create_lease(tenant=devchain.keys["t0"].address)
        made = json.loads(socket.recv(timeout=5))
    want = case["frame"]
    assert made["result"].keys() == want["result"].keys()
    assert (made["id"], made["jsonrpc"], made["result"]["query"]) == (1, "2.0", want["result"]["query"])
    assert made["result"]["data"]["type"] == want["result"]["data"]["type"]
    assert want["result"]["events"].keys() <= made["result"]["events"].keys()
    value = made["result"]["data"]["value"]["TxResult"]
    assert value.keys() == want["result"]["data"]["value"]["TxResult"].keys() - {"index"}
    same = ("tm.event", "lease_created.provider_uuid", "lease_created.item_count", "lease_created.created_by")
    for name in (*same, "lease_created.total_rate_per_second", "lease_created.pending_lease_count"):
        assert made["result"]["events"][name] == want["result"]["events"][name]
