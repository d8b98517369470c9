"""From claimed wishes to a transaction that should succeed: what still stands, which messages, how much gas.

Nothing here writes. A simulation costs nothing, so a group that would fail is sorted out before a fee is paid: its
leases are read exactly, the finished leave, and only if the rest would fail too it is halved until the culprits stand
alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from uuid import UUID

import structlog
from google.protobuf.any_pb2 import Any as PackedAny

from fred import breaker, metrics
from leases.chain import messages
from leases.chain.client import Absent, Account, ChainClient, ExactLease, Unknown
from leases.chain.codes import Verdict
from leases.chain.errors import GasTooHigh
from leases.chain.signer import Estimate, GasSource, Signer, WouldFail
from leases.chain.tx import MAX_TX_BYTES
from leases.lane_sql import Pick
from leases.status import LeaseState
from leases.wishes import WishState, wish_state, wish_state_as_read

log = structlog.get_logger("leases.lanes")

MOST_SIMULATIONS = 64
"""After so many the rest of a group waits for the next transaction."""
FIRST_GAS_PER_LEASE = 75_000
"""Until a simulation has told better."""
GAS_OF_CHECKS = 100_000
"""Added to the gas of the leases for what a transaction costs by itself."""
ENOUGH_TO_KNOW = 50
"""From so many leases on a simulation tells the gas of one well: what the transaction costs by itself is spread."""
KNOWN_SECONDS = 60.0
HOPELESS = frozenset({Verdict.MISCONFIGURED, Verdict.SIGNER})
"""Failures of who asks, not of a lease: sorting leases out cannot help."""

LeaseRead = ExactLease | Absent | Unknown


@dataclass(slots=True)
class Draft:
    """What becomes of the claimed wishes: `sent` fit one transaction, the others need none, or have to wait."""

    sent: list[Pick] = field(default_factory=list)
    done: list[Pick] = field(default_factory=list)
    moot: list[Pick] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)  # by id: why it waits, a failed attempt
    left: list[Pick] = field(default_factory=list)  # had no room this time
    reads: dict[UUID, LeaseRead] = field(default_factory=dict)
    gas_limit: int = 0
    account: Account | None = None
    ran_out: tuple[int, int] | None = None
    """Which transaction of these ran out of how much gas before."""

    def messages(self, signer: Signer) -> list[PackedAny]:
        """The messages of what is sent, ready for this signer."""
        return signer.in_providers_name(build(self.sent, signer.provider_address))


def build(picks: Sequence[Pick], provider: str) -> list[PackedAny]:
    """Messages of at most 100 leases each, one reason to a message, in the order of the picks."""
    if not picks:
        return []
    if picks[0].verb == "ack":
        return messages.acknowledge(provider, [pick.lease for pick in picks])
    make = messages.reject if picks[0].verb == "reject" else messages.close
    built: list[PackedAny] = []
    for reason, group in groupby(sorted(picks, key=lambda pick: pick.reason), key=lambda pick: pick.reason):
        built += make(provider, [pick.lease for pick in group], reason=reason)
    return built


class Simulations:
    """What simulations told this process, and whether asking for one is of use.

    Five useless answers of a node in a row, whoever asked, and it is left alone for 30 s. While transactions of a verb
    succeed their gas is known and nothing is asked: a simulation costs a node as much as the transaction. The first
    failure ends that.
    """

    def __init__(self) -> None:
        self._known_until: dict[str, float] = {}
        self.gas_per_lease: dict[str, int] = {}

    def known(self, signer: Signer, picks: Sequence[Pick]) -> int | None:
        """The gas of these wishes if it is known well enough not to ask."""
        verb = picks[0].verb
        if time.monotonic() > self._known_until.get(verb, 0.0):
            return None
        gas = self.gas_per_lease[verb] * len(picks) + GAS_OF_CHECKS
        return gas if not signer.gas.max_gas_limit or gas <= signer.gas.max_gas_limit else None

    def estimate(self, signer: Signer, chain: ChainClient, picks: Sequence[Pick], *, account: Account) -> Estimate:
        """The gas of these wishes of one verb; remembers what it told. Raises as `ask` does."""
        verb = picks[0].verb
        sendable = signer.in_providers_name(build(picks, signer.provider_address))
        try:
            estimate = self.ask(signer, chain, sendable, account=account)
        except WouldFail:
            self.forget(verb)
            raise
        if estimate.source is GasSource.SIMULATED:
            self.gas_per_lease[verb] = max(1, estimate.gas_limit // len(picks))
            if len(picks) >= ENOUGH_TO_KNOW:
                self._known_until[verb] = time.monotonic() + KNOWN_SECONDS
        return estimate

    def ask(self, signer: Signer, chain: ChainClient, messages: Sequence[PackedAny], *, account: Account) -> Estimate:
        """`Signer.estimate`, counted; while the node's simulations rest, the fall-back at once."""
        resting = breaker.of_simulation(chain.endpoint)
        ticket = resting.enter()
        if ticket is None:
            metrics.GAS_SIMULATIONS.labels("fallback").inc()
            return Estimate(
                gas_limit=signer.gas.fallback(), source=GasSource.FALLBACK, account=account, error="resting"
            )
        pulse = "neutral"
        try:
            estimate = signer.estimate(chain, messages, account=account)
            pulse = "success" if estimate.source is GasSource.SIMULATED else "failure"
        except GasTooHigh:
            pulse = "success"
            metrics.GAS_SIMULATIONS.labels("refused").inc()
            raise
        except WouldFail:
            pulse = "success"
            raise
        finally:
            resting.record(ticket, pulse=pulse)
        metrics.GAS_SIMULATIONS.labels(estimate.source.value).inc()
        if estimate.source is GasSource.FALLBACK:
            log.warning("lane.no_simulation", error=estimate.error, gas=estimate.gas_limit)
        return estimate

    def forget(self, verb: str) -> None:
        """Something of this verb failed: the next transaction is simulated."""
        self._known_until.pop(verb, None)


