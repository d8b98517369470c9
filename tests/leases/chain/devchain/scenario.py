"""The scenario that was recorded on real nodes, played on a simulated chain with blocks made by hand.

A play has the layout of a recording: `steps` with what a broadcast and its block said, `grpc` calls, `rpc` calls, the
frames of two WebSocket connections, and the ids that occurred.
"""

from __future__ import annotations

from typing import Any

from leases.chain.devchain.keys import named_key
from leases.chain.proto import auth_pb2, authz_pb2, bank_pb2, billing_pb2, sku_pb2, tendermint_pb2, tx_pb2
from tests.devchain_fixture import PWR, Wallet
from tests.leases.chain.devchain.scenario_wire import (
    FEE,
    GAS,
    Play,
    ack,
    acting,
    close,
    created,
    lease,
    reject,
    withdraw,
)

STRANGER = "01902a9b-1234-7000-8000-000000000001"


def play(chain: Any) -> dict[str, Any]:
    """The whole scenario on a fresh chain of the genesis `scenario` with blocks by hand."""
    run = Play(chain)
    try:
        _open_market(run)
        _live(run)
        _act_for_another(run)
        _fail_in_blocks(run)
        _fail_before_blocks(run)
        _repeat(run)
        _query(run)
        _settle(run)
    finally:
        run.close()
    return run.log


def _open_market(run: Play) -> None:
    admin, provider = run.wallet("admin").address, run.wallet("provider").address
    made = sku_pb2.MsgCreateProvider(
        authority=admin, address=provider, payout_address=provider, api_url="https://p.example"
    )
    [uuid] = created(run.send("create_provider", "admin", made), "provider_created", "provider_uuid")
    offer = sku_pb2.MsgCreateSKU(authority=admin, provider_uuid=uuid, name="docker-micro", unit=sku_pb2.UNIT_PER_HOUR)
    offer.base_price.denom, offer.base_price.amount = PWR, "3600"
    [sku] = created(run.send("create_sku", "admin", offer), "sku_created", "sku_uuid")
    run.log["ids"] = {"provider": uuid, "sku": sku}
    subject = f"provider_uuid='{uuid}'"
    run.first = run.listen(
        f"tm.event='Tx' AND lease_created.{subject}",
        "tm.event='Tx' AND lease_auto_closed.reason='credit_exhausted'",
        f"tm.event='Tx' AND lease_closed.{subject}",
        f"tm.event='NewBlockEvents' AND lease_expired.{subject}",
        f"tm.event='Tx' AND lease_cancelled.{subject}",
        "tm.event='Tx'",
    )
    header = "tm.event='NewBlockHeader'"
    expired = f"tm.event='Tx' AND lease_expired.{subject}"
    run.second = run.listen(header, expired, "tm.event='Tx' AND", header, "tm.event='NewBlockEvents'")
    # A block may come between two subscriptions of a real node; its frames are looked at by kind only.
    run.block()


def _live(run: Play) -> None:
    ids = run.log["ids"]
    provider, t0, t1 = (run.wallet(name).address for name in ("provider", "t0", "t1"))
    sku = ids["sku"]
    for step, tenant, amount in (("fund", "t0", 10**9), ("fund_small", "t1", 45)):
        address = run.wallet(tenant).address
        credit = billing_pb2.MsgFundCredit(sender=address, tenant=address)
        credit.amount.denom, credit.amount.amount = PWR, str(amount)
        run.send(step, tenant, credit)
    one = lease(t0, (sku, 1, ""))
    two_services = lease(t0, (sku, 2, "web"), (sku, 1, "db"), meta_hash=bytes(range(32)))
    ids["leases"] = created(
        run.send("create_three_in_one_tx", "t0", one, one, two_services), "lease_created", "lease_uuid"
    )
    ids["leases"] += created(run.send("create_four", "t0", *[one] * 4), "lease_created", "lease_uuid")
    small = run.send("create_small_tenant", "t1", lease(t1, (sku, 1, "")))
    [ids["small"]] = created(small, "lease_created", "lease_uuid")
    a, b, services, rejected, cancelled, *_ = ids["leases"]
    run.send("ack_two", "provider", ack(provider, a, b))
    run.send("ack_two_messages", "provider", ack(provider, services), ack(provider, ids["small"]))
    run.send("reject", "provider", reject(provider, rejected, "no room\nhere"))
    run.send("cancel", "t0", billing_pb2.MsgCancelLease(tenant=t0, lease_uuids=[cancelled]))
    domain = {"sender": t0, "lease_uuid": services, "service_name": "web"}
    run.send("set_domain", "t0", billing_pb2.MsgSetItemCustomDomain(**domain, custom_domain="app.example.com"))
    run.send("clear_domain", "t0", billing_pb2.MsgSetItemCustomDomain(**domain))


