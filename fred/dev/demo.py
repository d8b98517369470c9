"""What the demo's tenant does: takes leases, waits until they are served, looks at one, closes them."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from fred import http
from fred.curl import Request
from fred.dev.board import Board
from fred.dev.house import TENANT_MNEMONIC, House, HouseError
from fred.dev.options import ROOT
from leases.chain.keys import SigningKey
from tenants_api import tokens

ENDED: Final = ("ended", "retained")


@dataclass(slots=True)
class Demo:
    """A tenant of the house and its leases."""

    house: House
    board: Board
    leases: Sequence[str] = ()
    _key: SigningKey = field(init=False)

    def __post_init__(self) -> None:
        """Take the tenant's key."""
        self._key = SigningKey.from_hex(self.house.inhabitants.tenant.private_key)

    @property
    def tenant(self) -> str:
        """The tenant's address."""
        return self.house.inhabitants.tenant.address

    def take_leases(self, count: int) -> float:
        """Create leases in one block and wait until all are ACTIVE; return the seconds from block to the last."""
        who = self.house.inhabitants
        self.house.wait_for(
            self.board.is_watched,
            "waiting for the watcher",
            seconds=self.house.options.wait_s,
            where=self.house.unhealthy,
        )
        self.house.teller.step(f"creating {_leases(count)} on the chain")
        self.leases = self.house.chain.create_leases(self.tenant, who.smallest_sku, count=count)
        started = time.monotonic()
        self._wait_for_phase(("active",), f"waiting until {_leases(count)} {_are(count)} ACTIVE")
        seconds = time.monotonic() - started
        state = self.house.chain.state_of(self.leases[0])
        if state != "LEASE_STATE_ACTIVE":
            raise HouseError(f"lease {self.leases[0]} should be ACTIVE on the chain and is {state}")
        return seconds

    def close_leases(self) -> float:
        """Close them and wait until everything is torn down; return the seconds it took."""
        self.house.teller.step("closing on the chain")
        self.house.chain.close_leases(self.leases, tenant=self.tenant)
        started = time.monotonic()
        self._wait_for_phase(ENDED, "waiting for the teardown")
        return time.monotonic() - started

    def token(self) -> str:
        """A fresh access token of the first lease; it is good for 30 seconds and one checked request."""
        return tokens.mint(self._key, tenant=self.tenant, lease_uuid=self.leases[0], timestamp=int(time.time()))

    def connection(self) -> dict[str, Any]:
        """Ask the tenant API how to reach the first lease's workload."""
        url = self.house.url("api", f"/v1/leases/{self.leases[0]}/connection")
        answer = http.fetch(Request(url, (("Authorization", f"Bearer {self.token()}"),), timeout=15.0))
        if answer.status != 200:
            raise HouseError(f"GET {url} answered {answer.status or answer.error}: {answer.body[:300]!r}")
        body: dict[str, Any] = orjson.loads(answer.body)
        return body

    def recipe(self) -> str:
        """Lines to paste into a shell: each makes a token of its own, because a token is short-lived."""
        folder = self.house.options.folder
        words = [sys.executable, str(ROOT / "manage.py"), "lease_token", "-tenant", self.tenant]
        mint = f"{shlex.join([*words, '-lease-uuid', self.leases[0]])} < {shlex.quote(str(folder / TENANT_MNEMONIC))}"
        lines = [f"token() {{ {mint}; }}"]
        lease = self.house.url("api", f"/v1/leases/{self.leases[0]}")
        lines += [
            f'curl -sS -H "Authorization: Bearer $(token)" {lease}/{what}'
            for what in ("status", "connection", "provision")
        ]
        lines.append(f"curl -sS {self.house.url('api', '/readyz')}")
        return "\n".join(lines)

    def _wait_for_phase(self, phases: Sequence[str], what: str) -> None:
        self.house.wait_for(
            lambda: self.board.count(self.leases, phases) == len(self.leases),
            what,
            seconds=self.house.options.wait_s,
            where=lambda: f"{self.board.story(self.leases)}; {self.house.unhealthy()}",
        )


def _leases(count: int) -> str:
    return "a lease" if count == 1 else f"{count} leases"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