simulations = Simulations()


def draft(picks: Sequence[Pick], *, signer: Signer, chain: ChainClient, account: Account, until: float) -> Draft:
    """Sort the wishes (of one verb) out and say what one transaction can carry, working until `until` (monotonic).

    Raises `WouldFail` for a failure that no choice of leases avoids, and what `ChainClient.account` raises.
    """
    made = Draft(account=account)
    unread = [pick for pick in picks if _sort(made, pick, wish_state(pick.verb, _stored(pick))) is WishState.DOUBT]
    _read(made, unread, chain)
    made.sent, made.left = _one_history(made.sent, made.left, lane=str(signer.index or 0))
    if made.sent:
        _Fitting(made, signer, chain, until).fit()
    return made


def _stored(pick: Pick) -> LeaseState | None:
    return None if pick.chain_state is None else LeaseState.parse(pick.chain_state)


def _sort(made: Draft, pick: Pick, how: WishState) -> WishState:
    if how is WishState.SEND:
        made.sent.append(pick)
    elif how is WishState.DONE:
        made.done.append(pick)
    elif how is WishState.MOOT:
        made.moot.append(pick)
    return how


def _read(made: Draft, picks: Sequence[Pick], chain: ChainClient) -> None:
    """Read the leases of these exactly and sort them again; what is still in doubt waits."""
    if not picks:
        return
    reads = chain.leases([pick.lease for pick in picks])
    made.reads |= reads
    for pick in picks:
        read = reads[pick.lease]
        if _sort(made, pick, wish_state_as_read(pick.verb, read)) is WishState.DOUBT:
            made.refused[pick.id] = read.reason if isinstance(read, Unknown) else "the chain shows no such lease"


def _one_history(picks: list[Pick], left: list[Pick], *, lane: str) -> tuple[list[Pick], list[Pick]]:
    """Keep wishes together that failed together: those that ran out of gas before the rest, failed ones in halves."""
    ran_out = next((pick.ran_out_tx for pick in picks if pick.ran_out_tx is not None), None)
    if ran_out is not None:
        left = left + [pick for pick in picks if pick.ran_out_tx != ran_out]
        picks = [pick for pick in picks if pick.ran_out_tx == ran_out]
    worst = max((pick.attempts for pick in picks if not pick.fee_or_gas), default=0)
    if worst > 2:
        suspects = [pick for pick in picks if pick.attempts > 2 and not pick.fee_or_gas]
        most = max(1, len(suspects) >> (worst - 2))
        chosen = {pick.id for pick in suspects[:most]}
        left = left + [pick for pick in picks if pick.id not in chosen]
        picks = suspects[:most]
        if len(suspects) > most:
            metrics.ACK_FALLBACKS.labels(lane).inc()
    return picks, left