def _act_for_another(run: Play) -> None:
    ids = run.log["ids"]
    provider, t0, sub, idle = (run.wallet(name).address for name in ("provider", "t0", "t3", "t4"))
    grants = []
    for name in ("MsgAcknowledgeLease", "MsgRejectLease", "MsgCloseLease"):
        grant = authz_pb2.MsgGrant(granter=provider, grantee=sub)
        grant.grant.authorization.type_url = "/cosmos.authz.v1beta1.GenericAuthorization"
        generic = authz_pb2.GenericAuthorization(msg=f"/liftedinit.billing.v1.{name}")
        grant.grant.authorization.value = generic.SerializeToString()
        grants.append(grant)
    run.send("grant", "provider", *grants)
    made = run.send("create_for_sub_signer", "t0", *[lease(t0, (ids["sku"], 1, ""))] * 3)
    first, second, third = created(made, "lease_created", "lease_uuid")
    run.send("exec_ack_two", "t3", acting(sub, ack(provider, first, second)))
    run.send("exec_reject", "t3", acting(sub, reject(provider, third, "full")))
    run.send("exec_close", "t3", acting(sub, close(provider, first, "bye")))
    a, expiring = ids["leases"][0], ids["leases"][5]
    run.send("exec_without_grant", "t4", acting(idle, ack(provider, expiring)))
    run.send("exec_withdraw_not_granted", "t3", acting(sub, withdraw(provider, a)))


def _fail_in_blocks(run: Play) -> None:
    ids = run.log["ids"]
    provider, t0, t2 = (run.wallet(name).address for name in ("provider", "t0", "t2"))
    a, expiring = ids["leases"][0], ids["leases"][5]
    run.send("ack_again", "provider", ack(provider, a))
    run.send("ack_one_good_one_bad", "provider", ack(provider, expiring, a))
    run.send("ack_unknown", "provider", ack(provider, STRANGER))
    run.send("ack_bad_uuid", "provider", ack(provider, "nope"))
    run.send("ack_duplicate_uuid", "provider", ack(provider, expiring, expiring))
    run.send("ack_none", "provider", ack(provider))
    run.send("ack_wrong_sender", "t0", ack(t0, expiring))
    run.send("reject_active", "provider", reject(provider, a))
    run.send("close_pending", "provider", close(provider, expiring, "x"))
    run.send("long_reason", "provider", reject(provider, expiring, "x" * 300))
    run.send("create_no_credit", "t2", lease(t2, (ids["sku"], 1, "")))
    run.send("create_bad_sku", "t0", lease(t0, (STRANGER, 1, "")))
    run.send("out_of_gas", "provider", ack(provider, expiring), gas=60_000)


