"""The RPC of CometBFT over HTTP, the REST gateway, and the admin API."""

from __future__ import annotations

import base64
import json
from urllib import error, request
from urllib.parse import quote

import pytest

from leases.chain.proto import billing_pb2
from tests.devchain_fixture import Wallet


def http(url, body=None, method=None):
    data = None if body is None else json.dumps(body).encode()
    try:
        with request.urlopen(request.Request(url, data, method=method), timeout=10) as answer:
            return answer.status, json.load(answer)
    except error.HTTPError as refused:
        return refused.code, json.load(refused)


def rpc(chain, name, **params):
    status, answer = http(chain.rpc, {"jsonrpc": "2.0", "id": 1, "method": name, "params": params})
    assert status == 200
    return answer


def admin(chain, method, path, body=None):
    return http(f"{chain.admin}/admin/{path}", body, method)


# --- RPC ---------------------------------------------------------------------


def test_status_names_chain_and_height(devchain):
    result = rpc(devchain, "status")["result"]
    assert result["node_info"]["network"] == "manifest-localnet"
    assert result["sync_info"]["latest_block_height"] == str(devchain.height)
    assert result["sync_info"]["catching_up"] is False


def test_block_results_by_uri_hold_transactions_and_block_events(devchain):
    uuid = devchain.create_lease()
    status, answer = http(f"{devchain.rpc}/block_results?height={devchain.height}")
    assert (status, answer["result"]["height"]) == (200, str(devchain.height))
    [result] = answer["result"]["txs_results"]
    assert result["events"][-1]["type"] == "lease_created"
    assert result["events"][-1]["attributes"][0] == {"key": "lease_uuid", "value": uuid, "index": True}
    devchain.expire_lease(uuid)
    results = rpc(devchain, "block_results", height=str(devchain.height))["result"]
    assert results["txs_results"] is None
    assert results["finalize_block_events"][-1]["type"] == "lease_expired"


def test_a_height_above_the_tip_is_an_error_over_http_200(devchain):
    text = f"height 999999 must be less than or equal to the current blockchain height {devchain.height}"
    error_member = {"code": -32603, "message": "Internal error", "data": text}
    assert rpc(devchain, "block_results", height=999999)["error"] == error_member


def test_old_blocks_and_their_transactions_are_forgotten(devchain):
    devchain.create_lease()
    devchain.node.chain.kept_blocks = 5
    tip = devchain.produce_block(count=10)
    assert devchain.txs() == []
    text = f"height 1 is not available, lowest height is {tip - 4}"
    assert rpc(devchain, "block_results", height="1")["error"]["data"] == text
    assert rpc(devchain, "block_results", height=str(tip - 4))["result"]["height"] == str(tip - 4)
    assert rpc(devchain, "status")["result"]["sync_info"]["earliest_block_height"] == str(tip - 4)


def test_header_and_block_agree(devchain):
    header = rpc(devchain, "header", height=str(devchain.height))["result"]["header"]
    block = rpc(devchain, "block", height=str(devchain.height))["result"]
    assert block["block"]["header"] == header
    assert header["height"] == str(devchain.height)
    before = rpc(devchain, "block", height=str(devchain.height - 1))["result"]
    assert before["block_id"]["hash"] == header["last_block_id"]["hash"]


def test_broadcast_search_and_read_a_transaction(devchain):
    wallet, lease = Wallet.of(devchain, "provider"), devchain.create_lease()
    raw = base64.b64encode(wallet.ack([lease])).decode()
    accepted = rpc(devchain, "broadcast_tx_sync", tx=raw)["result"]
    assert accepted == {"code": 0, "data": "", "log": "", "codespace": "", "hash": accepted["hash"]}
    again = rpc(devchain, "broadcast_tx_sync", tx=raw)["error"]
    assert again == {"code": -32603, "message": "Internal error", "data": "tx already exists in cache"}
    found = rpc(devchain, "tx", hash=base64.b64encode(bytes.fromhex(accepted["hash"])).decode())["result"]
    assert (found["hash"], found["tx"], found["index"]) == (accepted["hash"], raw, 0)
    query = f"lease_acknowledged.lease_uuid='{lease}'"
    for answer in (
        rpc(devchain, "tx_search", query=query, per_page="2", page="1", order_by="asc"),
        http(f"{devchain.rpc}/tx_search?query={quote(json.dumps(query))}&per_page=100&page=1")[1],
    ):
        assert answer["result"]["total_count"] == "1"
        assert answer["result"]["txs"][0]["hash"] == accepted["hash"]
    assert "error" in rpc(devchain, "tx", hash=base64.b64encode(bytes(32)).decode())


