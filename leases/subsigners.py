"""Sub-signers: keys that send in the provider's name, so that several transactions fit one block.

One pass, by whoever holds the periodic task's row, brings them one step nearer to what the settings say: write missing
keys, read grants and balances, let those sign that have all they need, and send at most one errand (grants, then
top-ups, then revocations of those removed). Its outcome brings the next pass. Everything is read anew each time, so a
pass may die anywhere.

A sub-signer that lacks something is left out alone; the others and, while there is none, the provider's key go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog
from django.conf import settings
from google.protobuf.any_pb2 import Any as PackedAny

from fred import metrics, periodic
from fred.tasks import LANES, hint
from leases import errands, inclusion, node, subsigner_sql
from leases.chain import messages
from leases.chain.client import ChainClient, Coin
from leases.chain.errors import ChainError, GasTooHigh, KeyUnusable
from leases.chain.signer import Signer, WouldFail
from leases.lane_draft import FIRST_GAS_PER_LEASE
from leases.subsigner_sql import Row

log = structlog.get_logger("leases.subsigners")

SOON = timedelta(seconds=1)
"""An errand is on its way, or waits for the provider's key; its outcome usually comes first."""
RETRY = timedelta(minutes=5)
"""What the chain refused one by one is tried again so much later."""
GAS_RESERVE = 1_000_000
"""Base units that the provider keeps for its own fees when it tops others up."""
PASS_LIMIT = timedelta(minutes=2)


class GrantsUnverifiedError(Exception):
    """The chain did not say which grants there are: everything stays as it was, and is asked again soon."""


def run_due() -> list[str]:
    """Run the pass if it is due and nobody else is at it."""
    return periodic.run_due({subsigner_sql.TASK: JOB})


def _interval() -> timedelta:
    interval: timedelta = settings.FRED.sub_signer_fund_check_interval
    return max(interval, SOON)


def look_after() -> timedelta | None:
    """One pass; when the next is due, None for the usual interval.

    Raises `GrantsUnverifiedError` when the chain did not answer; whoever was usable stays so.
    """
    keys = node.sub_keys()
    if keys.count:
        _write_keys()
    subsigner_sql.ensure(node.signers())
    rows = subsigner_sql.sub_signers()
    if not rows:
        return None
    if subsigner_sql.has_open_errand(inclusion.ERRANDS):
        return SOON
    return _Pass(keys.present(), rows, settings.FRED.sub_signer_count, node.client(), subsigner_sql.now()).run()


JOB = periodic.Job(look_after, _interval, PASS_LIMIT)


def _write_keys() -> None:
    keys = node.sub_keys()
    try:
        for name in keys.write_missing():
            log.info("signer.key_written", key=name)
    except KeyUnusable as error:
        log.warning("signer.key_not_written", error=str(error))


Item = tuple[str, ...]
"""What one message of an errand is about: a sub-signer's address, and the type of a grant."""


