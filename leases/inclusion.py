"""What became of signed transactions: push their bytes, look their hashes up, record the outcome in one transaction.

Only its hash decides a transaction. Until it is found, or can never be found any more, the same bytes are sent again
and nothing else is signed for its actions or its signer. Nothing here holds a database transaction over a call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction

from fred import crash, due, metrics
from fred.tasks import LANES, SUB_SIGNERS, hint
from leases import lane_evidence, sql, subsigner_sql, tx_sql, wake
from leases.chain import noticed
from leases.chain.client import Absent, Broadcast, ChainClient, ExactLease, TxResult, Unknown
from leases.chain.codes import Verdict, verdict
from leases.chain.errors import ChainError, ChainUnavailable
from leases.lane_draft import simulations
from leases.lane_evidence import Overtaken, TookEffect
from leases.models import ChainTx
from leases.node import client, lane_label
from leases.tx_sql import Bound, OpenTx
from leases.wishes import REACHED, WishState, wish_state_as_read

log = structlog.get_logger("leases.lanes")

CALL_SECONDS = 40
"""The longest that checking one transaction may take: reads of all its leases included."""
PUSH_WITHIN_S = 3.0
"""A push starts only this soon after the claim was last known to be ours."""
SEEN_AFTER = timedelta(seconds=5)
"""Bytes that were not found for so long are sent again; and the pause between two proofs that they never will be."""
SLOWEST_POLL = timedelta(seconds=5)
MOST_STEPS = 30
"""The pause between look-ups has grown to its most by then, however short the first was; attempts grow without end."""
MORE_BLOCKS = 2
"""So many blocks past its last possible one a transaction must be missing."""
NAMES = {"ack": "acknowledge", "reject": "reject", "close": "close"}
SIGNER_RESTS = timedelta(seconds=60)
RECHECK_SIGNER = timedelta(seconds=30)
SAY_AGAIN_S = 60.0
ERRANDS = ("grant", "revoke", "fund")
"""Kinds of transactions that no lease asked for; whoever sent one looks at what became of it."""

_said_still: dict[str, float] = {}  # signer to when this process said so

LeaseRead = ExactLease | Absent | Unknown


class _TooLateError(Exception):
    """The transaction was decided by somebody else meanwhile; what was about to be written is not."""


def check_due() -> bool:
    """Look up every open transaction that is due; True when one was decided."""
    claimed_at = time.monotonic()
    claims = due.claim(ChainTx, 20, where="t.state IN ('signed', 'broadcast')")
    if not claims:
        return False
    chain = client()
    decided = False
    epochs = {claim.pk: claim.epoch for claim in claims}
    with due.holding(ChainTx, epochs, seconds=CALL_SECONDS * len(claims), claimed_at=claimed_at) as held:
        for tx in tx_sql.read_open(claims):
            decided |= check(tx, chain)
            held.drop([tx.id])
    return decided


def check(tx: OpenTx, chain: ChainClient) -> bool:
    """Look one claimed transaction up; True when its fate is known now."""
    found = chain.tx(tx.tx_hash)
    if isinstance(found, TxResult):
        crash.point("lane.included_seen")
        return _included(tx, found) if found.is_success else _failed(tx, found, chain)
    if isinstance(found, Absent):
        return _missing(tx, found.height, chain)
    log.info("lane.lookup_unanswered", tx=tx.tx_hash, reason=found.reason)
    tx_sql.look_again(tx.id, epoch=tx.epoch, after=due.back_off(tx.attempts))
    return False


def push(tx: OpenTx, chain: ChainClient, *, first: bool, held_at: float) -> None:
    """Hand the bytes to a node and record what it said.

    Only a first push, by the holder of the claim that stored the bytes, can be refused: nobody else ever saw them.
    After any other push a refusal only means that the hash has to be looked up.
    """
    if time.monotonic() - held_at > PUSH_WITHIN_S:
        return  # a stalled process: whoever claims the row next sends it
    try:
        answer = chain.broadcast(tx.tx_bytes)
    except ChainUnavailable as error:
        log.warning("lane.broadcast_unanswered", tx=tx.tx_hash, error=str(error))
        tx_sql.look_again(tx.id, epoch=tx.epoch, after=due.back_off(tx.attempts))
        return
    except ChainError as error:
        log.warning("lane.broadcast_refused", tx=tx.tx_hash, error=str(error))
        tx_sql.look_again(tx.id, epoch=tx.epoch, after=due.back_off(tx.attempts + 2))
        return
    crash.point("lane.broadcast")
    if answer.is_accepted:
        # Due at once after the first push: a block may have been made before this was written.
        tx_sql.note_broadcast(tx.id, epoch=tx.epoch, after=timedelta() if first else _poll(tx))
        return
    what = verdict(answer.codespace, answer.code)
    if what is Verdict.IN_MEMPOOL or not first:
        tx_sql.note_broadcast(tx.id, epoch=tx.epoch, after=_poll(tx))
    elif what is Verdict.BUSY:
        tx_sql.look_again(tx.id, epoch=tx.epoch, after=due.back_off(tx.attempts))
    else:
        _refused(tx, answer, what)


def _poll(tx: OpenTx) -> timedelta:
    """Time to the next look-up: `tx_poll_interval`, half as long again each time, at most 5 s."""
    first: timedelta = settings.FRED.tx_poll_interval
    return min(first * 1.5 ** min(max(tx.attempts - 1, 0), MOST_STEPS), SLOWEST_POLL)


def _missing(tx: OpenTx, height: int, chain: ChainClient) -> bool:
    """Not found at this height: send the same bytes again, or, past their last block, prove that they are dead.

    A chain that stands still proves nothing, however long it does: the same bytes are offered until it goes on.
    """
    still_for = tx_sql.note_height(tx.id, epoch=tx.epoch, height=height)
    if height <= tx.timeout_height + MORE_BLOCKS:
        if tx.state == ChainTx.State.SIGNED or tx.age > SEEN_AFTER:
            if tx.age > SEEN_AFTER:
                noticed.fault("not_included", f"{tx.tx_hash} at height {height}")
            if tx.age > SEEN_AFTER and (found := lane_evidence.of_used_sequence(tx, chain)) is not None:
                return _decided_by(found, tx)
            if still_for > settings.FRED.tx_timeout:
                _say_still(tx, height, still_for)
            elif tx.state == ChainTx.State.SIGNED:
                log.info("lane.sends_again", tx=tx.tx_hash, height=height)
            push(tx, chain, first=False, held_at=time.monotonic())
        else:
            tx_sql.look_again(tx.id, epoch=tx.epoch, after=_poll(tx), missed=False)
        return False
    try:
        syncing = chain.is_syncing()
    except ChainError:
        syncing = True
    if syncing:
        tx_sql.look_again(tx.id, epoch=tx.epoch, after=SEEN_AFTER)
        return False
    if tx.missed_for is None or tx.missed_for < SEEN_AFTER:
        tx_sql.look_again(tx.id, epoch=tx.epoch, after=SEEN_AFTER, missed=True)
        return False
    log.warning("lane.dropped", tx=tx.tx_hash, height=height, timeout_height=tx.timeout_height)
    return _dropped(tx, log_text=f"not found at height {height}, past its timeout height {tx.timeout_height}")


def _say_still(tx: OpenTx, height: int, still_for: timedelta) -> None:
    """Say that a lane waits for a chain that makes no blocks: at first, and then once a minute."""
    now = time.monotonic()
    if now - _said_still.get(tx.signer, float("-inf")) < SAY_AGAIN_S:
        return
    _said_still[tx.signer] = now
    log.warning(
        "lane.height_stands_still", signer=tx.signer, tx=tx.tx_hash, kind=tx.kind, height=height,
        seconds=round(still_for.total_seconds()), timeout_height=tx.timeout_height,
    )  # fmt: skip


def _decided_by(found: Overtaken | TookEffect, tx: OpenTx) -> bool:
    """Record what its signer's sequence and its leases prove of a transaction that no node finds."""
    if isinstance(found, Overtaken):
        return _dropped(tx, log_text=f"another transaction took its sequence {tx.sequence}")

    def record() -> None:
        sql.lock(action.lease for action in found.actions)
        woken = store_exact(found.reads)
        for state, kind in (("done", WishState.DONE), ("moot", WishState.MOOT)):
            tx_sql.close_actions((id_ for id_, one in found.how.items() if one is kind), tx=tx.id, state=state)
        tx_sql.free_signer(tx.signer)
        text = "no node finds it; its sequence is used and its leases are where it takes them"
        if not tx_sql.decide(tx.id, state="included", code=0, log=text):
            raise _TooLateError
        sql.wake(dict.fromkeys({action.lease for action in found.actions} - woken))
        _tell(tx)

    if not _recorded(record):
        return False
    if tx.kind in NAMES:
        metrics.TRANSACTIONS.labels(NAMES[tx.kind], "success").inc()
    log.warning("lane.index_lost", tx=tx.tx_hash, kind=tx.kind, leases=len(found.actions))
    return True


