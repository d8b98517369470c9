"""A watcher on a thread of the test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from uuid import UUID, uuid4

from django.conf import settings

from leases.chain import noticed
from leases.chain.events import EventType, LeaseEvent
from leases.models import ChainCursor, ChainEvent
from reconciliation.watcher import Watcher
from tests.reconciliation.story import Story
from tests.waiting import wait_until


@contextmanager
def watching() -> Iterator[Watcher]:
    """A watcher of the chain that the settings name, ready when the block is entered, ended when it is left."""
    watcher = Watcher(settings.FRED)
    runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)  # its end ends tasks and generators too
    loop = runner.get_loop()
    stop = asyncio.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            runner.run(watcher.run(stop))
        except BaseException as error:  # noqa: BLE001 - raised again below
            failed.append(error)
        finally:
            runner.close()

    thread = threading.Thread(target=run, name="watcher", daemon=True)
    thread.start()
    try:
        yield watcher
    finally:
        if not failed:
            loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        for executor in watcher._threads.values():
            executor.shutdown(wait=True)
    if failed:
        raise failed[0]


def until_begun() -> ChainCursor:
    """Wait until a watcher made the cursor."""
    return wait_until(ChainCursor.objects.first)


def until_read(height: int) -> ChainCursor:
    """Wait until the cursor has this height."""
    return wait_until(lambda: ChainCursor.objects.filter(last_height__gte=height).first())


def until_stored(kind: EventType, uuids: list[UUID], *, timeout: float = 60) -> None:
    """Wait until this event of all these leases is a row."""
    wait_until(
        lambda: ChainEvent.objects.filter(type=kind.value, lease_id__in=uuids).count() == len(uuids),
        timeout=timeout,
        message=f"{kind} of {len(uuids)} leases",
    )


def event(kind: EventType = EventType.CREATED, uuid: UUID | None = None, **changes: object) -> LeaseEvent:
    """An event of a lease of ours at height 20."""
    values = {"provider_uuid": settings.FRED.provider_uuid, "tenant": "manifest1tenant", "height": 20, **changes}
    return LeaseEvent(type=kind, lease_uuid=uuid or uuid4(), **values)  # type: ignore[arg-type]


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


@contextmanager
def blocks_every(story: Story, seconds: float) -> Iterator[None]:
    """Have the story's chain, which is known so far, make blocks; afterwards it has no faults any more."""
    noticed.forget()
    height = story.chain.height
    ChainCursor.objects.update(last_height=height, head_height=height, trusted_from_height=height)
    story.chain.set_block_mode("interval", interval=seconds)
    try:
        yield
    finally:
        story.chain.clear_faults()
        story.chain.set_block_mode("instant")
