"""Faults: what a test makes the simulated chain do wrong.

A rule has an `effect`, `where` it applies, what must `match`, how many `times` (none: for ever) and its parameters.
`where` is a glob over the gRPC method path, an RPC method (`rpc:block_results` or plainly `block_results`), `ws`, or a
stage of the chain (`checktx`, `exec`, `index`, `block`); `*` is all. Rules are asked in the order of their making; the
first that fits is used.

`match` narrows a rule: `lease` (uuid), `signer` (address) and `message` (type URL or its last part) must occur in the
request or transaction, `event` (Tx, NewBlockHeader …) in a frame; `nth` is the number, or the list of numbers, of the
fitting calls that are hit, counted from 1; `probability` is between 0 and 1. The draws come from one seeded source:
a run can be repeated.

| Effect | Parameters | What happens |
|---|---|---|
| `grpc_error` | `code` (name), `text` | the call ends with that status |
| `rpc_error` | `text` | the RPC call answers -32603 with that text |
| `hang` | | no answer until the rule goes; the caller's own limit ends the call |
| `delay` | `ms`, `to_ms` | the answer comes late: fixed, or random between both |
| `lose_request` / `lose_response` | | nothing happens / it happens; the caller gets UNAVAILABLE |
| `stale_reads` | `blocks` | queries answer from so many blocks ago, the height header too |
| `empty_chain` | `height` | queries answer from a chain with this id on which nothing happened |
| `lease_vanish` | `uuid` | that lease answers NotFound and stands in no listing |
| `drop_page_row` | | the lease a page names as the next one is cancelled or closed before that page is asked for |
| `short_page` | | each page of leases comes empty first, with a key that leads to its rows |
| `unknown_field` | | every answer carries fields nobody knows |
| `index_lag` | `blocks` or `ms` | transactions are found late; the state is already new |
| `never_include` | | accepted, but stays in the mempool until its time-out height |
| `chain_error` | `codespace`, `code`, `raw_log`; `where` `checktx` or `exec` | a transaction is refused |
| `sequence_skip` | `n` | before a transaction is checked somebody else used n sequences of its signer |
| `mempool_full` | | no transaction is taken: sdk code 20 |
| `min_gas_price` | `price` in umfx | the node wants that much: sdk code 13 |
| `gas_factor` | `factor` | simulated gas is multiplied |
| `gas_info_missing` | | a simulation answers without gas |
| `empty_data` | | an included withdrawal has no data |
| `catching_up` | | the node says that it is syncing |
| `wrong_chain` | `chain_id` | the node, its blocks and its status name another chain |
| `reorg_reset` | | an empty chain with the same id starts at height 1; the old one is back when the rule goes |
| `ws_drop` / `ws_dup` | | event frames are lost / come twice |
| `ws_reorder` | | each two event frames of a subscription change places |
| `ws_delay` | `ms` | event frames come late |
| `ws_error` | `id` | a subscription (with that id) is answered with an error |
| `ws_cancel` | `id` | a subscription (with that id) is cancelled by the node |
| `ws_half_open` | | the node neither sends nor answers any more; the connection stays |
| `ws_close` | `code` | WebSockets are closed with that code (0: reset): at once, then before each block event |
| `ws_garbage` | `kind` `text`, `shape`, `huge` (else in turn) | what is no frame, as `ws_close` does |
"""

from __future__ import annotations

import asyncio
import fnmatch
import itertools
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

EFFECTS = frozenset(
    (
        *("grpc_error", "rpc_error", "hang", "delay", "lose_request", "lose_response"),
        *("stale_reads", "empty_chain", "lease_vanish", "drop_page_row", "short_page", "unknown_field"),
        *("index_lag", "never_include", "chain_error", "sequence_skip", "mempool_full", "min_gas_price"),
        *("gas_factor", "gas_info_missing", "empty_data", "catching_up", "wrong_chain", "reorg_reset"),
        *("ws_drop", "ws_dup", "ws_reorder", "ws_delay", "ws_error", "ws_cancel"),
        *("ws_half_open", "ws_close", "ws_garbage"),
    )
)
_STAGES = frozenset({"checktx", "exec", "index", "block"})
_TEXTS = ("lease", "signer", "message", "event")
_MATCHES = frozenset({*_TEXTS, "nth", "probability"})