def give_signer_up(address: str, *, error: str) -> None:
    """A sub-signer without a right or money signs no more; its grants and funds are looked at soon."""
    if subsigner_sql.demote(address, error=error, refused=True):
        log.warning("signer.demoted", signer=address, error=error)
    subsigner_sql.ask_for_check(RECHECK_SIGNER)


def _included(tx: OpenTx, result: TxResult) -> bool:
    """All its messages took effect: its actions are done, its leases are where they were wanted to be."""
    actions = tx_sql.bound(tx.id)

    def record() -> None:
        sql.lock(action.lease for action in actions)
        tx_sql.close_actions((action.id for action in actions), tx=tx.id, state="done")
        tx_sql.free_signer(tx.signer)
        if not tx_sql.decide(tx.id, state="included", height=result.height, code=0):
            raise _TooLateError
        woken: set[UUID] = set()
        for (verb, reason), leases in _by_outcome(actions).items():
            # The lease may have ended later in the same block, so this counts as a read of the block before.
            woken |= sql.store_states(
                dict.fromkeys(leases, 0), result.height - 1, state=int(REACHED[verb]), reason=reason
            )
        sql.wake(dict.fromkeys({action.lease for action in actions} - woken))
        _tell(tx)

    if not _recorded(record):
        return False
    crash.point("lane.recorded")
    if tx.kind in NAMES:
        metrics.TRANSACTIONS.labels(NAMES[tx.kind], "success").inc()
    log.info("lane.included", tx=tx.tx_hash, kind=tx.kind, leases=len(actions), height=result.height)
    return True


