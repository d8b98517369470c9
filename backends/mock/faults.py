"""Rules that make the mock misbehave: when one applies, and what it does.

The same seed and the same order of requests give the same faults.
"""

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

import msgspec

from backends.mock.driver import Whim
from backends.mock.script import Fate

MAX_RULES = 200
MAX_SECONDS = 600.0
MAX_COPIES = 100

Shape = Literal[
    "envelope", "empty", "blank", "html", "truncated", "null", "object", "foreign", "unknown_code", "long",
    "duplicate_keys", "wrong_case", "redirect",
]  # fmt: skip
ListFault = Literal[
    "omit", "duplicate", "foreign", "not_canonical", "null", "stuck_token", "endless", "oversize", "not_found"
]
BodyFault = Literal["oversize", "many", "not_utf8", "null", "zeros", "nan", "negative", "withheld"]
CallbackFault = Literal[
    "drop", "duplicate", "delay", "reorder", "late", "wrong_key", "old", "future", "unsigned", "tampered",
    "wrong_query", "retained", "oversize", "crash",
]  # fmt: skip


class FaultError(Exception):
    """A rule that cannot be, and why."""


class Match(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Which occasions a rule is for. Empty fields are for all; times are in seconds since the rule was made.

    `route` is a route's name (`provision`, `provision_info`, …), for results the task (`provision`, `restart`, …), for
    callbacks the status. `nth` counts the occasions that route and lease leave over, from 1.
    """

    route: str = ""
    lease: str = ""
    nth: tuple[int, ...] = ()
    every: int = 0
    probability: float = 1.0
    after_s: float = 0.0
    until_s: float = math.inf


class _Rule(msgspec.Struct, forbid_unknown_fields=True, tag_field="action"):
    match: Match = Match()
    times: int = 0
    """How often it applies at most; 0: as often as it matches."""


class Latency(_Rule, tag="latency"):
    """Wait: `ms`, or evenly between `low_ms` and `high_ms`, or log-normally with `p50_ms` and `p99_ms`."""

    at: Literal["before", "answer", "body"] = "answer"
    ms: float = 0.0
    low_ms: float = 0.0
    high_ms: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0

    def seconds(self, chance: random.Random) -> float:
        """How long this time."""
        wait = self.ms
        if self.high_ms > 0:
            wait = chance.uniform(self.low_ms, self.high_ms)
        elif self.p50_ms > 0:
            sigma = math.log(max(self.p99_ms, self.p50_ms) / self.p50_ms) / 2.3263
            wait = chance.lognormvariate(math.log(self.p50_ms), sigma) if sigma > 0 else self.p50_ms
        return min(MAX_SECONDS, max(0.0, wait / 1000))


class Hang(_Rule, tag="hang"):
    """Never answer, or answer with half a body and no more, until the caller goes; the work is done with `effect`."""

    at: Literal["answer", "body"] = "answer"
    effect: bool = False


class Status(_Rule, tag="status"):
    """Answer this without doing anything, or after it with `effect`."""

    status: int = 500
    shape: Shape = "envelope"
    error: str = "injected fault"
    code: str = ""
    effect: bool = False


class Lose(_Rule, tag="lose"):
    """Do the work, then cut the connection without an answer; without `effect` only cut."""

    effect: bool = True


class Listing(_Rule, tag="inventory"):
    """Spoil a list of provisions or retentions."""

    kind: ListFault = "omit"


class Body(_Rule, tag="body"):
    """Spoil the body of logs (`oversize`, `many`, `not_utf8`, `null`) or stats (the others)."""

    kind: BodyFault = "null"


class Crash(_Rule, tag="crash"):
    """End the process with this status; after the work with `effect`."""

    status: int = 1
    effect: bool = False


class Outcome(_Rule, tag="result"):
    """End work otherwise: `fail` with reason and message, `never`, `twice`; `seconds` later than it would."""

    kind: Literal["fail", "never", "twice", "late"] = "fail"
    reason: str = "Internal"
    message: str = "internal error"
    seconds: float = 0.0


class Report(_Rule, tag="callback"):
    """Spoil a callback. `copies` for `duplicate`, `seconds` for `delay`."""

    kind: CallbackFault = "drop"
    copies: int = 2
    seconds: float = 1.0


Rule = Latency | Hang | Status | Lose | Listing | Body | Crash | Outcome | Report
RequestRule = Latency | Hang | Status | Lose | Listing | Body | Crash
_RULES = msgspec.json.Decoder(Rule | list[Rule])


def parse(text: bytes | str) -> list[Rule]:
    """One rule or a list of them. Raises `FaultError`."""
    try:
        found = _RULES.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FaultError(str(error)) from None
    rules = found if isinstance(found, list) else [found]
    if len(rules) > MAX_RULES:
        raise FaultError(f"more than {MAX_RULES} rules")
    for rule in rules:
        _check(rule)
    return rules


def _check(rule: Rule) -> None:
    if not 0.0 <= rule.match.probability <= 1.0:
        raise FaultError("probability is between 0 and 1")
    if isinstance(rule, Report) and not (1 <= rule.copies <= MAX_COPIES and 0 <= rule.seconds <= MAX_SECONDS):
        raise FaultError(f"copies are 1 to {MAX_COPIES}, seconds 0 to {MAX_SECONDS:g}")
    if isinstance(rule, Outcome) and not 0 <= rule.seconds <= MAX_SECONDS:
        raise FaultError(f"seconds are 0 to {MAX_SECONDS:g}")
    if isinstance(rule, Status) and not 200 <= rule.status <= 599:
        raise FaultError("a status is 200 to 599")


@dataclass(slots=True)
class _Entry:
    rule: Rule
    since: float
    seen: int = 0
    applied: int = 0


@dataclass
class RuleBook:
    """The rules in force. Used from one event loop."""

    seed: int = 0
    moment: Callable[[], float] = time.monotonic
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """No rules yet."""
        self._entries: list[_Entry] = []
        self.chance = random.Random(self.seed)  # noqa: S311 (repeatable on purpose)

    def add(self, rules: Iterable[Rule]) -> None:
        """Put these in force, after those that are. Raises `FaultError` when there are too many."""
        fresh = [_Entry(rule, self.moment()) for rule in rules]
        if len(self._entries) + len(fresh) > MAX_RULES:
            raise FaultError(f"more than {MAX_RULES} rules")
        self._entries.extend(fresh)

    def clear(self) -> None:
        """No rules any more, and chance begins anew."""
        self._entries.clear()
        self.counts.clear()
        self.chance = random.Random(self.seed)  # noqa: S311 (repeatable on purpose)

    @property
    def rules(self) -> list[tuple[Rule, int]]:
        """Those in force, and how often each has applied."""
        return [(entry.rule, entry.applied) for entry in self._entries]

    def __bool__(self) -> bool:
        return bool(self._entries)

    def requests(self, route: str, lease: str) -> Sequence[RequestRule]:
        """What happens to this request: every rule that applies, in order."""
        return [rule for rule in self._apply(RequestRule, route, lease) if not isinstance(rule, Outcome | Report)]

    def reports(self, status: str, lease: str) -> Sequence[Report]:
        """What happens to this callback."""
        return [rule for rule in self._apply(Report, status, lease) if isinstance(rule, Report)]

    def result(self, lease_uuid: UUID, *, task: str) -> Whim | None:
        """What happens to this piece of work; see `driver.Whims`."""
        for rule in self._apply(Outcome, task, str(lease_uuid)):
            if isinstance(rule, Outcome):
                return Whim(
                    fate=Fate(rule.reason, rule.message) if rule.kind == "fail" else None,
                    never=rule.kind == "never",
                    twice=rule.kind == "twice",
                    after=rule.seconds,
                )
        return None

    def _apply(self, kind: object, route: str, lease: str) -> list[Rule]:
        found = []
        for entry in self._entries:
            if isinstance(entry.rule, kind) and self._applies(entry, route, lease):  # type: ignore[arg-type]
                entry.applied += 1
                self.counts[str(entry.rule.__struct_config__.tag)] += 1
                found.append(entry.rule)
        return found

    def _applies(self, entry: _Entry, route: str, lease: str) -> bool:
        rule, match = entry.rule, entry.rule.match
        if (match.route and match.route != route) or not lease.startswith(match.lease):
            return False
        if rule.times and entry.applied >= rule.times:
            return False
        if not match.after_s <= self.moment() - entry.since < match.until_s:
            return False
        entry.seen += 1
        if match.nth and entry.seen not in match.nth:
            return False
        if match.every and entry.seen % match.every:
            return False
        return match.probability >= 1.0 or self.chance.random() < match.probability
