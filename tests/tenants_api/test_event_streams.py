"""The door to the streams of events: whoever knocks waits so long and no longer."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from tenants_api import event_streams
from tenants_api.errors import ApiError, unauthorized
from tenants_api.event_streams import EventStreams
from tests.tenants_api.vectors import LEASE
from tests.waiting import wait_until


class Door:
    """A check of callers that takes as long as the test likes, and then refuses them."""

    def __init__(self, monkeypatch):
        self.is_asked, self.may_answer, self.has_answered = threading.Event(), threading.Event(), threading.Event()
        monkeypatch.setattr(event_streams, "_owned_lease", self._refuse)

    def _refuse(self, *_):
        self.is_asked.set()
        self.may_answer.wait(10)
        self.has_answered.set()
        raise unauthorized()


@pytest.fixture
def door(monkeypatch):
    return Door(monkeypatch)


def knocks(work):
    """What came of `work(streams, scope)` on a loop of its own, where nothing may go wrong unheard."""

    async def main():
        faults = []
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault["message"]))
        streams = EventStreams()
        path = f"/v1/leases/{LEASE}/events"
        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "headers": []}
        try:
            found = await work(streams, {**scope, "query_string": b""})
        finally:
            await streams.close()
        gc.collect()
        assert faults == []
        return found

    return asyncio.run(main())


def test_a_check_that_takes_too_long_is_not_waited_for(door, monkeypatch):
    monkeypatch.setattr(event_streams, "ADMIT_WITHIN_S", 0.05)

    async def work(streams, scope):
        with pytest.raises(ApiError) as refused:
            await streams.let_in(scope)
        door.may_answer.set()
        return refused.value

    found = knocks(work)
    assert (found.status, found.text, found.error_code) == (503, "request timeout", "timeout")


def test_what_is_said_to_whoever_left_is_nobodys_error(door):
    async def work(streams, scope):
        knocking = asyncio.create_task(streams.let_in(scope))
        await asyncio.to_thread(wait_until, door.is_asked.is_set)
        knocking.cancel()
        await asyncio.wait([knocking])
        door.may_answer.set()
        await asyncio.to_thread(wait_until, door.has_answered.is_set)
        await asyncio.to_thread(streams._threads.shutdown)  # its answer was handed over
        await asyncio.sleep(0)
        return knocking.cancelled()

    assert knocks(work)