def test_broadcast_commit_answers_with_the_result(devchain):
    raw = Wallet.of(devchain, "provider").ack([devchain.create_lease()])
    result = rpc(devchain, "broadcast_tx_commit", tx=base64.b64encode(raw).decode())["result"]
    assert (result["check_tx"]["code"], result["tx_result"]["code"]) == (0, 0)
    assert result["height"] == str(devchain.height)


def test_abci_queries_answer_like_grpc(devchain):
    path = "/liftedinit.billing.v1.Query/Lease"
    uuid = devchain.create_lease()
    data = billing_pb2.QueryLeaseRequest(lease_uuid=uuid).SerializeToString().hex()
    response = rpc(devchain, "abci_query", path=path, data=data)["result"]["response"]
    lease = billing_pb2.QueryLeaseResponse.FromString(base64.b64decode(response["value"])).lease
    assert (lease.uuid, response["code"]) == (uuid, 0)
    missing = billing_pb2.QueryLeaseRequest(lease_uuid="nope").SerializeToString().hex()
    response = rpc(devchain, "abci_query", path=path, data=missing)["result"]["response"]
    assert response["code"] == 22
    assert response["log"] == "rpc error: code = NotFound desc = lease not found: key not found"


def test_unknown_methods_and_broken_calls(devchain):
    assert rpc(devchain, "nothing")["error"]["code"] == -32601
    with pytest.raises(error.HTTPError) as caught:
        request.urlopen(request.Request(devchain.rpc, b"not json"), timeout=5)
    with caught.value as answer:
        assert json.load(answer)["error"]["code"] == -32700


def test_rpc_can_err_and_be_silent(devchain):
    with devchain.fault("rpc_error", where="rpc:block_results", text="could not find results for height #9"):
        assert rpc(devchain, "block_results", height="1")["error"]["data"] == "could not find results for height #9"
        assert "result" in rpc(devchain, "status")


# --- REST --------------------------------------------------------------------


def test_accounts_and_leases_in_chain_json(devchain):
    address = devchain.keys["t0"].address
    status, answer = http(f"{devchain.rest}/cosmos/auth/v1beta1/accounts/{address}")
    assert (status, answer["account"]["@type"]) == (200, "/cosmos.auth.v1beta1.BaseAccount")
    assert answer["account"]["sequence"] == "0"
    uuid = devchain.create_lease()
    _, answer = http(f"{devchain.rest}/liftedinit/billing/v1/lease/{uuid}")
    assert answer["lease"]["state"] == "LEASE_STATE_PENDING"
    listing = f"{devchain.rest}/liftedinit/billing/v1/leases/provider/{devchain.provider_uuid}"
    _, answer = http(f"{listing}?pagination.limit=1&state_filter=1&pagination.count_total=true")
    assert [lease["uuid"] for lease in answer["leases"]] == [uuid]
    assert answer["pagination"]["total"] == "1"
    _, answer = http(f"{listing}?state_filter=LEASE_STATE_ACTIVE")
    assert answer["leases"] == []


def test_rest_errors_carry_grpc_codes(devchain):
    url = f"{devchain.rest}/liftedinit/billing/v1/lease/01902a9b-1234-7000-8000-000000000001"
    assert http(url) == (404, {"code": 5, "message": "lease not found", "details": []})
    assert http(f"{devchain.rest}/nothing")[0] == 501


# --- admin -------------------------------------------------------------------