def _by_outcome(actions: Iterable[Bound]) -> dict[tuple[str, str], list[UUID]]:
    groups: dict[tuple[str, str], list[UUID]] = {}
    for action in actions:
        groups.setdefault((action.verb, action.reason), []).append(action.lease)
    return groups


def _failed(tx: OpenTx, result: TxResult, chain: ChainClient) -> bool:
    """Executed and failed: fee and sequence are gone. Its leases are read, the finished leave, the rest goes again."""
    actions = tx_sql.bound(tx.id)
    what = verdict(result.codespace, result.code)
    fee_or_gas = what in {Verdict.GAS, Verdict.FEE}
    reads = {} if fee_or_gas else dict(chain.leases([action.lease for action in actions]))
    how = {action.id: wish_state_as_read(action.verb, reads[action.lease]) for action in actions} if reads else {}
    delays = {
        action.id: _delay(action, what, how.get(action.id, WishState.SEND))
        for action in actions
        if how.get(action.id) not in {WishState.DONE, WishState.MOOT}
    }

    def record() -> None:
        sql.lock(action.lease for action in actions)
        woken = store_exact(reads)
        closed: set[UUID] = set()
        for state, kind in (("done", WishState.DONE), ("moot", WishState.MOOT)):
            ended = [action for action in actions if how.get(action.id) is kind]
            tx_sql.close_actions((action.id for action in ended), tx=tx.id, state=state)
            closed |= {action.lease for action in ended}
        tx_sql.queue_again(delays, tx=tx.id, error=result.raw_log[:500], counted=what is not Verdict.SIGNER)
        _free_signer(tx, what, error=result.raw_log)
        if not tx_sql.decide(
            tx.id,
            state="failed",
            height=result.height,
            code=result.code,
            codespace=result.codespace,
            log=result.raw_log,
        ):
            raise _TooLateError
        sql.wake(dict.fromkeys(closed - woken))
        _tell(tx)

    if not _recorded(record):
        return False
    simulations.forget(tx.kind)
    _count_failure(tx, what)
    log.warning(
        "lane.failed", tx=tx.tx_hash, kind=tx.kind, leases=len(actions), again=len(delays), code=result.code,
        codespace=result.codespace, raw_log=result.raw_log[:300],
    )  # fmt: skip
    return True


def _delay(action: Bound, what: Verdict, how: WishState) -> timedelta:
    """How long an action waits that its transaction did not serve. More gas is tried at once."""
    if what is Verdict.GAS:
        return timedelta()
    if how is WishState.DOUBT or what in {Verdict.NOT_NOW, Verdict.MISCONFIGURED, Verdict.FEE, Verdict.PERMANENT}:
        return due.back_off(action.attempts)
    return timedelta() if action.attempts <= 2 else due.back_off(action.attempts - 2)


