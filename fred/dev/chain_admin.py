"""The simulated chain's admin API: who is there, and what tenants do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from fred import http
from fred.curl import Request

CALL_S = 30.0


class ChainAdminError(RuntimeError):
    """The simulated chain did not do what it was asked."""


@dataclass(frozen=True, slots=True)
class Key:
    """An account of the simulated chain: its private key (64 hex digits), and the words that made it, if words did."""

    address: str
    private_key: str
    mnemonic: str = ""


@dataclass(frozen=True, slots=True)
class Inhabitants:
    """The chain of the demo: one provider with its SKUs, one tenant with credit."""

    chain_id: str
    provider_uuid: str
    provider: Key
    tenant: Key
    skus: Mapping[str, str]

    @property
    def smallest_sku(self) -> str:
        """The uuid of the cheapest SKU, the first one the chain names."""
        return next(iter(self.skus.values()))


class ChainAdmin:
    """Calls of the admin API; each raises ChainAdminError when it is refused or not answered."""

    def __init__(self, port: int) -> None:
        """The API listens on the loopback interface only."""
        self._base = f"http://127.0.0.1:{port}/admin"

    def call(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """POST `body`, or GET without one; return the decoded answer."""
        encoded = None if body is None else orjson.dumps(body)
        if encoded is not None:
            # A kept connection may be closing at this moment; a read may be repeated on a new one, a POST may not.
            http.fetch(Request(self._base + "/info", timeout=CALL_S))
        answer = http.fetch(
            Request(self._base + path, (("Content-Type", "application/json"),), encoded, timeout=CALL_S)
        )
        if answer.error is not None or answer.status is None:
            raise ChainAdminError(f"the simulated chain does not answer {path}: {answer.error}")
        try:
            decoded = orjson.loads(answer.body or b"null")
        except orjson.JSONDecodeError:
            decoded = {"error": answer.body[:200].decode(errors="replace")}
        if answer.status >= 400:
            raise ChainAdminError(f"the simulated chain refused {path}: {decoded.get('error', answer.status)}")
        return decoded

    def inhabitants(self) -> Inhabitants:
        """Read who is there."""
        info, keys = self.call("/info"), self.keys()
        return Inhabitants(
            chain_id=info["chain_id"],
            provider_uuid=info["provider_uuid"],
            provider=keys["provider"],
            tenant=keys["tenant"],
            skus=info["skus"],
        )

    def keys(self) -> dict[str, Key]:
        """Every account whose key the simulated chain knows, by its name."""
        return {name: _key(entry) for name, entry in self.call("/keys").items()}

    def create_leases(self, tenant: str, sku: str, *, count: int) -> list[str]:
        """`count` leases of one tenant, all in one block; their uuids."""
        answer = self.call("/lease", {"tenant": tenant, "sku": sku, "count": count})
        uuids: list[str] = answer["lease_uuids"]
        return uuids

    def spread_leases(self, sku: str, *, count: int) -> list[str]:
        """`count` leases, shared out over all tenants that have credit, all in one block; their uuids."""
        answer = self.call("/lease", {"sku": sku, "count": count})
        uuids: list[str] = answer["lease_uuids"]
        return uuids

    def close_leases(self, uuids: Sequence[str], *, tenant: str) -> None:
        """Their tenant closes them."""
        self.call("/leases/close", {"lease_uuids": list(uuids), "as": tenant})

    def state_of(self, uuid: str) -> str:
        """The lease's state by its chain name, for example `LEASE_STATE_ACTIVE`."""
        state: str = self.call(f"/lease/{uuid}")["state"]
        return state


def _key(entry: Mapping[str, Any]) -> Key:
    return Key(entry["address"], entry["private_key_hex"], entry.get("mnemonic", ""))
