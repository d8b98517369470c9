"""What the chain told, stored: events of our leases, the head, the cursor, and how far this database can be trusted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction

from fred import crash, due
from fred.tasks import LANES, SWEEP, hint
from leases import sql, tx_sql, wake
from leases.chain.events import EventType, LeaseEvent
from placements import command_transitions
from placements.command_status import AMBIGUOUS, CommandState
from reconciliation import watch_sql

log = structlog.get_logger("reconciliation.watcher")

AT_ONCE = 1000
"""Events of one transaction."""
REPEATED = frozenset({EventType.DOMAIN_SET, EventType.DOMAIN_CLEARED})
"""Events that can happen several times in a lease's life; they are no rows, only news of their height."""


def store_events(events: Iterable[LeaseEvent]) -> int:
    """Store what is new of these events and wake the leases it is new for; return how many events were new.

    Events come twice, late and out of order: of two connections, of two watchers, of a frame and of its block. Each
    type happens at most once in a lease's life, so the row decides. Leases of other providers get no rows.
    """
    ours = _ours(list(events))
    stored = 0
    for start in range(0, len(ours), AT_ONCE):
        part = ours[start : start + AT_ONCE]
        stored += due.in_transaction(lambda part=part: _store(part))  # type: ignore[misc]
    return stored


def _ours(events: Sequence[LeaseEvent]) -> list[LeaseEvent]:
    """Leave out leases of others, and what is stored already."""
    ours = [event for event in events if event.provider_uuid == settings.FRED.provider_uuid]
    if nameless := [event for event in events if event.provider_uuid is None]:
        known = watch_sql.known([event.lease_uuid for event in nameless])
        ours += [event for event in nameless if event.lease_uuid in known]
    single = {(event.lease_uuid, event.type, event.height if event.type in REPEATED else 0): event for event in ours}
    return watch_sql.unseen(list(single.values()), chain_id=settings.FRED.chain_id) if single else []


def _store(events: Sequence[LeaseEvent]) -> int:
    crash.point("watcher.before_store")
    with wake.news_about({event.lease_uuid for event in events}) as news:
        once = [event for event in events if event.type not in REPEATED]
        fresh = watch_sql.insert_events(once, chain_id=settings.FRED.chain_id)
        new = [event for event in once if (event.lease_uuid, event.type.value) in fresh]
        repeated = [event for event in events if event.type in REPEATED]
        if repeated:
            behind = watch_sql.behind([event.lease_uuid for event in repeated], [event.height for event in repeated])
            new += [event for event in repeated if event.lease_uuid in behind]
        news.wake(_heights(new))
    return len(new)


def _heights(events: Sequence[LeaseEvent]) -> dict[UUID, int | None]:
    """The height of the newest news of each lease; our own acknowledgements are none where a lane tells of them."""
    acknowledged = {event.lease_uuid for event in events if event.type is EventType.ACKNOWLEDGED}
    settled = watch_sql.told_of_acknowledgement(list(acknowledged))
    heights: dict[UUID, int | None] = {}
    for event in sorted(events, key=lambda event: event.height):
        if event.type is not EventType.ACKNOWLEDGED or event.lease_uuid not in settled:
            heights[event.lease_uuid] = event.height
    return heights


def nudge_lanes() -> bool:
    """Have our open transactions looked up now; False when there are none."""
    if not tx_sql.nudge():
        return False
    hint.send(LANES)
    return True


def see_block(*, height: int, block_time: datetime) -> bool:
    """A block was made: look for our open transactions, note the head. False when a higher head was seen before."""
    chain_id = settings.FRED.chain_id
    nudge_lanes()
    if not watch_sql.see_head(chain_id, height=height, block_time=block_time):
        return False
    if watch_sql.trust_from(chain_id, height=height, block_time=block_time):
        log.warning("watcher.trusts_from", chain_id=chain_id, height=height, block_time=block_time)
    return True


def begin(*, height: int, block_time: datetime) -> watch_sql.Cursor:
    """Make the cursor at this head on the first start, else see whether this database is still trusted; return it.

    The first sweep covers what is older than the first start.
    """
    chain_id = settings.FRED.chain_id
    if watch_sql.cursor_of(chain_id) is None and watch_sql.create_cursor(
        chain_id, height=height, block_time=block_time
    ):
        log.info("watcher.first_start", chain_id=chain_id, height=height)
        ask_for_sweep()
    stay_trusted()
    return watch_sql.cursor_of(chain_id) or watch_sql.Cursor(height, height)


def stay_trusted() -> bool:
    """Write that somebody watches. False when too long nobody did, or this is another database than it was.

    Then the past of this database is void: open pushes are outlived, so that nobody sends them before a look, and what
    is not known here of older leases proves nothing until every backend was walked.
    """
    chain_id = settings.FRED.chain_id
    if watch_sql.keep_alive(chain_id):
        return True
    if watch_sql.cursor_of(chain_id) is None:
        return True
    while leases := watch_sql.leases_with_open_pushes(AT_ONCE):
        due.in_transaction(lambda leases=leases: _outlive(leases))  # type: ignore[misc]
    watch_sql.distrust(chain_id)
    log.warning("watcher.distrusts_the_past", chain_id=chain_id)
    ask_for_sweep()
    return False


def _outlive(leases: Sequence[UUID]) -> None:
    sql.lock(leases)
    watch_sql.outlive_pushes(leases)
    # What this database says was never sent may have been: a restart or update is not sent a second time.
    unsent = watch_sql.unsent_commands(leases)
    command_transitions.move(dict.fromkeys(unsent), CommandState.IN_DOUBT, refusal=AMBIGUOUS)
    sql.wake(dict.fromkeys(leases))
    transaction.on_commit(wake.hint_look)


def ask_for_sweep() -> None:
    """Make the sweep due now and say so."""
    watch_sql.ask_for_sweep()
    hint.send(SWEEP)


def skip_to(height: int) -> None:
    """What lies below this height cannot be read block by block: a sweep covers it."""
    with transaction.atomic():
        watch_sql.ask_for_sweep()
        watch_sql.move_cursor(settings.FRED.chain_id, to=height)
    hint.send(SWEEP)
