"""Lanes: a free signer takes what waits for the chain, all at once, as one transaction.

The open transaction is the batching. While it waits for its block, wishes gather; when it is decided, the next one
takes them all. One signer has one open transaction, in all processes together: its row is claimed, and rests while the
transaction is open.

Order of steps, each of which may be the last before a kill: claim signer and actions (the claims end by themselves);
estimate and sign (nothing left the process); store the bytes, bind the actions, put the signer to rest (one
transaction); broadcast; record. From the stored bytes on `leases.inclusion` decides by the hash.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction

from fred import crash, due, metrics
from fred.due import Claim
from fred.tasks import LANES, hint
from leases import inclusion, lane_sql, sql, subsigner_sql, tx_sql, wake
from leases.chain.client import ChainClient
from leases.chain.codes import Verdict
from leases.chain.errors import AccountAbsent, AccountUnreadable, ChainError, ChainUnavailable
from leases.chain.signer import Role, Signer, WouldFail
from leases.chain.tx import SignedTx
from leases.lane_account import account_of
from leases.lane_draft import Draft, draft, without
from leases.lane_sql import Pick, Queue, Waiting
from leases.models import ChainAction, ChainTx
from leases.models import Signer as SignerRow
from leases.node import client, signers
from leases.pace import pace

log = structlog.get_logger("leases.lanes")

LEAST_SHARE = 25
"""A signer takes at least so many: below that a transaction of its own costs more than it saves."""
PATIENCE = timedelta(seconds=10)
"""A reject or close that waits longer gets every second transaction."""
RUN_SECONDS = 20.0
"""A task that has worked so long ends and hints again, so that others get its worker."""
WORK_SECONDS = 30.0
"""The longest that one transaction may be worked on before it is stored."""
GATHER_MOST_S = 0.5
"""While more acknowledgements come in, a signer waits for them: half of the mean time between blocks, at most this."""
GATHER_PAUSE_S = 0.1
"""Nothing came in for so long and nothing is due: no more is expected."""
GATHER_STEP_S = 0.03
SILENCE = timedelta(seconds=3)
"""A signer whose chain does not answer rests: the next lane is the one probe of it."""


def run() -> None:
    """Decide open transactions and send what waits, until nothing more can be done at once."""
    hint.taken(LANES)
    started = time.monotonic()
    while True:
        decided = inclusion.check_due()
        sent = send_next()
        if not (decided or sent):
            return
        if time.monotonic() - started > RUN_SECONDS:
            hint.send(LANES)
            return


def ensure_signers() -> bool:
    """Give each key of this process its row, free those left at rest by nobody; True when that changed something.

    Raises `KeyUnusable` when the key is missing or is not the provider's: such a process must not work.
    """
    return subsigner_sql.ensure(signers()) + lane_sql.free_rested() > 0


def choose(waiting: Waiting) -> Queue | None:
    """Pick the verb whose turn it is: acknowledgements, but every second time a reject or close that lost patience."""
    acks = waiting.queues.get("ack")
    others = [queue for verb, queue in waiting.queues.items() if verb != "ack"]
    oldest = max(others, key=lambda queue: queue.oldest, default=None)
    if acks is None or oldest is None:
        return acks or oldest
    return oldest if oldest.oldest > PATIENCE and waiting.last_kind == "ack" else acks


def share(count: int, *, free_signers: int, most: int) -> int:
    """How many of `count` one signer takes: its part, at least 25, at most `most`."""
    return min(max(-(-count // max(free_signers, 1)), LEAST_SHARE), most)


def send_next() -> bool:
    """Let one free signer send its share; False when nothing waits, no signer is free, or nothing could be sent."""
    _let_outlived_fall()
    keys = {one.address: one for one in signers()}
    waiting = lane_sql.waiting(list(keys))
    queue = choose(waiting)
    if queue is None:
        return False
    if not waiting.free_signers:
        # The key may have no row yet: a new deployment, a new database.
        return ensure_signers()
    if queue.verb == "ack" and waiting.free_signers == 1:
        queue = _gather(queue, waiting)
    claimed = due.claim(SignerRow, 1, where=lane_sql.FREE_SIGNER, params=[list(waiting.lanes)])
    if not claimed:
        return False
    free = claimed[0]
    with due.holding(SignerRow, {free.pk: free.epoch}, seconds=WORK_SECONDS + 5):
        rests = timedelta()
        try:
            most = share(queue.count, free_signers=waiting.free_signers, most=settings.FRED.ack_max_per_tx)
            claims = due.claim(ChainAction, most, where=f"{lane_sql.SENDABLE} AND t.verb = %s", params=[queue.verb])
            if not claims:
                return False
            if waiting.free_signers > 1 and len(claims) < sum(one.count for one in waiting.queues.values()):
                hint.send(LANES)
            lane = _Lane(client(), keys[free.pk], free, queue.verb)
            with due.holding(ChainAction, {one.pk: one.epoch for one in claims}, seconds=WORK_SECONDS + 5):
                sent, rests = lane.work(claims)
            return sent
        finally:
            # Does nothing once the signer rests for its transaction: that raised its epoch.
            lane_sql.set_signer(free.pk, after=rests, epoch=free.epoch)


def _gather(queue: Queue, waiting: Waiting) -> Queue:
    """Wait a moment while more acknowledgements come in: a transaction sent now shuts its signer for a whole block.

    Only the last free signer waits, never for one lease alone, and only while its transaction is not full and more
    came in lately or is due for a look. On a chain whose blocks follow each other at once nobody waits.
    """
    most = settings.FRED.ack_max_per_tx
    if queue.count >= most or not (queue.count > 1 or lane_sql.looks_due()):
        return queue
    chain = client()
    try:
        mean = pace.mean(chain, chain.latest_height())
    except ChainError:
        return queue  # what follows meets it too, and says so
    grown = time.monotonic()
    until = grown + (min(mean.total_seconds() / 2, GATHER_MOST_S) if mean else 0.0)
    while queue.count < most and (at := time.monotonic()) + GATHER_STEP_S <= until:
        if at - grown > GATHER_PAUSE_S and not lane_sql.looks_due():
            break
        time.sleep(GATHER_STEP_S)
        now = lane_sql.waiting(waiting.lanes).queues.get("ack", queue)
        if now.count > queue.count:
            grown = time.monotonic()
        queue = now
    return queue


def _let_outlived_fall() -> None:
    found = lane_sql.outlived()
    if not found:
        return

    def record() -> None:
        sql.lock(found.values())
        sql.wake(dict.fromkeys(lane_sql.let_outlived_fall(found)))
        transaction.on_commit(wake.hint_look)

    due.in_transaction(record)


class _SignerLostError(Exception):
    """Somebody else took the signer over: this lane's work is void."""