@dataclass(slots=True)
class _Pass:
    """What is known in one pass."""

    signers: Sequence[Signer]
    rows: Sequence[Row]
    count: int
    chain: ChainClient
    started_at: datetime
    balances: dict[str, int] = field(default_factory=dict)

    def run(self) -> timedelta | None:
        """Read, promote and demote, send at most one errand."""
        self._read_balances()
        try:
            missing = self._missing_grants()
        except ChainError as error:
            metrics.GRANT_CHECKS.labels("error").inc()
            log.warning("signer.grants_unverified", error=str(error))
            if self._fund():
                return SOON
            raise GrantsUnverifiedError(f"authz grants could not be verified: {error}") from error
        self._judge(missing)
        wanted = [(address, kind) for address, kinds in missing.items() for kind in kinds]
        if self._errand("grant", wanted):
            return SOON
        metrics.GRANT_CHECKS.labels("error" if wanted else "success").inc()
        if self._fund() or self._revoke():
            return SOON
        is_unread = any(one not in self.balances for one in self._payers())
        if is_unread or subsigner_sql.refused_since(self.started_at):  # not to be known is not to lack
            return min(inclusion.RECHECK_SIGNER, _interval())
        is_lacking = bool(wanted) or any(not self._can_pay(one) for one in self.signers)
        return min(RETRY, _interval()) if is_lacking else None

    # What is there

    def _missing_grants(self) -> Mapping[str, Sequence[str]]:
        """For each sub-signer here the types it was not granted, in order. Raises what the chain raises."""
        return {one.address: self._types(one.address, granted=False) for one in self.signers}

    def _types(self, address: str, *, granted: bool) -> list[str]:
        granter = settings.FRED.provider_address
        return [
            kind
            for kind in messages.DELEGATED_TYPES
            if self.chain.has_grant(granter, address, type_url=kind) is granted
        ]

    def _payers(self) -> tuple[str, ...]:
        """The addresses that pay fees: the provider's and those of the sub-signers here."""
        return (settings.FRED.provider_address, *(one.address for one in self.signers))

    def _read_balances(self) -> None:
        """Read balances in the fee's denomination; who could not be read is left out."""
        for address in self._payers():
            try:
                self.balances[address] = self.chain.balance(address, settings.FRED.fee_denom)
            except ChainError as error:
                log.warning("signer.balance_unread", signer=address, error=str(error))

    def _can_pay(self, one: Signer) -> bool | None:
        """Whether its balance pays for one transaction as large as they get; None when it is not known."""
        balance = self.balances.get(one.address)
        config = settings.FRED
        largest = one.gas.fee(config.ack_max_per_tx * FIRST_GAS_PER_LEASE)
        return None if balance is None else balance >= min(largest, config.sub_signer_min_balance.amount)

    def _judge(self, missing: Mapping[str, Sequence[str]]) -> None:
        """Let those sign that have their grants and can pay; the others not. Without a balance nothing changes."""
        promoted = False
        for one in self.signers:
            lacks, can_pay = missing[one.address], self._can_pay(one)
            granted = [kind for kind in messages.DELEGATED_TYPES if kind not in lacks]
            if lacks or can_pay is False:
                why = f"no grant for {', '.join(lacks)}" if lacks else "its balance pays for no transaction"
                if subsigner_sql.demote(one.address, error=why, granted=granted):
                    log.warning("signer.demoted", signer=one.address, error=why)
            elif can_pay and subsigner_sql.promote(one.address, granted=granted, seen_at=self.started_at):
                promoted = True
                log.info("signer.promoted", signer=one.address, index=one.index)
        if promoted:
            hint.send(LANES)

    # What is done

    def _fund(self) -> bool:
        """Top up whoever is below the minimum, if the provider can afford all of them; True when that is under way."""
        config = settings.FRED
        poor = [
            (one.address,)
            for one in self.signers
            if self.balances.get(one.address, config.sub_signer_min_balance.amount)
            < config.sub_signer_min_balance.amount
        ]
        has = self.balances.get(config.provider_address)
        if not poor or has is None:
            return False
        needed = config.sub_signer_top_up_amount.amount * len(poor) + GAS_RESERVE
        if has < needed:
            why = (
                f"provider balance {has} insufficient to fund {len(poor)} sub-signers (need {needed} with gas reserve)"
            )
            log.warning("signer.cannot_fund", error=why)
            return False
        return self._errand("fund", poor)

    def _revoke(self) -> bool:
        """Take the grants of removed sub-signers back, and forget those that have none; True when under way."""
        here = {one.index: one.address for one in self.signers}
        wanted: list[Item] = []
        for row in self.rows:
            is_replaced = row.index in here and here[row.index] != row.address
            is_removed = row.index is None or row.index >= self.count or is_replaced
            if not is_removed or row.address in here.values():
                continue
            if subsigner_sql.demote(row.address, error="removed"):
                log.warning("signer.demoted", signer=row.address, error="removed")
            if row.is_open:
                continue  # its transaction needs the grants
            kinds = self._types(row.address, granted=True)
            wanted += [(row.address, kind) for kind in kinds]
            if not kinds:
                subsigner_sql.retire(row.address)
                log.info("signer.retired", signer=row.address, index=row.index)
        return self._errand("revoke", wanted)

    def _errand(self, kind: str, wanted: Sequence[Item]) -> bool:
        """Do what is wanted in one transaction; after a failure one by one, leaving out what failed alone.

        True when it is under way, or waits for the provider's key.
        """
        if not wanted:
            return False
        failed = subsigner_sql.failed_errands(kind, within=RETRY)
        if not failed:
            try:
                errands.send(kind, [self._message(kind, one) for one in wanted], about=wanted)
            except (WouldFail, GasTooHigh) as error:
                log.warning("errand.cannot_send", kind=kind, about=[list(one) for one in wanted], error=str(error))
            else:
                return True
        alone = {tuple(one.about[0]): one for one in reversed(failed) if len(one.about) == 1}
        gas = node.provider().gas
        for one in wanted:
            before, least_gas = alone.get(one), 0
            if before is not None:
                raised = gas.after_running_out(before.gas_limit) if before.ran_out_of_gas else None
                if raised is None:
                    self._note(kind, one, before.error)
                    continue
                least_gas = raised
            try:
                errands.send(kind, [self._message(kind, one)], about=[one], least_gas=least_gas)
            except (WouldFail, GasTooHigh) as error:
                self._note(kind, one, str(error))
            else:
                return True
        return False

    @staticmethod
    def _message(kind: str, one: Item) -> PackedAny:
        config = settings.FRED
        if kind == "grant":
            return messages.grant(config.provider_address, one[0], type_url=one[1])
        if kind == "revoke":
            return messages.revoke(config.provider_address, one[0], type_url=one[1])
        top_up = Coin(denom=config.sub_signer_top_up_amount.denom, amount=config.sub_signer_top_up_amount.amount)
        return messages.send(config.provider_address, one[0], coins=[top_up])

    @staticmethod
    def _note(kind: str, one: Item, error: str) -> None:
        doing = {"grant": "create grant", "revoke": "revoke grant", "fund": "fund sub-signer"}[kind]
        log.warning("errand.failed", kind=kind, about=list(one), error=error)
        subsigner_sql.note(one[0], error=f"failed to {doing}: {error}")
