"""The admin API: make, move and break things on the chain without a key. It listens on the loopback address only."""

from __future__ import annotations

import base64
import hashlib
import time as clock
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from leases.chain.devchain import actions, profiles, snapshot
from leases.chain.devchain.encoding import lease_message, time_ns
from leases.chain.devchain.errors import Refused
from leases.chain.devchain.http_server import Request, Response
from leases.chain.devchain.responses import as_json
from leases.chain.devchain.transactions import TxResult

if TYPE_CHECKING:
    from leases.chain.devchain.node import Node

Route = Callable[[dict[str, Any]], Any]


class Missing(Exception):
    """There is no such route or thing."""


class Admin:
    """Routes of the admin API over one node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._routes: dict[tuple[str, str], Route] = {
            ("GET", "info"): lambda _: node.info(),
            ("GET", "keys"): lambda _: node.keys(),
            ("GET", "state"): lambda _: actions.dump(node.chain),
            ("GET", "txs"): lambda _: [_tx(result) for result in node.chain.txs.values()],
            ("GET", "mempool"): lambda _: list(node.chain.mempool),
            ("GET", "calls"): lambda _: {"counts": dict(node.calls.counts), "recent": list(node.calls.recent)},
            ("DELETE", "calls"): self._clear_calls,
            ("POST", "provider"): self._provider,
            ("POST", "sku"): self._sku,
            ("POST", "faucet"): self._faucet,
            ("POST", "credit"): self._credit,
            ("POST", "credit/drain"): self._drain,
            ("POST", "lease"): self._lease,
            ("POST", "params"): self._params,
            ("POST", "mode"): self._mode,
            ("POST", "blocks"): self._blocks,
            ("POST", "clock"): self._clock,
            ("POST", "reset"): self._reset,
            ("POST", "profile"): self._profile,
            ("POST", "snapshot"): lambda _: snapshot.take(node.chain),
            ("POST", "restore"): self._restore,
            ("GET", "faults"): lambda _: [rule.as_json() for rule in node.chain.faults.all()],
            ("POST", "faults"): self._fault,
            ("DELETE", "faults"): self._clear_faults,
        }

    async def answer(self, request: Request) -> Response:
        """One request of the admin API."""
        try:
            return Response(200, await self._dispatch(request))
        except Missing as missing:
            return Response(404, {"error": str(missing)})
        except Refused as refusal:
            shown = {"codespace": refusal.codespace, "code": refusal.code, "raw_log": refusal.text}
            return Response(422, {"error": refusal.text, **shown})
        except (ValueError, KeyError, TypeError) as error:
            return Response(400, {"error": f"{type(error).__name__}: {error}"})

    async def _dispatch(self, request: Request) -> Any:
        prefix, _, path = request.path.strip("/").partition("/")
        body = request.json()
        parts = path.split("/")
        if prefix != "admin" or not isinstance(body, dict):
            raise Missing(f"no route {request.method} {request.path}")
        route = self._routes.get((request.method, path))
        if route is None and parts[0] == "lease" and len(parts) in (2, 3):
            route = self._one_lease(request.method, parts[1], parts[2] if len(parts) == 3 else "")
        if route is None and parts[0] == "leases" and len(parts) == 2 and request.method == "POST":
            route = self._many_leases(parts[1])
        if route is None and request.method == "DELETE" and parts[0] == "faults" and len(parts) == 2:
            route = self._remove_fault(int(parts[1]))
        if route is None:
            raise Missing(f"no route {request.method} {request.path}")
        result = route(body)
        return await result if isinstance(result, Awaitable) else result

    # --- market --------------------------------------------------------------

    def _who(self, body: dict[str, Any], name: str) -> str:
        """The address in a member of the body, where a key may be given by its name; empty without the member."""
        text = str(body.get(name) or "")
        key = self._node.chain.genesis.keys.get(text)
        return text if key is None else key.address

    async def _provider(self, body: dict[str, Any]) -> dict[str, Any]:
        address = self._who(body, "address")
        payout, url = self._who(body, "payout_address") or address, str(body["api_url"])
        uuid = await actions.create_provider(self._node, address, payout_address=payout, api_url=url)
        return {"uuid": uuid}

    async def _sku(self, body: dict[str, Any]) -> dict[str, Any]:
        price = body["base_price"]
        uuid = await actions.create_sku(
            self._node,
            str(body["provider_uuid"]),
            name=str(body["name"]),
            price=int(price["amount"]),
            denom=str(price["denom"]),
            unit=int(body.get("unit", 1)),
        )
        return {"uuid": uuid}

    def _faucet(self, body: dict[str, Any]) -> dict[str, Any]:
        actions.mint(self._node.chain, self._who(body, "address"), _coins(body))
        return {}

    async def _credit(self, body: dict[str, Any]) -> dict[str, Any]:
        tenant = self._who(body, "tenant")
        sender = self._who(body, "as") or tenant
        address = await actions.fund_credit(self._node, tenant, _coins(body), sender=sender)
        return {"credit_address": address}

    def _drain(self, body: dict[str, Any]) -> dict[str, Any]:
        coins = None if body.get("all") else _coins(body)
        actions.drain_credit(self._node.chain, self._who(body, "tenant"), coins)
        return {}

    async def _lease(self, body: dict[str, Any]) -> dict[str, Any]:
        tenants = body.get("tenants") or ([self._who(body, "tenant")] if body.get("tenant") else None)
        uuids = await actions.create_leases(
            self._node,
            int(body.get("count", 1)),
            tenants=tenants,
            items=body.get("items"),
            sku=str(body.get("sku") or ""),
            meta_hash=_meta_hash(body),
        )
        return {"lease_uuids": uuids}

    # --- leases ----------------------------------------------------------------

    def _one_lease(self, method: str, uuid: str, verb: str) -> Route | None:
        if uuid not in self._node.chain.state.leases:
            raise Missing(f"no lease {uuid}")
        if method == "GET" and not verb:
            return lambda _: as_json(lease_message(self._node.chain.state.leases[uuid]))
        if method != "POST":
            return None
        if verb == "state":
            return lambda body: actions.write_state(self._node.chain, uuid, int(body["state"]))
        if verb == "domain":
            return lambda body: self._domain(uuid, body)
        many = self._many_leases(verb)
        return None if many is None else lambda body: many({**body, "lease_uuids": [uuid]})

    def _many_leases(self, verb: str) -> Route | None:
        if verb == "expire":
            return lambda body: actions.overdue(self._node.chain, body["lease_uuids"])
        if verb not in actions.VERBS:
            return None
        return lambda body: self._move(verb, body)

    async def _move(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        uuids, reason = list(body["lease_uuids"]), str(body.get("reason", ""))
        results = await actions.move_leases(self._node, verb, uuids, sender=self._who(body, "as"), reason=reason)
        return {"txs": [_tx(result) for result in results]}

    async def _domain(self, uuid: str, body: dict[str, Any]) -> dict[str, Any]:
        result = await actions.set_domain(
            self._node,
            uuid,
            str(body.get("custom_domain", "")),
            service_name=str(body.get("service_name", "")),
            sender=self._who(body, "as"),
        )
        return {"txs": [_tx(result)]}

    # --- time and state -----------------------------------------------------------

    def _params(self, body: dict[str, Any]) -> dict[str, Any]:
        return actions.change_params(self._node.chain, body)

    def _mode(self, body: dict[str, Any]) -> dict[str, Any]:
        interval = body.get("interval")
        self._node.set_mode(str(body["mode"]), None if interval is None else float(interval))
        return {"mode": self._node.mode, "interval": self._node.interval}

    def _blocks(self, body: dict[str, Any]) -> dict[str, Any]:
        for _ in range(int(body.get("count", 1))):
            self._node.chain.produce(step=int(float(body.get("step", 0)) * 10**9))
        return {"height": self._node.chain.height}

    def _clock(self, body: dict[str, Any]) -> dict[str, Any]:
        chain = self._node.chain
        if "advance" in body:
            chain.offset += int(float(body["advance"]) * 10**9)
        if "set" in body:
            chain.offset = time_ns(body["set"]) - clock.time_ns()
        if "freeze" in body:
            chain.frozen_step = int(float(body.get("step", 1)) * 10**9) if body["freeze"] else 0
        return {"offset_seconds": chain.offset / 10**9, "frozen": bool(chain.frozen_step)}

    def _reset(self, _body: dict[str, Any]) -> dict[str, Any]:
        self._node.reset()
        return {"height": self._node.chain.height}

    def _profile(self, body: dict[str, Any]) -> dict[str, Any]:
        self._node.chain.profile = profiles.profile(str(body["profile"]))
        return {"profile": self._node.chain.profile.name}

    def _restore(self, body: dict[str, Any]) -> dict[str, Any]:
        self._node.restore(body)
        return {"height": self._node.chain.height}

    def _clear_calls(self, _body: dict[str, Any]) -> dict[str, Any]:
        self._node.calls.clear()
        return {}

    def _fault(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._node.chain.faults.add(**body).as_json()

    def _clear_faults(self, _body: dict[str, Any]) -> dict[str, Any]:
        self._node.chain.faults.clear()
        return {}

    def _remove_fault(self, number: int) -> Route:
        def remove(_body: dict[str, Any]) -> dict[str, Any]:
            if not self._node.chain.faults.remove(number):
                raise Missing(f"no fault {number}")
            return {}

        return remove


def _coins(body: dict[str, Any]) -> dict[str, int]:
    return {str(coin["denom"]): int(coin["amount"]) for coin in body["coins"]}


def _meta_hash(body: dict[str, Any]) -> bytes:
    if body.get("meta_hash"):
        return bytes.fromhex(body["meta_hash"])
    if "payload_base64" in body:
        return hashlib.sha256(base64.b64decode(body["payload_base64"])).digest()
    if "payload" in body:
        if not isinstance(body["payload"], str):
            raise ValueError("payload is text; anything else goes as payload_base64")
        return hashlib.sha256(body["payload"].encode()).digest()
    return b""


def _tx(result: TxResult) -> dict[str, Any]:
    return {
        "hash": result.tx.hash,
        "height": result.height,
        "code": result.code,
        "codespace": result.codespace,
        "raw_log": result.log,
        "signer": result.tx.signer,
        "messages": [type_url for type_url, _ in result.tx.messages],
        "gas_used": result.gas_used,
    }