@dataclass(slots=True)
class _Lane:
    """One free signer on its way to one transaction."""

    chain: ChainClient
    signer: Signer
    free: Claim
    kind: str

    def work(self, claims: Sequence[Claim]) -> tuple[bool, timedelta]:
        """Send what can be sent of the claimed actions; return whether anything moved, and the signer's rest after."""
        picks = lane_sql.picks(claims)
        if not picks:
            return False, timedelta()
        try:
            return self._attempt(picks), timedelta()
        except _SignerLostError:
            log.warning("lane.lost", signer=self.signer.address)
            self._put_back(picks, error="", counted=False)
            return False, timedelta()
        except ChainError as error:
            return False, self._give_up(picks, error)
        except Exception:
            metrics.LANE_RESTARTS.labels(str(self.signer.index or 0)).inc()
            self._put_back(picks, error="the lane crashed", counted=True, after=due.back_off(picks[0].attempts))
            raise

    def _attempt(self, picks: Sequence[Pick]) -> bool:
        until = time.monotonic() + WORK_SECONDS
        account, named = account_of(self.chain, self.signer.address)
        head = self.chain.latest_height()
        made = draft(picks, signer=self.signer, chain=self.chain, account=account, until=until)
        if made.account is not None and named is not None:
            made.account = replace(made.account, sequence=named)
        moved = self._settle(made, picks)
        config = settings.FRED
        last = pace.timeout_height(self.chain, head, blocks=config.tx_timeout_blocks, timeout=config.tx_timeout)
        return self._send(made, timeout_height=last) or moved

    def _give_up(self, picks: Sequence[Pick], error: ChainError) -> timedelta:
        """Put everything back; return how long the signer rests. Silence is the chain's fault, not an action's."""
        if isinstance(error, ChainUnavailable):
            if self.free.attempts == 1:
                log.warning("lane.chain_silent", signer=self.signer.address, error=str(error))
            self._put_back(picks, error="", counted=False)
            return SILENCE
        log.error("lane.cannot_send", signer=self.signer.address, kind=self.kind, error=str(error))
        blames_signer = isinstance(error, AccountAbsent | AccountUnreadable) or (
            isinstance(error, WouldFail) and error.failure.verdict is Verdict.SIGNER
        )
        if blames_signer:
            # No choice of leases helps: the grant or the money is missing. Others take what this one cannot send.
            self._put_back(picks, error=str(error), counted=False)
            if self.signer.role is Role.SUB_SIGNER:
                inclusion.give_signer_up(self.signer.address, error=str(error))
                return timedelta()
            return inclusion.SIGNER_RESTS
        self._put_back(picks, error=str(error), counted=True, after=due.back_off(picks[0].attempts))
        return inclusion.SIGNER_RESTS if isinstance(error, WouldFail) else timedelta()

    def _put_back(self, picks: Sequence[Pick], *, error: str, counted: bool, after: timedelta = timedelta()) -> None:
        lane_sql.put_back({pick.id: pick.epoch for pick in picks}, after=after, error=error, counted=counted)

    def _settle(self, made: Draft, picks: Sequence[Pick]) -> bool:
        """Record what needs no transaction or has to wait; True when that closed something."""
        self._put_back(made.left, error="", counted=False)
        for pick in picks:
            if pick.id in made.refused:
                self._put_back(
                    [pick], error=made.refused[pick.id][:500], counted=True, after=due.back_off(pick.attempts)
                )
        if not (made.done or made.moot or made.reads):
            return False
        touched: set[UUID] = {pick.lease for pick in (*made.done, *made.moot)} | set(made.reads)

        def record() -> None:
            sql.lock(touched)
            inclusion.store_exact(made.reads)
            lane_sql.finish_unsent(
                {pick.id: pick.epoch for pick in made.done}, {pick.id: pick.epoch for pick in made.moot}
            )
            transaction.on_commit(wake.hint_look)

        due.in_transaction(record)
        return bool(made.done or made.moot)

    def _send(self, made: Draft, *, timeout_height: int) -> bool:
        """Sign, store, broadcast. Actions that fell meanwhile are left out and the rest is signed again."""
        while made.sent:
            assert made.account is not None  # noqa: S101 - a draft that sends has read it
            crash.point("lane.before_sign")
            signed = self.signer.sign(
                made.messages(self.signer),
                account=made.account,
                gas_limit=made.gas_limit,
                timeout_height=timeout_height,
            )
            stored_at = time.monotonic()
            outcome = due.in_transaction(lambda signed=signed, made=made: self._store(signed, made))  # type: ignore[misc]
            if isinstance(outcome, Claim):
                crash.point("lane.stored")
                self._push(outcome, stored_at)
                return True
            made = without(made, outcome)
        return False

    def _store(self, signed: SignedTx, made: Draft) -> Claim | set[int]:
        """Store the bytes if all its actions stand, and return the claim of the row; else the actions that stand."""
        sql.lock(pick.lease for pick in made.sent)
        chosen = {pick.id: pick.epoch for pick in made.sent}
        stand, fallen = lane_sql.standing(chosen)
        transaction.on_commit(wake.hint_look)  # whoever looked meanwhile passed over the leases that are locked here
        if fallen:
            sql.wake(dict.fromkeys(lane_sql.let_fall(fallen)))
        if stand != chosen.keys():
            return stand
        if not lane_sql.occupy(self.free):
            raise _SignerLostError
        claim = lane_sql.insert_tx(
            signed, signer=self.signer.address, kind=self.kind, actions=stand, about=made.ran_out or ()
        )
        if claim is None:
            raise _SignerLostError
        return claim

    def _push(self, claim: Claim, stored_at: float) -> None:
        with due.holding(ChainTx, {claim.pk: claim.epoch}, seconds=inclusion.CALL_SECONDS, claimed_at=stored_at):
            for tx in tx_sql.read_open([claim]):
                inclusion.push(tx, self.chain, first=True, held_at=stored_at)