def store_exact(reads: Mapping[UUID, LeaseRead]) -> set[UUID]:
    """Write what exact reads of locked leases said; return those woken by it. Silence writes nothing."""
    stored = sql.store_reads(
        [(read.lease, read.height) for read in reads.values() if isinstance(read, ExactLease)], exact=True
    )
    sql.store_absent({uuid: read.height for uuid, read in reads.items() if isinstance(read, Absent)})
    return {uuid for uuid, one in stored.items() if one.woken}


def _refused(tx: OpenTx, answer: Broadcast, what: Verdict) -> None:
    """A node refused bytes that nobody else has seen: they are dead, and their actions wait again."""
    log.warning(
        "lane.refused", tx=tx.tx_hash, kind=tx.kind, code=answer.code, codespace=answer.codespace,
        raw_log=answer.raw_log[:300], sequence_refusals=tx_sql.sequence_refusals(tx.signer),
    )  # fmt: skip
    simulations.forget(tx.kind)
    _dropped(tx, answer=answer, what=what, log_text=answer.raw_log, epoch=tx.epoch)


def _dropped(
    tx: OpenTx,
    *,
    log_text: str,
    answer: Broadcast | None = None,
    what: Verdict | None = None,
    epoch: int | None = None,
) -> bool:
    """It is proven never to be included: its actions wait again, its signer is free."""
    actions = tx_sql.bound(tx.id)
    blames_us = what not in {None, Verdict.SEQUENCE, Verdict.DEAD, Verdict.SIGNER}

    def delay(action: Bound) -> timedelta:
        if what is Verdict.SPLIT or not blames_us:
            return timedelta()
        return due.back_off(action.attempts + 2)

    def record() -> None:
        sql.lock(action.lease for action in actions)
        tx_sql.queue_again(
            {action.id: delay(action) for action in actions}, tx=tx.id, error=log_text[:500], counted=blames_us
        )
        _free_signer(tx, what, error=log_text)
        code, codespace = (answer.code, answer.codespace) if answer else (None, "")
        if not tx_sql.decide(tx.id, state="dropped", code=code, codespace=codespace, log=log_text, epoch=epoch):
            raise _TooLateError
        _tell(tx)
        transaction.on_commit(lambda: hint.send(LANES))

    if not _recorded(record):
        return False
    _count_failure(tx, what)
    return True


def _free_signer(tx: OpenTx, what: Verdict | None, *, error: str) -> None:
    """Say when its signer may sign again. A sub-signer that the chain takes nothing from is given up."""
    if what is Verdict.SIGNER and tx.signer != settings.FRED.provider_address:
        tx_sql.free_signer(tx.signer)
        give_signer_up(tx.signer, error=error)
        return
    rests = timedelta()
    if what is Verdict.SIGNER and tx.kind not in ERRANDS:
        rests = SIGNER_RESTS  # the provider's own key is the last resort: it is tried again
    elif what is Verdict.SEQUENCE and tx_sql.sequence_refusals(tx.signer) > 2:
        rests = timedelta(seconds=6)  # somebody else uses this key: let their block pass
    elif what in {Verdict.MISCONFIGURED, Verdict.PERMANENT, Verdict.FEE}:
        rests = timedelta(seconds=5)
    tx_sql.free_signer(tx.signer, after=rests)


def _tell(tx: OpenTx) -> None:
    """Within the recording transaction: whoever waits for this outcome comes to look after the commit."""
    if tx.kind in ERRANDS:
        subsigner_sql.ask_for_check()
    if tx.signer == settings.FRED.provider_address:
        transaction.on_commit(lambda: hint.send(SUB_SIGNERS))
    transaction.on_commit(wake.hint_look)


def _recorded(work: Callable[[], None]) -> bool:
    try:
        due.in_transaction(work)
    except _TooLateError:
        return False
    return True


def _count_failure(tx: OpenTx, what: Verdict | None) -> None:
    """Called once the failure is recorded: whoever was too late has not decided it."""
    if tx.kind in NAMES:
        metrics.TRANSACTIONS.labels(NAMES[tx.kind], "error").inc()
    if what in {Verdict.GAS, Verdict.FEE} and tx.kind == "ack":
        metrics.ACK_FEE_GAS_ERRORS.labels(lane_label(tx.signer)).inc()