def _fail_before_blocks(run: Play) -> None:
    wallet = run.wallet("provider")
    good = ack(wallet.address, run.log["ids"]["leases"][5])
    run.send("sequence_too_high", "provider", good, sequence=wallet.sequence + 3)
    run.send("sequence_too_low", "provider", good, sequence=0)
    run.send("fee_too_low", "provider", good, fee=10)
    run.send("no_fee", "provider", good, fee=0)
    run.send("wrong_account_number", "provider", good, number=77)
    run.send("gas_too_low_for_bytes", "provider", good, gas=1_000)
    run.send("timeout_height_past", "provider", good, timeout_height=2)
    run.send("memo_too_long", "provider", good, memo="m" * 300)
    nope = tx_pb2.TxBody()
    nope.messages.add(type_url="/liftedinit.billing.v1.MsgNope")
    run.send("unknown_message", "provider", good, body=nope)
    run.send("wrong_signer", "t0", good)
    nobody = named_key("nobody-has-this")
    run.wallets["nobody"] = Wallet(nobody, run.chain.chain_id)
    run.send("poor", "nobody", ack(nobody.address, run.log["ids"]["leases"][5]))


def _repeat(run: Play) -> None:
    ids = run.log["ids"]
    provider, tenant = run.wallet("provider"), run.wallet("t0")
    raw = provider.sign(withdraw(provider.address, ids["leases"][0]), gas=GAS, fee=FEE)
    taken, again = run.broadcast(raw), run.broadcast(raw)
    provider.sequence += 1
    run.block()
    run.withdrawn = taken["hash"]
    entry = {"step": "same_bytes_twice", "check_tx": taken, "second": again, "tx": run.found(taken["hash"])}
    run.log["steps"].append(entry)
    run.log["steps"].append({"step": "same_bytes_after_inclusion", "check_tx": run.broadcast(raw)})
    checks = []
    for _ in range(3):
        one = tenant.sign(lease(tenant.address, (ids["sku"], 1, "")), gas=400_000, fee=400_000)
        checks.append(run.broadcast(one))
        tenant.sequence += 1
    run.block()
    heights = [run.found(check["hash"])["height"] for check in checks]
    run.log["steps"].append({"step": "three_sequences_at_once", "check_tx": checks, "heights": heights})


def _query(run: Play) -> None:
    ids = run.log["ids"]
    provider, t0 = run.wallet("provider"), run.wallet("t0").address
    billing, q = "liftedinit.billing.v1.Query", billing_pb2
    a, uuid = ids["leases"][0], ids["provider"]
    for lease_uuid in (a, STRANGER, "nope", ""):
        run.ask(f"{billing}/Lease", q.QueryLeaseRequest(lease_uuid=lease_uuid))
    by_provider = q.QueryLeasesByProviderRequest
    for request in (
        by_provider(provider_uuid=uuid, pagination={"limit": 2}, state_filter=q.LEASE_STATE_ACTIVE),
        by_provider(provider_uuid=uuid, pagination={"limit": 5_000}),
        by_provider(provider_uuid=uuid, pagination={"limit": 2, "count_total": True}),
        by_provider(provider_uuid=STRANGER),
    ):
        run.ask(f"{billing}/LeasesByProvider", request)
    run.ask(f"{billing}/LeasesByTenant", q.QueryLeasesByTenantRequest(tenant=t0, pagination={"limit": 1}))
    run.ask(f"{billing}/CreditAccount", q.QueryCreditAccountRequest(tenant=t0))
    run.ask(f"{billing}/CreditAccount", q.QueryCreditAccountRequest(tenant=run.wallet("t5").address))
    run.ask(f"{billing}/CreditAddress", q.QueryCreditAddressRequest(tenant=t0))
    run.ask(f"{billing}/CreditEstimate", q.QueryCreditEstimateRequest(tenant=t0))
    run.ask(f"{billing}/WithdrawableAmount", q.QueryWithdrawableAmountRequest(lease_uuid=a))
    run.ask(f"{billing}/ProviderWithdrawable", q.QueryProviderWithdrawableRequest(provider_uuid=uuid))
    run.ask(f"{billing}/Params", q.QueryParamsRequest())
    sku = "liftedinit.sku.v1.Query"
    run.ask(f"{sku}/Provider", sku_pb2.QueryProviderRequest(uuid=uuid))
    run.ask(f"{sku}/ProviderByAddress", sku_pb2.QueryProviderByAddressRequest(address=provider.address))
    run.ask(f"{sku}/SKUsByProvider", sku_pb2.QuerySKUsByProviderRequest(provider_uuid=uuid))
    run.ask(f"{sku}/SKU", sku_pb2.QuerySKURequest(uuid=STRANGER))
    _query_transactions(run)
    _query_accounts(run)
    run.note_rpc("status")
    query = f"lease_created.provider_uuid='{uuid}'"
    run.note_rpc("tx_search", query=query, per_page="2", page="1", order_by="asc")
    run.note_rpc("block_results", height="999999")


