"""The REST gateway: the queries in chain JSON, as far as wallets and scripts use them."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message

from leases.chain.devchain.chain import Chain, View
from leases.chain.devchain.context import pb_coins
from leases.chain.devchain.encoding import reservation_coins
from leases.chain.devchain.errors import QueryRefused
from leases.chain.devchain.grpc_server import HEIGHT_HEADER, view_for
from leases.chain.devchain.http_server import Request, Response
from leases.chain.devchain.queries import Handler
from leases.chain.devchain.responses import as_json, classes_of

_BILLING, _SKU = "/liftedinit/billing/v1", "/liftedinit/sku/v1"
_ROUTES: tuple[tuple[str, str, str], ...] = (
    ("GET", "/cosmos/auth/v1beta1/accounts/{address}", "cosmos.auth.v1beta1.Query/Account"),
    ("GET", "/cosmos/auth/v1beta1/accounts", "cosmos.auth.v1beta1.Query/Accounts"),
    ("GET", "/cosmos/bank/v1beta1/balances/{address}/by_denom", "cosmos.bank.v1beta1.Query/Balance"),
    ("GET", "/cosmos/bank/v1beta1/balances/{address}", "cosmos.bank.v1beta1.Query/AllBalances"),
    ("GET", "/cosmos/authz/v1beta1/grants", "cosmos.authz.v1beta1.Query/Grants"),
    ("POST", "/cosmos/tx/v1beta1/simulate", "cosmos.tx.v1beta1.Service/Simulate"),
    ("POST", "/cosmos/tx/v1beta1/txs", "cosmos.tx.v1beta1.Service/BroadcastTx"),
    ("GET", "/cosmos/tx/v1beta1/txs/{hash}", "cosmos.tx.v1beta1.Service/GetTx"),
    ("GET", "/cosmos/base/tendermint/v1beta1/blocks/latest", "cosmos.base.tendermint.v1beta1.Service/GetLatestBlock"),
    ("GET", "/cosmos/base/tendermint/v1beta1/syncing", "cosmos.base.tendermint.v1beta1.Service/GetSyncing"),
    ("GET", "/cosmos/base/tendermint/v1beta1/node_info", "cosmos.base.tendermint.v1beta1.Service/GetNodeInfo"),
    ("GET", f"{_BILLING}/params", "liftedinit.billing.v1.Query/Params"),
    ("GET", f"{_BILLING}/leases", "liftedinit.billing.v1.Query/Leases"),
    ("GET", f"{_BILLING}/leases/tenant/{{tenant}}", "liftedinit.billing.v1.Query/LeasesByTenant"),
    ("GET", f"{_BILLING}/leases/provider/{{provider_uuid}}", "liftedinit.billing.v1.Query/LeasesByProvider"),
    ("GET", f"{_BILLING}/leases/sku/{{sku_uuid}}", "liftedinit.billing.v1.Query/LeasesBySKU"),
    ("GET", f"{_BILLING}/lease/by-domain/{{custom_domain}}", "liftedinit.billing.v1.Query/LeaseByCustomDomain"),
    ("GET", f"{_BILLING}/lease/{{lease_uuid}}/withdrawable", "liftedinit.billing.v1.Query/WithdrawableAmount"),
    ("GET", f"{_BILLING}/lease/{{lease_uuid}}", "liftedinit.billing.v1.Query/Lease"),
    ("GET", f"{_BILLING}/credits", "liftedinit.billing.v1.Query/CreditAccounts"),
    ("GET", f"{_BILLING}/credit/{{tenant}}/estimate", "liftedinit.billing.v1.Query/CreditEstimate"),
    ("GET", f"{_BILLING}/credit/{{tenant}}", "liftedinit.billing.v1.Query/CreditAccount"),
    ("GET", f"{_BILLING}/credit-address/{{tenant}}", "liftedinit.billing.v1.Query/CreditAddress"),
    (
        "GET",
        f"{_BILLING}/provider/{{provider_uuid}}/withdrawable",
        "liftedinit.billing.v1.Query/ProviderWithdrawable",
    ),
    ("GET", f"{_SKU}/params", "liftedinit.sku.v1.Query/Params"),
    ("GET", f"{_SKU}/providers", "liftedinit.sku.v1.Query/Providers"),
    ("GET", f"{_SKU}/provider/address/{{address}}", "liftedinit.sku.v1.Query/ProviderByAddress"),
    ("GET", f"{_SKU}/provider/{{uuid}}", "liftedinit.sku.v1.Query/Provider"),
    ("GET", f"{_SKU}/skus", "liftedinit.sku.v1.Query/SKUs"),
    ("GET", f"{_SKU}/skus/provider/{{provider_uuid}}", "liftedinit.sku.v1.Query/SKUsByProvider"),
    ("GET", f"{_SKU}/sku/{{uuid}}", "liftedinit.sku.v1.Query/SKU"),
)
_STATUS = {"NOT_FOUND": (404, 5), "INVALID_ARGUMENT": (400, 3), "UNIMPLEMENTED": (501, 12), "UNAVAILABLE": (503, 14)}


class Rest:
    """Finds the query of a path, fills its request from path and parameters, answers in JSON."""

    def __init__(self, chain: Chain, handlers: dict[str, Handler], after_broadcast: Callable[[], None]) -> None:
        self._chain = chain
        self._handlers = handlers
        self._after_broadcast = after_broadcast
        self._routes = [
            (method, re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", path)), f"/{target}")
            for method, path, target in _ROUTES
        ]

    async def answer(self, request: Request) -> Response:
        """One request of the gateway."""
        for method, pattern, target in self._routes:
            found = pattern.fullmatch(request.path)
            if found is not None and method == request.method:
                return await self._call(target, found.groupdict(), request)
        return Response(501, {"code": 12, "message": "Not Implemented", "details": []})

    async def _call(self, target: str, named: dict[str, str], request: Request) -> Response:
        query, answer_class = classes_of(target)
        try:
            await self._chain.faults.hold(target, request.body)
            if request.method == "POST":
                json_format.ParseDict(request.json(), query)
            else:
                _fill(query, {**request.query, **named})
            asked = query.SerializeToString()
            view = view_for(self._chain, target, subject=asked, wanted=request.headers.get(HEIGHT_HEADER, ""))
            data = self._handlers[target](self._chain, view, asked)
        except QueryRefused as refusal:
            status, code = _STATUS.get(refusal.status, (500, 2))
            return Response(status, {"code": code, "message": refusal.text, "details": []})
        except (ValueError, json_format.ParseError) as error:
            return Response(400, {"code": 3, "message": str(error), "details": []})
        if target.endswith("/BroadcastTx"):
            self._after_broadcast()
        shown = as_json(answer_class.FromString(data))
        if self._chain.profile.strict:
            _show_reservations(shown, view)
        if self._chain.faults.find("unknown_field", target, asked) is not None:
            shown["odd"] = True
        return Response(200, shown, headers={f"grpc-metadata-{HEIGHT_HEADER}": str(view.height)})


def _show_reservations(shown: dict[str, Any], view: View) -> None:
    """What the strict chain says of leases beyond the message classes: what is reserved for them."""
    for lease in [shown["lease"]] if "lease" in shown else shown.get("leases", ()):
        coins = reservation_coins(view.state.leases[lease["uuid"]])
        lease["reservation"] = {"remaining_amounts": [as_json(coin) for coin in pb_coins(coins)]}


def _fill(query: Message, values: dict[str, str]) -> None:
    """Set fields by their (dotted) names; raises ValueError for a value of the wrong form."""
    shaped: dict[str, Any] = {}
    for name, value in values.items():
        outer, _, inner = name.partition(".")
        if inner == "key":
            shaped.setdefault(outer, {})[inner] = base64.b64encode(base64.b64decode(value.replace(" ", "+"))).decode()
            continue
        typed: Any = value == "true" if value in ("true", "false") else value
        if outer == "state_filter" and value.isdigit():
            typed = int(value)
        if inner:
            shaped.setdefault(outer, {})[inner] = typed
        else:
            shaped[outer] = typed
    json_format.ParseDict(shaped, query, ignore_unknown_fields=True)
