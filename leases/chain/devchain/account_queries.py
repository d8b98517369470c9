"""Queries of accounts, money and grants."""

from __future__ import annotations

from leases.chain.devchain import bank
from leases.chain.devchain.chain import Chain, View
from leases.chain.devchain.context import pb_coins, timestamp
from leases.chain.devchain.encoding import account_message
from leases.chain.devchain.errors import QueryRefused
from leases.chain.devchain.messages import pack
from leases.chain.devchain.paging import cut
from leases.chain.devchain.queries import Handler
from leases.chain.devchain.records import Grant
from leases.chain.proto import auth_pb2, authz_pb2, bank_pb2, coin_pb2


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


AUTH: dict[str, Handler] = {"Account": _account, "Accounts": _accounts, "Params": _auth_params}
BANK: dict[str, Handler] = {
    "Balance": _balance,
    "AllBalances": _all_balances,
    "SpendableBalances": _all_balances,
    "TotalSupply": _total_supply,
}
AUTHZ: dict[str, Handler] = {"Grants": _grants, "GranteeGrants": _grantee_grants}
