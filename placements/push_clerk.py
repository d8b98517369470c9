"""The sender's clerk: one thread with its own database connection. It claims, prolongs claims, records outcomes."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable
from math import inf
from uuid import UUID

import structlog
from django.db import DatabaseError, InterfaceError, OperationalError, connection

from backends import targets
from backends.client import Accepted, NotSent, Pulse
from fred import crash, idle_links, metrics
from fred.due import BATCH, RENEW_EVERY, REPEATABLE
from fred.tasks import DISPATCH, hint
from leases import wake
from placements import awaited, breakers, command_outcomes, outcomes, push_sql
from placements.desks import BY_TABLE, DESKS, Desk, Row
from placements.outcomes import Answer
from placements.push_loop import Loop
from placements.pushes import Claimed, Push, Unsendable
from placements.slots import Slots

log = structlog.get_logger(__name__)

_ROUND_S = 0.03
"""A clerk with work does a round so often: what comes meanwhile is written down, and claimed, together."""
_ACCEPTED_EVERY_S = 0.1
"""Acceptances that no request waits for are written down so often: the callback often says more before."""
_STALE_EVERY_S = 1.0
_HINT_EVERY_S = 1.0
_BUSY_LEASE_S = 0.1
_LONGEST_OUTAGE_WAIT_S = 2.0


class Clerk:
    """Owns every row of this process that is on its way to a backend.

    `hand_over`, `poke`, `answered`, `stop_pulling` and `end` may be called by any thread.
    """

    def __init__(self, slots: Slots, *, pulls: bool) -> None:
        self.slots = slots
        self.loop = Loop(self.answered)
        self._pulls = pulls
        self._wanted = threading.Event()
        self._soon = threading.Event()
        self._rounded_at = -inf
        self._poked = False
        self._crowded: set[str] = set()
        self._in_round = False
        self._draining = False
        self._ending = False
        self._handed: deque[Claimed] = deque()
        self._answers: deque[Answer] = deque()
        self._retry_at = self._record_at = inf
        self._held: set[Push] = set()
        self._renewed_at = time.monotonic()
        self._stale_at = self._hinted_at = -inf
        self._pull_at = inf
        self._outage_s = 0.0
        self._thread = threading.Thread(target=self._run, name="sender clerk", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def hand_over(self, claims: Iterable[Claimed]) -> None:
        """Take rows that are claimed already."""
        for claim in claims:
            self.slots.take(claim.backend)
            self._handed.append(claim)
        self._wanted.set()

    def poke(self) -> None:
        """Rows may be due."""
        self._poked = True
        self._wanted.set()

    def answered(self, answer: Answer) -> None:
        """A push ended."""
        self.slots.give_back(answer.push.backend, teardown=answer.push.is_teardown)
        self._answers.append(answer)
        self._wanted.set()

    def stop_pulling(self) -> None:
        """Claim nothing any more; rows that are handed over from now on are released."""
        self._draining = True
        self._soon.set()
        self._wanted.set()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way and nothing waits to be written down."""
        return not (self._handed or self._answers or self._held or self._in_round)

    def end(self, *, timeout: float) -> None:
        """Stop and wait for the thread; what is not written down by then is doubt."""
        self._ending = True
        self._soon.set()
        self._wanted.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            while not self._ending:
                self._wanted.wait(self._pause())
                self._gather_work()
                self._wanted.clear()
                try:
                    self._round()
                    self._outage_s = 0.0
                except (OperationalError, InterfaceError) as error:
                    self._outage(error)
                except Exception:  # this thread must outlive every surprise
                    metrics.THREAD_CRASHES.labels("sender clerk").inc()
                    log.exception("sender clerk stumbled")
                    self._outage_s = min(max(0.1, self._outage_s * 2), _LONGEST_OUTAGE_WAIT_S)
        finally:
            connection.close()

    def _gather_work(self) -> None:
        """Let work come together after a round; after a rest the first piece of it is not kept waiting."""
        left = self._rounded_at + _ROUND_S - time.monotonic()
        if left > 0 and not (self._draining or self._ending):
            self._soon.wait(left)
        self._rounded_at = time.monotonic()

    def _outage(self, error: Exception) -> None:
        """The database is away, or only a lock: go on with a fresh connection, soon at first."""
        if getattr(error.__cause__, "sqlstate", None) in REPEATABLE:
            return
        log.warning("sender without database", error=type(error).__name__)
        connection.close()
        self._outage_s = min(max(0.1, self._outage_s * 2), _LONGEST_OUTAGE_WAIT_S)

    def _pause(self) -> float | None:
        now = time.monotonic()
        if self._outage_s:
            self._wanted.clear()
            return self._outage_s
        ends = [self._retry_at, self._pull_at, self._record_at]
        if self._held:
            ends.append(self._renewed_at + RENEW_EVERY.total_seconds())
        soonest = min(ends)
        return None if soonest == inf else max(0.0, soonest - now)

    def _round(self) -> None:
        self._in_round = True
        try:
            idle_links.renew()  # a request that waits must not pay for an outage that is over
            self._record()
            self._renew()
            self._load_handed()
            self._pull()
        finally:
            self._in_round = False

    def _record(self) -> None:
        """Write down what arrived meanwhile, all of it in one transaction."""
        if not self._answers:
            return
        if self._may_wait():
            self._record_at = min(self._record_at, time.monotonic() + _ACCEPTED_EVERY_S)
            self._retry_at = inf
            return
        self._record_at = inf
        batch = [self._answers.popleft() for _ in range(min(len(self._answers), BATCH))]
        for answer in batch:
            breakers.leave(answer.push)
        crash.point("dispatch.before_record")
        left = batch
        try:
            left = self._write(batch)
        except (OperationalError, InterfaceError):
            raise
        except (DatabaseError, ValueError, TypeError):
            log.exception("outcomes not recorded at once", number=len(batch))
            left = self._write_singly(batch)
        finally:
            self._answers.extend(left)  # what could not be written stays true and is tried again
            unwritten = {answer.push for answer in left}
            self._held.difference_update(answer.push for answer in batch if answer.push not in unwritten)
            self._retry_at = time.monotonic() + _BUSY_LEASE_S if left else inf
        crash.point("dispatch.recorded")
        if len(self._answers) > len(left):
            self._wanted.set()

    def _may_wait(self) -> bool:
        """Whether nothing but acceptances waits to be written down, and not yet for long."""
        return (
            not self._draining
            and time.monotonic() < self._record_at
            and len(self._answers) < BATCH
            and all(
                isinstance(answer.result, Accepted) and not awaited.is_expected(answer.push.id)
                for answer in list(self._answers)
            )
        )

    def _write(self, batch: list[Answer]) -> list[Answer]:
        recorded = outcomes.record(batch)
        if recorded.soonest is not None and self._pulls:
            self._pull_at = min(self._pull_at, time.monotonic() + recorded.soonest.total_seconds())
        awaited.tell(recorded.done)
        return recorded.busy

    def _write_singly(self, batch: list[Answer]) -> list[Answer]:
        """One outcome that can't be stored must not hold up the others: its row's claim ends and it is in doubt."""
        left = []
        for answer in batch:
            try:
                left += self._write([answer])
            except (OperationalError, InterfaceError):
                left.append(answer)
            except (DatabaseError, ValueError, TypeError):
                metrics.THREAD_CRASHES.labels("sender clerk").inc()
                log.exception("outcome given up", lease_uuid=str(answer.push.lease_uuid), backend=answer.push.backend)
                command_outcomes.count_lost(answer)
                awaited.tell_lost([answer.push.id])
        return left

    def _renew(self) -> None:
        now = time.monotonic()
        if now - self._renewed_at < RENEW_EVERY.total_seconds():
            return
        self._renewed_at = now
        if self._held:
            self.loop.shut(_shut())
        held = [push for push in self._held if push.held_until > now]
        for desk in DESKS:
            mine = [push for push in held if push.table is desk.table]
            kept = desk.renew(mine) if mine else set()
            for push in mine:
                if push.id in kept:
                    push.confirmed_at = now

    def _load_handed(self) -> None:
        claims = [self._handed.popleft() for _ in range(min(len(self._handed), BATCH))]
        if not claims:
            return
        since = {claim.id: claim.claimed_at for claim in claims}
        try:
            for table in {claim.table for claim in claims}:
                desk = BY_TABLE[table]
                rows = desk.load([claim for claim in claims if claim.table is table])
                self._send(self._sendable(*desk.made(rows, targets.configured(), since=since)))
        finally:
            # The rest is somebody else's or ended meanwhile; or the database is away, and the claims end by themselves.
            awaited.tell_lost(self._give_up(claims))
        if self._handed:
            self._wanted.set()

    def _give_up(self, rows: Iterable[Row], *, teardowns: bool = False) -> list[UUID | int]:
        """Free the slots of those of these rows that are not on their way, and name them."""
        held = {push.id for push in self._held}
        left = [row for row in rows if row.id not in held]
        for row in left:
            self.slots.give_back(row.backend, teardown=teardowns)
        return [row.id for row in left]

    def _pull(self) -> None:
        now = time.monotonic()
        has_room_again = any(self.slots.free(name) for name in self._crowded)
        if not self._pulls or self._draining or not (self._poked or has_room_again or now >= self._pull_at):
            return
        self._poked = False
        if now >= self._pull_at:
            self._pull_at = inf
        try:
            self._crowded = {name for desk in DESKS for name in self._pull_from(desk)}
        except Exception:
            self._poked = True
            raise
        self._hint()
        self._end_stale()

    def _pull_from(self, desk: Desk) -> set[str]:
        """Claim and send rows of one table; return the backends that may have more of them due."""
        since = time.monotonic()
        room = self.slots.room(targets.configured(), teardowns=desk.is_teardowns)
        rows = desk.claim(room)
        for row in rows:
            self.slots.take(row.backend, teardown=desk.is_teardowns)
        if rows:
            crash.point(desk.claimed_point)
            claimed_at = dict.fromkeys((row.id for row in rows), since)
            try:
                self._send(self._sendable(*desk.made(rows, targets.configured(), since=claimed_at)))
            except Exception:
                self._give_up(rows, teardowns=desk.is_teardowns)
                raise
        claimed = Counter(row.backend for row in rows)
        return {name for name, number in room.items() if claimed[name] >= number}

    def _sendable(self, ready: list[Push], unsendable: list[Unsendable]) -> list[Push]:
        for one in unsendable:
            self._held.add(one.push)
            self.answered(Answer(one.push, NotSent(one.reason, pulse=Pulse.NEUTRAL)))
        return ready

    def _send(self, found: list[Push]) -> None:
        """Pass the breaker of each backend, then give the rest to the loop."""
        self.loop.shut(_shut())
        ready = []
        for push in found:
            self._held.add(push)
            refusal = breakers.enter(push)
            if refusal is None:
                ready.append(push)
            else:
                self.answered(Answer(push, refusal.result, refusal.retry_after))
        if ready:
            self.loop.give(ready)

    def _hint(self) -> None:
        """More is due than this process takes: ask another one, once a second."""
        now = time.monotonic()
        if self._crowded and now - self._hinted_at >= _HINT_EVERY_S:
            self._hinted_at = now
            hint.send(DISPATCH)

    def _end_stale(self) -> None:
        """Take what nobody may push any more out of the pushing, and ask for a look at its lease."""
        now = time.monotonic()
        if now - self._stale_at < _STALE_EVERY_S:
            return
        self._stale_at = now
        found = push_sql.stale(BATCH)
        if not found:
            return
        with wake.news_about(found.values(), skip_locked=True, known=True) as news:
            news.wake(push_sql.end_stale(id_ for id_, lease in found.items() if lease in news.locked))


def _shut() -> frozenset[str]:
    """Backends that must not be contacted, as this process knows since two seconds at most."""
    return frozenset(name for name, target in targets.configured().items() if target.shut)
