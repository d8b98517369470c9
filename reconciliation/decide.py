"""What a lease needs now: a table of rules over facts, the first that applies decides. Pure.

Each rule's docstring is its line in the printed table (``python -m reconciliation.decide``). Rules take the facts, the
time and the limits, and return a decision or None. Nothing here may destroy on anything but an :class:`ExactLease`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from reconciliation import rules_command, rules_ended, rules_idle, rules_operation, rules_restore
from reconciliation.decisions import Announce, Decision, Need, Rest, Wait
from reconciliation.facts_types import Absent, LeaseFacts, Limits, NeedKind, NotRead, Unknown
from reconciliation.texts import retained_text

Rule = Callable[[LeaseFacts, datetime, Limits], Decision | None]


def source_unknown(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """the chain gave no usable answer | wait, with the reason; nothing is concluded"""
    if isinstance(facts.chain, Unknown):
        own, after = facts.chain.is_own, limits.source_retry
        if facts.chain.behind:  # no silence: the node is there in about so many blocks
            after = min(facts.chain.behind * limits.stale_retry, after)
        return Decision(Wait(), reason=facts.chain.reason, after=after, failed=own, spread=not own)
    return None


def never_read(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """a stub, or facts older than the last news | read the lease exactly"""
    if isinstance(facts.chain, NotRead):
        return Decision(Need(NeedKind.EXACT_READ), after=limits.stale_retry)
    return None


def absent_on_chain(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """the chain has no such lease (phantom, other chain, node behind) | wait; nothing is deleted"""
    if isinstance(facts.chain, Absent):
        return Decision(Wait(), reason="chain_unknown", after=limits.longest)
    return None


def observation(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """a callback that moved no operation | announce it to subscribers; that data is kept, once"""
    callbacks = facts.callbacks
    if facts.operation is not None:
        callbacks = tuple(one for one in callbacks if one.selector_id != facts.operation.id)
    if not callbacks:
        return None
    events: list[tuple[str, str]] = []
    for one in callbacks:
        if one.status == "success" and not facts.is_ended:
            events.append(("ready", ""))
        elif one.status == "failed" and not facts.is_ended:
            events.append(("failed", one.error))
        elif one.status == "deprovisioned" and one.retained and "retained" not in (facts.last_status, *dict(events)):
            events.append(("retained", retained_text(facts.uuid)))
    return Decision(Announce(tuple(events), tuple(one.id for one in callbacks)), after=limits.at_once)


def at_rest(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision | None:
    """anything else | rest until there is news"""
    return Decision(Rest())


TABLE: Sequence[Rule] = (
    source_unknown,
    never_read,
    absent_on_chain,
    rules_operation.removed_by_backend,
    *rules_command.REPORTS,
    observation,
    *rules_command.ENDED,
    *rules_command.LIVE,
    *rules_ended.TABLE,
    *rules_restore.TABLE,
    *rules_operation.TABLE,
    *rules_idle.PENDING,
    *rules_idle.ACTIVE,
    at_rest,
)


def decide(facts: LeaseFacts, now: datetime, limits: Limits) -> Decision:
    """What this lease needs now. Same facts, same decision.

    Whatever the rule says, the lease is looked at again at once while a report is not told yet, and after a while as
    long as a wish for the chain, a tenant's command, or a removal, is open.
    """
    decided = next((found for rule in TABLE if (found := rule(facts, now, limits)) is not None), Decision(Rest()))
    if decided.after is not None:
        return decided
    if facts.callbacks:
        return replace(decided, after=limits.at_once)
    is_open = any(one.is_open for one in facts.actions) or not all(one.is_done for one in facts.teardowns)
    is_open = is_open or bool(facts.commands)
    return replace(decided, after=limits.longest) if is_open else decided


def printed_table() -> str:
    """The table as Markdown: number, name, when it applies, what it decides."""
    lines = ["| # | rule | applies when | then |", "|---|---|---|---|"]
    for number, rule in enumerate(TABLE, 1):
        when, then = " ".join((rule.__doc__ or "|").split()).split("|", 1)
        lines.append(f"| {number} | `{rule.__name__}` | {when.strip()} | {then.strip()} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(printed_table())  # noqa: T201 - this is its output