class _Fitting:
    """Finds the largest part of a draft's wishes that simulates well."""

    def __init__(self, made: Draft, signer: Signer, chain: ChainClient, until: float) -> None:
        self.made, self.signer, self.chain, self.until = made, signer, chain, until
        self.asked = 0

    def fit(self) -> None:
        """Leave in `sent` what fits, and set its gas. Raises `WouldFail` where leases are not to blame."""
        self._cut_to_size()
        try:
            self._settle()
        except WouldFail as first:
            if first.failure.verdict in HOPELESS:
                raise
            log.info("lane.would_fail", kind=self.made.sent[0].verb, leases=len(self.made.sent), why=str(first))
            suspects, self.made.sent = self.made.sent, []
            _read(self.made, suspects, self.chain)
            if not self.made.sent:
                return
            try:
                self._settle()
            except WouldFail:
                metrics.ACK_FALLBACKS.labels(str(self.signer.index or 0)).inc()
                self._bisect()

    def _estimate(self, picks: Sequence[Pick]) -> Estimate:
        self.asked += 1
        assert self.made.account is not None  # noqa: S101 - set where the draft was made
        return simulations.estimate(self.signer, self.chain, picks, account=self.made.account)

    def _settle(self) -> None:
        """Take the estimate; halve above the cap on gas; without a simulation cut to what the fall-back carries."""
        made, verb = self.made, self.made.sent[0].verb
        known = simulations.known(self.signer, made.sent)
        estimate = None
        if known is not None and made.account is not None:
            estimate = Estimate(gas_limit=known, source=GasSource.SIMULATED, account=made.account)
        while estimate is None:
            try:
                estimate = self._estimate(made.sent)
            except GasTooHigh as error:
                if len(made.sent) == 1:
                    made.refused[made.sent.pop().id] = str(error)
                    return
                self._keep(len(made.sent) // 2)
        made.account = estimate.account
        made.gas_limit = estimate.gas_limit
        if estimate.source is GasSource.FALLBACK:
            each = simulations.gas_per_lease.get(verb, FIRST_GAS_PER_LEASE)
            self._keep(max(1, estimate.gas_limit // each))
        self._climb(made)
        if not made.sent:
            return
        metrics.GAS_SIMULATED.observe(made.gas_limit)

    def _climb(self, made: Draft) -> None:
        """After a transaction ran out of gas: more of it. At the cap half of the leases, and one alone waits."""
        first = made.sent[0]
        if first.ran_out_gas is None or first.ran_out_tx is None:
            return
        made.ran_out = (first.ran_out_tx, first.ran_out_gas)
        if first.raised_gas is not None:
            made.gas_limit = max(made.gas_limit, first.raised_gas)
            return
        raised = self.signer.gas.after_running_out(first.ran_out_gas)
        metrics.OUT_OF_GAS_RETRIES.labels("exhausted" if raised is None else "retried").inc()
        if raised is not None:
            made.gas_limit = max(made.gas_limit, raised)
        elif len(made.sent) > 1:
            made.gas_limit = max(made.gas_limit, first.ran_out_gas)
            self._keep(len(made.sent) // 2)
        else:
            made.refused[first.id] = f"out of gas at max_gas_limit {self.signer.gas.max_gas_limit}"
            made.sent = []

    def _keep(self, number: int) -> None:
        self.made.left += self.made.sent[number:]
        self.made.sent = self.made.sent[:number]

    def _cut_to_size(self) -> None:
        """Stay below the size a mempool takes and below the cap on gas."""
        while len(self.made.sent) > 1:
            size = sum(len(message.value) for message in self.made.messages(self.signer))
            each = simulations.gas_per_lease.get(self.made.sent[0].verb)
            cap = self.signer.gas.max_gas_limit
            fits_gas = not cap or each is None or each * len(self.made.sent) <= cap
            if size <= MAX_TX_BYTES - 1000 and fits_gas:
                return
            self._keep((len(self.made.sent) + 1) // 2)

    def _bisect(self) -> None:
        """Halve until what fails stands alone; what fails alone waits as a failed attempt, the sound rest is sent."""
        parts = _halves(self.made.sent)
        self.made.sent = []
        sound: list[Pick] = []
        while parts:
            part = parts.pop()
            if self.asked >= MOST_SIMULATIONS or time.monotonic() > self.until:
                self.made.left += part
                continue
            try:
                self._estimate(part)
            except WouldFail as failed:
                if len(part) == 1:
                    self.made.refused[part[0].id] = str(failed)
                else:
                    parts += _halves(part)
                continue
            except GasTooHigh:
                pass  # it would not fail; how much of it fits is found when all is put together
            sound += part
        if not sound:
            return
        self.made.sent = sorted(sound, key=lambda pick: pick.lease)
        try:
            self._settle()
        except WouldFail:
            self.made.left += self.made.sent
            self.made.sent = []


def _halves(picks: list[Pick]) -> list[list[Pick]]:
    middle = (len(picks) + 1) // 2
    return [part for part in (picks[middle:], picks[:middle]) if part]


def without(made: Draft, keep: Mapping[int, int] | set[int]) -> Draft:
    """The same draft with only those of `keep` in its transaction; its gas still suffices."""
    return replace(made, sent=[pick for pick in made.sent if pick.id in keep])
