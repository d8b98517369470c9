"""Faults: what a test makes the simulated chain do wrong.

A rule has an `effect`, `where` it applies (a glob over the gRPC method path, `rpc:<method>`, `ws`; `*` is all), how
many `times` (none: for ever) and its parameters. Rules are asked in the order of their making; the first that fits
is used.

| Effect | Parameters | What happens |
|---|---|---|
| `grpc_error` | `code` (name), `text` | the call ends with that status |
| `rpc_error` | `text` | the RPC call answers -32603 with that text |
| `hang` | | no answer until the rule goes; the caller's own limit ends the call |
| `delay` | `ms` | the answer comes late |
| `lose_request` / `lose_response` | | nothing happens / it happens; the caller gets UNAVAILABLE |
| `stale_reads` | `blocks` | queries answer from so many blocks ago, the height header too |
| `empty_chain` | | queries answer from a chain with this id on which nothing happened |
| `lease_vanish` | `uuid` | that lease answers NotFound and stands in no listing |
| `index_lag` | `blocks` or `ms` | transactions are found late; the state is already new |
| `never_include` | | accepted, but stays in the mempool until its time-out height |
| `chain_error` | `codespace`, `code`, `raw_log`; `where` `chain:checktx` or `chain:exec` | a transaction is refused |
| `gas_factor` | `factor` | simulated gas is multiplied |
| `gas_info_missing` | | a simulation answers without gas |
| `catching_up` | | the node says that it is syncing |
| `ws_close` | `code` | WebSockets are closed with that code: at once, then before each block event |
| `ws_drop` | | event frames are lost |
"""

from __future__ import annotations

import asyncio
import fnmatch
import itertools
from dataclasses import asdict, dataclass, field
from typing import Any

EFFECTS = frozenset(
    {
        "grpc_error",
        "rpc_error",
        "hang",
        "delay",
        "lose_request",
        "lose_response",
        "stale_reads",
        "empty_chain",
        "lease_vanish",
        "index_lag",
        "never_include",
        "chain_error",
        "gas_factor",
        "gas_info_missing",
        "catching_up",
        "ws_close",
        "ws_drop",
    }
)


@dataclass(slots=True)
class Fault:
    """One rule; `used` counts how often it was applied."""

    id: int
    effect: str
    where: str = "*"
    times: int | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    used: int = 0

    def as_json(self) -> dict[str, Any]:
        """The rule as the admin API shows it."""
        shown = asdict(self)
        return {**shown.pop("parameters"), **shown}


class Faults:
    """The rules in force. Lives on the chain's event loop."""

    def __init__(self) -> None:
        self._rules: dict[int, Fault] = {}
        self._numbers = itertools.count(1)
        self._releases: dict[int, asyncio.Event] = {}

    def add(self, effect: str, *, where: str = "*", times: int | None = None, **parameters: Any) -> Fault:
        """Make a rule; raises ValueError for an unknown effect."""
        if effect not in EFFECTS:
            raise ValueError(f"unknown effect {effect}; known are {', '.join(sorted(EFFECTS))}")
        rule = Fault(next(self._numbers), effect, where, times, parameters)
        self._rules[rule.id] = rule
        return rule

    def remove(self, number: int) -> bool:
        """End a rule; whoever hangs because of it goes on. False when there is none."""
        found = self._rules.pop(number, None) is not None
        release = self._releases.pop(number, None)
        if release is not None:
            release.set()
        return found or release is not None

    def clear(self) -> None:
        """End all rules."""
        self._rules.clear()
        for release in self._releases.values():
            release.set()
        self._releases.clear()

    def all(self) -> list[Fault]:
        """Every rule in force."""
        return list(self._rules.values())

    def find(self, effect: str, where: str = "*") -> Fault | None:
        """The first rule of this effect that fits, counted as used; a used-up one is forgotten."""
        for rule in self._rules.values():
            if rule.effect == effect and (where == "*" or fnmatch.fnmatchcase(where, rule.where)):
                return self._use(rule)
        return None

    def peek(self, effect: str) -> Fault | None:
        """A rule of this effect, not counted."""
        return next((rule for rule in self._rules.values() if rule.effect == effect), None)

    def _use(self, rule: Fault) -> Fault:
        rule.used += 1
        if rule.times is not None and rule.used >= rule.times:
            self._rules.pop(rule.id, None)
        return rule

    async def hold(self, where: str) -> None:
        """Apply delays, and hang until the rule that says so is removed."""
        delay = self.find("delay", where)
        if delay is not None:
            await asyncio.sleep(float(delay.parameters.get("ms", 0)) / 1000)
        rule = self.find("hang", where)
        if rule is not None:
            await self._releases.setdefault(rule.id, asyncio.Event()).wait()
