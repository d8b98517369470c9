"""Queries of the SKU module, of accounts, money and grants; and the services of transactions and of the node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leases.chain.devchain import bank
from leases.chain.devchain.blocks import CONSENSUS_HASH, EMPTY_HASH, PROPOSER, VALIDATORS_HASH, Block
from leases.chain.devchain.chain import Chain, SimulationFailed, View
from leases.chain.devchain.context import pb_coins, timestamp
from leases.chain.devchain.encoding import (
    account_message,
    event_messages,
    provider_message,
    sku_message,
    tx_message,
    tx_response,
)
from leases.chain.devchain.errors import QueryRefused
from leases.chain.devchain.keys import encode_address
from leases.chain.devchain.messages import pack
from leases.chain.devchain.paging import cut
from leases.chain.devchain.queries import BillingQueries, Handler
from leases.chain.devchain.query_language import parse
from leases.chain.devchain.records import Grant
from leases.chain.devchain.transactions import CheckResult
from leases.chain.proto import (
    abci_pb2,
    auth_pb2,
    authz_pb2,
    bank_pb2,
    coin_pb2,
    sku_pb2,
    tendermint_p2p_pb2,
    tendermint_pb2,
    tendermint_types_pb2,
    tendermint_version_pb2,
    tx_pb2,
)

MAX_UINT64 = 2**64 - 1
COMET_VERSION = "0.38.19"
CHANNELS = "40202122233038606100"


# --- SKU -------------------------------------------------------------------


def _found(table: dict[str, Any], uuid: str, missing: str) -> Any:
    if not uuid:
        raise QueryRefused("INVALID_ARGUMENT", "uuid cannot be empty")
    record = table.get(uuid)
    if record is None:
        raise QueryRefused("NOT_FOUND", missing)
    return record


def _sku_params(_chain: Chain, view: View, _request: bytes) -> bytes:
    params = sku_pb2.Params(allowed_list=view.state.sku_allowed)
    return sku_pb2.QueryParamsResponse(params=params).SerializeToString()


def _provider(_chain: Chain, view: View, request: bytes) -> bytes:
    uuid = sku_pb2.QueryProviderRequest.FromString(request).uuid
    provider = _found(view.state.providers, uuid, "provider not found")
    return sku_pb2.QueryProviderResponse(provider=provider_message(provider)).SerializeToString()


def _providers(_chain: Chain, view: View, request: bytes, *, by_address: bool = False) -> bytes:
    cls = sku_pb2.QueryProviderByAddressRequest if by_address else sku_pb2.QueryProvidersRequest
    query: Any = cls.FromString(request)
    if by_address and not query.address:
        raise QueryRefused("INVALID_ARGUMENT", "address cannot be empty")
    chosen = {
        uuid: provider
        for uuid, provider in view.state.providers.items()
        if (provider.active or not query.active_only) and (not by_address or provider.address == query.address)
    }
    page = cut(sorted(chosen), query.pagination)
    answer = sku_pb2.QueryProvidersResponse(
        providers=[provider_message(chosen[uuid]) for uuid in page.keys], pagination=page.response
    )
    return answer.SerializeToString()


def _providers_by_address(chain: Chain, view: View, request: bytes) -> bytes:
    return _providers(chain, view, request, by_address=True)


def _sku(_chain: Chain, view: View, request: bytes) -> bytes:
    sku = _found(view.state.skus, sku_pb2.QuerySKURequest.FromString(request).uuid, "sku not found")
    return sku_pb2.QuerySKUResponse(sku=sku_message(sku)).SerializeToString()


def _skus(_chain: Chain, view: View, request: bytes, *, by_provider: bool = False) -> bytes:
    cls = sku_pb2.QuerySKUsByProviderRequest if by_provider else sku_pb2.QuerySKUsRequest
    query: Any = cls.FromString(request)
    if by_provider and not query.provider_uuid:
        raise QueryRefused("INVALID_ARGUMENT", "provider_uuid cannot be empty")
    chosen = {
        uuid: sku
        for uuid, sku in view.state.skus.items()
        if (sku.active or not query.active_only) and (not by_provider or sku.provider_uuid == query.provider_uuid)
    }
    page = cut(sorted(chosen), query.pagination)
    answer = sku_pb2.QuerySKUsResponse(skus=[sku_message(chosen[uuid]) for uuid in page.keys], pagination=page.response)
    return answer.SerializeToString()


def _skus_by_provider(chain: Chain, view: View, request: bytes) -> bytes:
    return _skus(chain, view, request, by_provider=True)


# --- accounts, money, grants -------------------------------------------------


def _account(_chain: Chain, view: View, request: bytes) -> bytes:
    address = auth_pb2.QueryAccountRequest.FromString(request).address
    account = view.state.accounts.get(address)
    if account is None:
        raise QueryRefused("NOT_FOUND", f"account {address} not found")
    return auth_pb2.QueryAccountResponse(account=pack(account_message(account))).SerializeToString()


def _accounts(_chain: Chain, view: View, request: bytes) -> bytes:
    page = cut(sorted(view.state.accounts), auth_pb2.QueryAccountsRequest.FromString(request).pagination)
    accounts = [pack(account_message(view.state.accounts[address])) for address in page.keys]
    return auth_pb2.QueryAccountsResponse(accounts=accounts, pagination=page.response).SerializeToString()


def _auth_params(_chain: Chain, _view: View, _request: bytes) -> bytes:
    params = auth_pb2.Params(
        max_memo_characters=256,
        tx_sig_limit=7,
        tx_size_cost_per_byte=10,
        sig_verify_cost_ed25519=590,
        sig_verify_cost_secp256k1=1000,
    )
    return auth_pb2.QueryParamsResponse(params=params).SerializeToString()


def _balance(_chain: Chain, view: View, request: bytes) -> bytes:
    query = bank_pb2.QueryBalanceRequest.FromString(request)
    amount = view.state.balance(query.address, query.denom)
    coin = coin_pb2.Coin(denom=query.denom, amount=str(amount))
    return bank_pb2.QueryBalanceResponse(balance=coin).SerializeToString()


def _all_balances(_chain: Chain, view: View, request: bytes) -> bytes:
    query = bank_pb2.QueryAllBalancesRequest.FromString(request)
    coins = dict(view.state.coins_of(query.address))
    page = cut(sorted(coins), query.pagination)
    shown = pb_coins(tuple((denom, coins[denom]) for denom in page.keys))
    return bank_pb2.QueryAllBalancesResponse(balances=shown, pagination=page.response).SerializeToString()


def _total_supply(_chain: Chain, _view: View, _request: bytes) -> bytes:
    empty = cut([], bank_pb2.QueryTotalSupplyRequest().pagination)
    return bank_pb2.QueryTotalSupplyResponse(pagination=empty.response).SerializeToString()


def _grant(entry: Grant) -> authz_pb2.Grant:
    grant = authz_pb2.Grant(authorization=bank.authorization(entry))
    if entry.expires_at:
        grant.expiration.CopyFrom(timestamp(entry.expires_at))
    return grant


def _grants(_chain: Chain, view: View, request: bytes) -> bytes:
    query = authz_pb2.QueryGrantsRequest.FromString(request)
    live = [
        entry
        for (granter, grantee, _), entry in sorted(view.state.grants.items())
        if (granter, grantee) == (query.granter, query.grantee)
        and (not entry.expires_at or entry.expires_at > view.time)
    ]
    if query.msg_type_url:
        one = [entry for entry in live if entry.msg_type == query.msg_type_url]
        if not one:
            missing = f"authorization not found: authorization not found for {query.msg_type_url} type"
            raise QueryRefused("UNKNOWN", f"codespace authz code 2: {missing}")
        return authz_pb2.QueryGrantsResponse(grants=[_grant(one[0])]).SerializeToString()
    by_type = {entry.msg_type: entry for entry in live}
    page = cut(sorted(by_type), query.pagination)
    grants = [_grant(by_type[msg_type]) for msg_type in page.keys]
    return authz_pb2.QueryGrantsResponse(grants=grants, pagination=page.response).SerializeToString()


def _grantee_grants(_chain: Chain, view: View, request: bytes) -> bytes:
    query = authz_pb2.QueryGranteeGrantsRequest.FromString(request)
    found = {
        f"{entry.granter} {entry.msg_type}": entry
        for entry in view.state.grants.values()
        if entry.grantee == query.grantee
    }
    page = cut(sorted(found), query.pagination)
    shown = []
    for name in page.keys:
        entry, grant = found[name], _grant(found[name])
        one = authz_pb2.GrantAuthorization(granter=entry.granter, grantee=entry.grantee)
        one.authorization.CopyFrom(grant.authorization)
        if entry.expires_at:
            one.expiration.CopyFrom(grant.expiration)
        shown.append(one)
    return authz_pb2.QueryGranteeGrantsResponse(grants=shown, pagination=page.response).SerializeToString()


# --- transactions --------------------------------------------------------------


def _simulate(chain: Chain, _view: View, request: bytes) -> bytes:
    query = tx_pb2.SimulateRequest.FromString(request)
    raw = query.tx_bytes or (query.tx.SerializeToString() if query.HasField("tx") else b"")
    if not raw:
        raise QueryRefused("INVALID_ARGUMENT", "empty txBytes is not allowed")
    try:
        found = chain.simulate(raw)
    except SimulationFailed as failure:
        raise QueryRefused("UNKNOWN", str(failure)) from None
    response = tx_pb2.SimulateResponse(
        result=abci_pb2.Result(
            data=found.data,
            events=event_messages(found.events, index=False),
            msg_responses=[pack(response) for response in found.responses],
        )
    )
    if chain.faults.find("gas_info_missing") is None:
        response.gas_info.gas_wanted = MAX_UINT64
        response.gas_info.gas_used = found.gas_used
    return response.SerializeToString()


def _broadcast(chain: Chain, _view: View, request: bytes) -> bytes:
    query = tx_pb2.BroadcastTxRequest.FromString(request)
    if query.mode not in (tx_pb2.BROADCAST_MODE_SYNC, tx_pb2.BROADCAST_MODE_ASYNC):
        wanted = "sync, async"
        raise QueryRefused("INVALID_ARGUMENT", f"unsupported return type {query.mode}; supported types: {wanted}")
    checked = chain.broadcast(query.tx_bytes)
    if query.mode == tx_pb2.BROADCAST_MODE_ASYNC:
        checked = CheckResult(checked.hash)
    response = abci_pb2.TxResponse(
        txhash=checked.hash, code=checked.code, codespace=checked.codespace, raw_log=checked.log
    )
    return tx_pb2.BroadcastTxResponse(tx_response=response).SerializeToString()


def _get_tx(chain: Chain, _view: View, request: bytes) -> bytes:
    tx_hash = tx_pb2.GetTxRequest.FromString(request).hash
    if not tx_hash:
        raise QueryRefused("INVALID_ARGUMENT", "tx hash cannot be empty")
    for character in tx_hash:
        if character not in "0123456789abcdefABCDEF":
            code = f"U+{ord(character):04X}"
            raise QueryRefused("UNKNOWN", f"encoding/hex: invalid byte: {code} '{character}'")
    if len(tx_hash) != 64:
        raise QueryRefused("INVALID_ARGUMENT", "The length of tx hash must be 64")
    result = chain.find_tx(tx_hash.upper())
    if result is None:
        raise QueryRefused("NOT_FOUND", f"tx not found: {tx_hash}")
    answer = tx_pb2.GetTxResponse(tx=tx_message(result.tx), tx_response=tx_response(result))
    return answer.SerializeToString()


def _txs_event(chain: Chain, _view: View, request: bytes) -> bytes:
    query = tx_pb2.GetTxsEventRequest.FromString(request)
    text = query.query or " AND ".join(query.events)
    try:
        condition = parse(text)
    except ValueError as error:
        raise QueryRefused("INVALID_ARGUMENT", str(error)) from None
    found = [result for result in chain.txs.values() if condition.matches_tx(result)]
    if query.order_by == tx_pb2.ORDER_BY_DESC:
        found.reverse()
    limit = query.limit or 100
    start = ((query.page or 1) - 1) * limit
    part = found[start : start + limit]
    return tx_pb2.GetTxsEventResponse(
        txs=[tx_message(result.tx) for result in part],
        tx_responses=[tx_response(result) for result in part],
        total=len(found),
    ).SerializeToString()


# --- the node -------------------------------------------------------------------


def block_id(block_hash: bytes) -> tendermint_types_pb2.BlockID:
    """The id of a block with this hash; its one part has the hash of the hash."""
    if not block_hash:
        return tendermint_types_pb2.BlockID()
    parts = tendermint_types_pb2.PartSetHeader(total=1, hash=block_hash[::-1])
    return tendermint_types_pb2.BlockID(hash=block_hash, part_set_header=parts)


def _header_fields(chain: Chain, block: Block) -> dict[str, Any]:
    return {
        "version": tendermint_version_pb2.Consensus(block=11),
        "chain_id": chain.chain_id,
        "height": block.height,
        "time": timestamp(block.time),
        "last_block_id": block_id(block.last_hash),
        "last_commit_hash": block.last_hash[::-1] or EMPTY_HASH,
        "data_hash": block.data_hash,
        "validators_hash": VALIDATORS_HASH,
        "next_validators_hash": VALIDATORS_HASH,
        "consensus_hash": CONSENSUS_HASH,
        "app_hash": block.app_hash,
        "last_results_hash": EMPTY_HASH,
        "evidence_hash": EMPTY_HASH,
    }


def _block_answer(chain: Chain, block: Block) -> dict[str, Any]:
    fields = _header_fields(chain, block)
    header = tendermint_types_pb2.Header(**fields, proposer_address=PROPOSER)
    proposer = encode_address(PROPOSER, "manifestvalcons")
    data = tendermint_types_pb2.Data(txs=[result.tx.raw for result in block.txs])
    evidence = tendermint_types_pb2.EvidenceList()
    commit = tendermint_types_pb2.Commit(height=block.height - 1, block_id=block_id(block.last_hash))
    if block.height > 1:
        commit.signatures.add(
            block_id_flag=tendermint_types_pb2.BLOCK_ID_FLAG_COMMIT,
            validator_address=PROPOSER,
            timestamp=timestamp(block.time),
            signature=block.last_hash * 2,
        )
    return {
        "block_id": block_id(block.hash),
        "block": tendermint_types_pb2.Block(header=header, data=data, evidence=evidence, last_commit=commit),
        "sdk_block": tendermint_pb2.Block(
            header=tendermint_pb2.Header(**fields, proposer_address=proposer),
            data=data,
            evidence=evidence,
            last_commit=commit,
        ),
    }


def _latest_block(chain: Chain, view: View, _request: bytes) -> bytes:
    answer = _block_answer(chain, chain.blocks[view.height])
    return tendermint_pb2.GetLatestBlockResponse(**answer).SerializeToString()


def _block_by_height(chain: Chain, _view: View, request: bytes) -> bytes:
    height = tendermint_pb2.GetBlockByHeightRequest.FromString(request).height
    block = chain.blocks.get(height)
    if block is None:
        raise QueryRefused("INVALID_ARGUMENT", "requested block height is bigger then the chain length")
    return tendermint_pb2.GetBlockByHeightResponse(**_block_answer(chain, block)).SerializeToString()


def _syncing(chain: Chain, _view: View, _request: bytes) -> bytes:
    late = chain.faults.find("catching_up") is not None
    return tendermint_pb2.GetSyncingResponse(syncing=late).SerializeToString()


def _node_info(chain: Chain, _view: View, _request: bytes) -> bytes:
    node = tendermint_p2p_pb2.DefaultNodeInfo(
        protocol_version=tendermint_p2p_pb2.ProtocolVersion(p2p=8, block=11),
        default_node_id=PROPOSER.hex(),
        listen_addr="tcp://0.0.0.0:26656",
        network=chain.chain_id,
        version=COMET_VERSION,
        channels=bytes.fromhex(CHANNELS),
        moniker="devchain",
        other=tendermint_p2p_pb2.DefaultNodeInfoOther(tx_index="on", rpc_address="tcp://127.0.0.1:26657"),
    )
    version = tendermint_pb2.VersionInfo(name="manifest", app_name="manifestd", cosmos_sdk_version="v0.50.14")
    answer = tendermint_pb2.GetNodeInfoResponse(default_node_info=node, application_version=version)
    return answer.SerializeToString()


def all_handlers() -> dict[str, Handler]:
    """Every gRPC method of the chain: full path to handler."""
    services: dict[str, dict[str, Callable[[Chain, View, bytes], bytes]]] = {
        "liftedinit.billing.v1.Query": BillingQueries().handlers(),
        "liftedinit.sku.v1.Query": {
            "Params": _sku_params,
            "Provider": _provider,
            "Providers": _providers,
            "ProviderByAddress": _providers_by_address,
            "SKU": _sku,
            "SKUs": _skus,
            "SKUsByProvider": _skus_by_provider,
        },
        "cosmos.auth.v1beta1.Query": {"Account": _account, "Accounts": _accounts, "Params": _auth_params},
        "cosmos.bank.v1beta1.Query": {
            "Balance": _balance,
            "AllBalances": _all_balances,
            "SpendableBalances": _all_balances,
            "TotalSupply": _total_supply,
        },
        "cosmos.authz.v1beta1.Query": {"Grants": _grants, "GranteeGrants": _grantee_grants},
        "cosmos.tx.v1beta1.Service": {
            "Simulate": _simulate,
            "BroadcastTx": _broadcast,
            "GetTx": _get_tx,
            "GetTxsEvent": _txs_event,
        },
        "cosmos.base.tendermint.v1beta1.Service": {
            "GetLatestBlock": _latest_block,
            "GetBlockByHeight": _block_by_height,
            "GetSyncing": _syncing,
            "GetNodeInfo": _node_info,
        },
    }
    return {f"/{service}/{name}": handler for service, methods in services.items() for name, handler in methods.items()}