def test_the_info_is_all_a_program_needs(devchain):
    status, info = admin(devchain, "GET", "info")
    assert status == 200
    assert (info["grpc"], info["provider_uuid"]) == (devchain.grpc, devchain.provider_uuid)
    assert info["skus"]["docker-micro"] == devchain.sku_uuid
    _, keys = admin(devchain, "GET", "keys")
    assert keys["provider"]["address"] == "manifest1hj5fveer5cjtn4wd6wstzugjfdxzl0xp8ws9ct"
    assert keys["provider-sub-1"]["address"] == "manifest1clecd57x2ggpk63nxz05wadjpepf7rzly45h6y"


def test_a_lease_lives_and_ends_by_admin_calls(devchain):
    _, answer = admin(devchain, "POST", "lease", {"count": 3, "sku": "docker-small", "payload": "hello"})
    first, second, third = answer["lease_uuids"]
    assert devchain.lease(first).meta_hash.hex().startswith("2cf24dba5fb0a30e")
    assert admin(devchain, "POST", f"lease/{first}/ack", {})[0] == 200
    status, answer = admin(devchain, "POST", f"lease/{first}/ack", {})
    assert (status, answer["codespace"], answer["code"]) == (422, "billing", 22)
    assert admin(devchain, "POST", f"lease/{first}/close", {"reason": "done"})[0] == 200
    assert admin(devchain, "POST", "leases/reject", {"lease_uuids": [second], "reason": "full"})[0] == 200
    assert admin(devchain, "POST", f"lease/{third}/expire", {})[0] == 200
    admin(devchain, "POST", "blocks", {"count": 1})
    assert [devchain.state_of(uuid) for uuid in (first, second, third)] == [3, 4, 5]
    assert admin(devchain, "GET", f"lease/{first}")[1]["closure_reason"] == "done"
    assert admin(devchain, "POST", f"lease/{first}/state", {"state": 9})[0] == 200
    assert devchain.state_of(first) == 9


def test_market_money_and_parameters(devchain):
    address = devchain.keys["admin"].address
    _, made = admin(devchain, "POST", "provider", {"address": address, "api_url": "https://two.example"})
    price = {"denom": "umfx", "amount": "3600"}
    sku = {"provider_uuid": made["uuid"], "name": "small", "unit": 1, "base_price": price}
    _, offered = admin(devchain, "POST", "sku", sku)
    assert devchain.skus()["small"] == offered["uuid"]
    coins = [{"denom": "umfx", "amount": "50000000"}]
    assert admin(devchain, "POST", "credit", {"tenant": devchain.keys["t0"].address, "coins": coins})[0] == 200
    assert admin(devchain, "POST", "params", {"pending_timeout": 60})[1]["pending_timeout"] == 60
    status, answer = admin(devchain, "POST", "credit/drain", {"tenant": devchain.keys["t0"].address, "all": True})
    assert (status, answer) == (200, {})
    status, answer = admin(devchain, "POST", "lease", {"tenant": devchain.keys["t0"].address, "sku": "small"})
    assert (status, answer["code"]) == (422, 4)


def test_faults_modes_and_records_over_http(devchain):
    _, rule = admin(devchain, "POST", "faults", {"effect": "grpc_error", "where": "*", "code": "UNAVAILABLE"})
    assert admin(devchain, "GET", "faults")[1] == [rule]
    assert admin(devchain, "DELETE", f"faults/{rule['id']}")[0] == 200
    assert admin(devchain, "DELETE", f"faults/{rule['id']}")[0] == 404
    assert admin(devchain, "POST", "faults", {"effect": "nonsense"})[0] == 400
    assert admin(devchain, "POST", "mode", {"mode": "manual"})[1]["mode"] == "manual"
    assert admin(devchain, "POST", "mode", {"mode": "sometimes"})[0] == 400
    assert "counts" in admin(devchain, "GET", "calls")[1]
    assert admin(devchain, "GET", "txs")[1]
    assert admin(devchain, "GET", "state")[1]["chain_id"] == devchain.chain_id
    assert admin(devchain, "POST", "reset", {})[1] == {"height": 1}
    assert admin(devchain, "GET", "nothing")[0] == 404
