"""Who may speak at the callback door: fences seen at once, keys counted, and a limit only for who does not sign."""

import asyncio
import threading
import time

import pytest
from django.db import OperationalError

from fred import metrics
from fred.loop_buckets import LoopBuckets
from placements import callbacks_asgi
from placements.callback_batches import Batcher
from placements.callback_door import Door
from placements.callbacks_asgi import CallbackEndpoint
from tests.placements.callback_posts import (
    NOW,
    OTHER,
    OWN,
    PREVIOUS,
    SAID,
    SECRET,
    Kept,
    config,
    keyed,
    post,
    signed,
)

NOBODY = "redis://127.0.0.1:1/0"
BACKENDS = (keyed("mock-1", OWN, hmac_secret_previous=PREVIOUS), keyed("mock-2", OTHER))


def run(work, *, barred=None, rate=1000.0, burst=1000, **changes):
    async def main():
        settings = config(backends=BACKENDS, **changes)
        endpoint = CallbackEndpoint(settings, Batcher(Kept()), barred=barred, clock=lambda: NOW + 2)
        endpoint._door = Door(settings, LoopBuckets("t", rate=rate, burst=burst, url=lambda: NOBODY))
        try:
            return await work(endpoint)
        finally:
            await endpoint.close()

    return asyncio.run(main())


def said_by(secret):
    return lambda endpoint: post(endpoint, headers=signed(SAID, secret=secret))


def counted(reason):
    return metrics.CALLBACK_AUTH_FAILURES.labels(reason)._value.get()


@pytest.mark.parametrize(("secret", "status"), [(OWN, 401), (PREVIOUS, 401), (OTHER, 200), (SECRET, 200)])
def test_lc122_the_keys_of_a_fenced_backend_are_recognised_and_refused(secret, status):
    before = counted("fenced")
    answer = run(said_by(secret), barred=lambda: frozenset({"mock-1"}))
    assert answer.status == status
    assert counted("fenced") - before == (status == 401)
    if status == 401:
        assert answer.json() == {"error": "unauthorized", "code": 401}


def test_a_fence_is_seen_within_seconds_and_so_is_its_end(monkeypatch):
    monkeypatch.setattr(callbacks_asgi, "BARRED_FRESH_S", 0.0)
    barred = {"mock-1"}

    async def work(endpoint):
        first = await said_by(OWN)(endpoint)
        barred.clear()
        return first.status, (await said_by(OWN)(endpoint)).status

    assert run(work, barred=lambda: frozenset(barred)) == (401, 200)


def test_fences_are_asked_for_every_two_seconds_at_most():
    asked = []

    async def work(endpoint):
        return [(await said_by(OTHER)(endpoint)).status for _ in range(5)]

    assert run(work, barred=lambda: asked.append(1) or frozenset()) == [200] * 5
    assert len(asked) == 1


def test_lc62_without_knowing_the_fences_nothing_is_taken():
    def away():
        raise OperationalError("gone")

    assert run(said_by(OWN), barred=away).status == 503


def test_lc62_all_who_wait_for_the_fences_share_one_read_and_one_time_limit(monkeypatch):
    monkeypatch.setattr(callbacks_asgi, "ANSWER_WITHIN_S", 0.2)
    asked, back = [], threading.Event()

    def hangs():
        asked.append(1)
        back.wait(20)
        raise OperationalError("gone")

    async def work(endpoint):
        began = time.monotonic()
        answers = await asyncio.gather(*(said_by(OTHER)(endpoint) for _ in range(20)))
        took = time.monotonic() - began
        back.set()
        return {one.status for one in answers}, took

    statuses, took = run(work, barred=hangs)
    assert statuses == {503}
    assert len(asked) == 1
    assert took < 5


@pytest.mark.parametrize(
    ("secret", "labels"),
    [(OWN, ("mock-1", "current")), (PREVIOUS, ("mock-1", "previous")), (SECRET, ("shared", "current"))],
)
def test_the_key_that_signed_is_counted(secret, labels):
    before = metrics.CALLBACK_KEYS.labels(*labels)._value.get()
    assert run(said_by(secret)).status == 200
    assert metrics.CALLBACK_KEYS.labels(*labels)._value.get() == before + 1


def test_bc99_who_does_not_sign_is_told_to_wait_and_who_signs_is_let_in():
    """P25"""

    async def work(endpoint):
        refused = [await post(endpoint, headers={}) for _ in range(5)]
        return refused, await said_by(OWN)(endpoint), await post(endpoint, headers=signed(SAID, secret="x" * 40))

    refused, good, forged = run(work, rate=0.5, burst=3)
    assert [one.status for one in refused] == [401, 401, 401, 429, 429]
    assert refused[-1].json() == {"error": "callback rate limit exceeded", "code": 429}
    assert int(refused[-1].headers["retry-after"]) in (1, 2)
    assert (good.status, forged.status) == (200, 429)


def test_a_body_that_does_not_come_is_refused_like_one_that_is_too_long(monkeypatch):
    monkeypatch.setattr(callbacks_asgi, "ANSWER_WITHIN_S", 0.05)

    async def work(endpoint):
        async def never(scope, receive, send):
            await endpoint(scope, asyncio.Event().wait, send)

        return await post(never)

    answer = run(work)
    assert (answer.status, answer.json()) == (401, {"error": "unauthorized", "code": 401})
    assert answer.headers["connection"] == "close"