@dataclass(slots=True)
class Fault:
    """One rule; `used` counts how often it was applied, `seen` how often it could have been."""

    id: int
    effect: str
    where: str = "*"
    times: int | None = None
    match: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    used: int = 0
    seen: int = 0

    def as_json(self) -> dict[str, Any]:
        """The rule as the admin API shows it."""
        shown = asdict(self)
        return {**shown.pop("parameters"), **shown}

    def fits(self, where: str, subject: bytes) -> bool:
        """Whether the rule is about this place and these bytes; the number and the draw are not looked at."""
        names = (where, where.partition(":")[2])
        if where != "*" and not any(fnmatch.fnmatchcase(name, self.where) for name in names):
            return False
        return all(str(self.match[name]).encode() in subject for name in _TEXTS if name in self.match)


class Faults:
    """The rules in force. Lives on the chain's event loop.

    `listeners` hear of every rule that is made (True) or ends (False).
    """

    def __init__(self) -> None:
        self.listeners: list[Callable[[Fault, bool], None]] = []
        self._rules: dict[int, Fault] = {}
        self._numbers = itertools.count(1)
        self._releases: dict[int, asyncio.Event] = {}
        self._draws = random.Random(1)  # noqa: S311

    def add(
        self,
        effect: str,
        *,
        where: str = "*",
        times: int | None = None,
        match: dict[str, Any] | None = None,
        **parameters: Any,
    ) -> Fault:
        """Make a rule; raises ValueError for an unknown effect or match."""
        if effect not in EFFECTS:
            raise ValueError(f"unknown effect {effect}; known are {', '.join(sorted(EFFECTS))}")
        strange = set(match or ()) - _MATCHES
        if strange:
            raise ValueError(f"unknown match {', '.join(sorted(strange))}; known are {', '.join(sorted(_MATCHES))}")
        place = f"chain:{where}" if where in _STAGES else where
        rule = Fault(next(self._numbers), effect, place, times, dict(match or {}), parameters)
        self._rules[rule.id] = rule
        self._tell(rule, True)
        return rule

    def remove(self, number: int) -> bool:
        """End a rule; whoever hangs because of it goes on. False when there is none."""
        rule = self._rules.pop(number, None)
        release = self._releases.pop(number, None)
        if release is not None:
            release.set()
        if rule is not None:
            self._tell(rule, False)
        return rule is not None or release is not None

    def clear(self) -> None:
        """End all rules."""
        for number in [*self._rules, *self._releases]:
            self.remove(number)

    def _tell(self, rule: Fault, began: bool) -> None:
        for listener in self.listeners:
            listener(rule, began)

    def all(self) -> list[Fault]:
        """Every rule in force."""
        return list(self._rules.values())

    def find(
        self, effect: str, where: str = "*", subject: bytes = b"", *, only: Callable[[Fault], bool] | None = None
    ) -> Fault | None:
        """The first rule of this effect that fits (and that `only` takes), counted as used; a used-up one ends."""
        for rule in self._rules.values():
            if rule.effect != effect or not rule.fits(where, subject) or (only is not None and not only(rule)):
                continue
            if self._hits(rule):
                return self._use(rule)
        return None

    def peek(self, effect: str) -> Fault | None:
        """A rule of this effect, not counted."""
        return next((rule for rule in self._rules.values() if rule.effect == effect), None)

    def _hits(self, rule: Fault) -> bool:
        rule.seen += 1
        nth = rule.match.get("nth")
        if nth is not None and rule.seen not in (nth if isinstance(nth, list) else [nth]):
            return False
        return self._draws.random() < float(rule.match.get("probability", 1))

    def _use(self, rule: Fault) -> Fault:
        rule.used += 1
        if rule.times is not None and rule.used >= rule.times:
            self._rules.pop(rule.id, None)
            self._tell(rule, False)
        return rule

    async def hold(self, where: str, subject: bytes = b"") -> None:
        """Apply delays, and hang until the rule that says so is removed."""
        delay = self.find("delay", where, subject)
        if delay is not None:
            await asyncio.sleep(self.delay_of(delay))
        rule = self.find("hang", where, subject)
        if rule is not None:
            await self._releases.setdefault(rule.id, asyncio.Event()).wait()

    def delay_of(self, rule: Fault) -> float:
        """Seconds of a delay: its `ms`, or a draw between `ms` and `to_ms`."""
        low = float(rule.parameters.get("ms", 0))
        return self._draws.uniform(low, float(rule.parameters.get("to_ms", low))) / 1000