def _query_transactions(run: Play) -> None:
    provider, expiring = run.wallet("provider"), run.log["ids"]["leases"][5]
    service, a = "cosmos.tx.v1beta1.Service", run.log["ids"]["leases"][0]
    for tx_hash in ("00" * 32, "zz", run.withdrawn):
        run.ask(f"{service}/GetTx", tx_pb2.GetTxRequest(hash=tx_hash))
    good = ack(provider.address, expiring)
    for message, how in (
        (good, {}),
        (ack(provider.address, expiring, a), {}),
        (ack(provider.address, "nope"), {}),
        (good, {"sequence": 0}),
    ):
        raw = provider.sign(message, gas=200_000, **how)
        run.ask(f"{service}/Simulate", tx_pb2.SimulateRequest(tx_bytes=raw))
    raw = provider.sign(good, gas=GAS, fee=FEE, sequence=0)
    sync = tx_pb2.BROADCAST_MODE_SYNC
    run.ask(f"{service}/BroadcastTx", tx_pb2.BroadcastTxRequest(tx_bytes=raw, mode=sync))


def _query_accounts(run: Play) -> None:
    provider, t0, sub = (run.wallet(name).address for name in ("provider", "t0", "t3"))
    for address in (provider, named_key("nobody-has-this").address):
        run.ask("cosmos.auth.v1beta1.Query/Account", auth_pb2.QueryAccountRequest(address=address))
    run.ask("cosmos.bank.v1beta1.Query/Balance", bank_pb2.QueryBalanceRequest(address=provider, denom="umfx"))
    kind = "/liftedinit.billing.v1.MsgAcknowledgeLease"
    for grantee in (t0, sub):
        request = authz_pb2.QueryGrantsRequest(granter=provider, grantee=grantee, msg_type_url=kind)
        run.ask("cosmos.authz.v1beta1.Query/Grants", request)
    node = "cosmos.base.tendermint.v1beta1.Service"
    run.ask(f"{node}/GetLatestBlock", tendermint_pb2.GetLatestBlockRequest())
    run.ask(f"{node}/GetNodeInfo", tendermint_pb2.GetNodeInfoRequest())


def _settle(run: Play) -> None:
    ids = run.log["ids"]
    provider, t0, uuid = run.wallet("provider").address, run.wallet("t0").address, ids["provider"]
    a, b, services = ids["leases"][:3]
    run.send("withdraw_two", "provider", withdraw(provider, a, b))
    run.send("close_by_provider", "provider", close(provider, b, "node drained"))
    run.send("close_by_tenant", "t0", close(t0, services))
    run.send("withdraw_provider_page", "provider", withdraw(provider, provider=uuid, limit=1))
    run.send("withdraw_provider", "provider", withdraw(provider, provider=uuid))
    run.send("withdraw_both", "provider", withdraw(provider, a, provider=uuid))
    expiring = ids["leases"][5]
    for _ in range(75):
        if run.chain.state_of(expiring) == 5:
            break
        run.block()
    run.send("withdraw_provider_after_credit_end", "provider", withdraw(provider, provider=uuid))
    run.send("credit_end_close", "provider", close(provider, ids["small"], "late"))
    for height in range(1, run.chain.height + 1):
        result = run.rpc("block_results", height=str(height))["result"]
        if any(event["type"].startswith("lease") for event in result["finalize_block_events"]):
            run.log["rpc"].append({"method": "block_results", "params": {"height": height}, "result": result})
    run.chain.wait_for_frames()
    run.log["ws"] = run.first.end()
    run.log["ws2"] = run.second.end()[:14]
