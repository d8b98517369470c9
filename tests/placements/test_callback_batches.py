"""Callbacks are stored in batches; 200 is said after the commit; the same signed request is stored once."""

import asyncio
import json
import threading

import pytest
from django.db import DataError, OperationalError

from placements import callback_batches, callbacks_asgi
from placements.callback_batches import Batcher, NotStored
from placements.callback_request import parse, read
from placements.callbacks_asgi import CallbackEndpoint
from tests.placements.callback_posts import LEASE, NOW, SAID, Kept, config, envelope, post, run, signed
from tests.waiting import wait_until


def test_what_arrives_during_a_commit_is_one_batch():
    started, go_on = threading.Event(), threading.Event()

    def first(_):
        started.set()
        assert go_on.wait(10)
        return set()

    async def work(endpoint):
        one = asyncio.create_task(post(endpoint))
        await asyncio.to_thread(started.wait, 10)
        more = [asyncio.create_task(post(endpoint)) for _ in range(50)]
        await asyncio.to_thread(wait_until, lambda: len(endpoint.batcher._waiting) == 50)
        go_on.set()
        return {answer.status for answer in await asyncio.gather(one, *more)}

    statuses, kept = run(work, apply=Kept(first))
    assert statuses == {200}
    assert [len(batch) for batch in kept.batches] == [1, 50]


def test_busy_ones_go_into_the_next_batch(monkeypatch):
    monkeypatch.setattr(callback_batches, "BUSY_PAUSE_S", 0.0)
    answer, kept = run(post, apply=Kept(set, set, lambda _: set()))
    assert (answer.status, len(kept.batches)) == (200, 3)


@pytest.mark.parametrize("error", [OperationalError("gone"), RuntimeError("bug")])
def test_lc62_without_a_commit_there_is_no_200(error):
    answer, kept = run(post, apply=Kept(error))
    assert (answer.status, answer.json()) == (503, envelope("service temporarily unavailable", 503))
    assert len(kept.batches) == 1


def test_a_callback_that_breaks_its_batch_hurts_only_itself():
    def apply(batch):
        if any(callback.error == "poison" for callback in batch):
            raise DataError("no such text")
        return set()

    async def work(endpoint):
        bodies = [
            json.dumps({"lease_uuid": LEASE, "status": "failed", "error": e}).encode() for e in ("a", "poison", "b")
        ]
        return [answer.status for answer in await asyncio.gather(*(post(endpoint, body) for body in bodies))]

    assert run(work, apply=apply)[0] == [200, 503, 200]


def test_no_answer_is_later_than_the_limit(monkeypatch):
    monkeypatch.setattr("placements.callbacks_asgi.ANSWER_WITHIN_S", 0.05)
    go_on = threading.Event()

    def slow(_):
        go_on.wait(10)
        return set()

    async def work(endpoint):
        first = asyncio.create_task(post(endpoint))
        second = asyncio.create_task(post(endpoint))
        statuses = [(await one).status for one in (first, second)]
        go_on.set()
        return statuses

    statuses, _ = run(work, apply=slow)
    assert statuses == [503, 503]


def test_who_gave_up_waiting_is_not_stored_later(monkeypatch):
    monkeypatch.setattr("placements.callbacks_asgi.ANSWER_WITHIN_S", 0.05)
    go_on = threading.Event()

    def slow(_):
        go_on.wait(10)
        return set()

    async def work(endpoint):
        answers = await asyncio.gather(*(post(endpoint) for _ in range(2)), post(endpoint))
        go_on.set()
        return [answer.status for answer in answers]

    kept = Kept(slow)
    monkeypatch.setattr(callback_batches, "BATCH", 1)
    assert run(work, apply=kept)[0] == [503, 503, 503]
    assert len(kept.batches) == 1


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(callback_batches, "MOST_WAITING", 3)

    async def work(endpoint):
        return sorted(answer.status for answer in await asyncio.gather(*(post(endpoint) for _ in range(5))))

    assert run(work)[0] == [200, 200, 200, 503, 503]


def test_after_the_end_nothing_is_taken():
    async def work(endpoint):
        await endpoint.close()
        with pytest.raises(NotStored):
            await endpoint.batcher.store(read(parse(SAID, identity_required=False), SAID, query=b""), within=1.0)
        return (await post(endpoint)).status

    async def main():
        endpoint = CallbackEndpoint(config(), Batcher(Kept()), clock=lambda: NOW)
        return await work(endpoint)

    assert asyncio.run(main()) == 503


def test_ta96_the_same_signed_request_again_is_answered_and_known_as_a_repeat():
    async def work(endpoint):
        return [(await post(endpoint)).status for _ in range(2)]

    statuses, kept = run(work)
    assert statuses == [200, 200]
    assert [callback.repeated for batch in kept.batches for callback in batch] == [False, True]


def test_ta96_a_request_that_was_not_stored_is_not_remembered():
    async def work(endpoint):
        return [(await post(endpoint)).status for _ in range(2)]

    assert run(work, apply=Kept(OperationalError("gone")))[0] == [503, 200]


def test_ta96_the_same_words_with_a_fresh_signature_are_a_new_report():
    async def work(endpoint):
        return [(await post(endpoint, headers=signed(SAID, at=NOW + n))).status for n in range(2)]

    statuses, kept = run(work)
    assert (statuses, len(kept.batches)) == ([200, 200], 2)


def test_ta96_memory_of_signatures_is_bounded(monkeypatch):
    monkeypatch.setattr(callbacks_asgi, "MOST_REMEMBERED", 2)
    remembered = callbacks_asgi.Remembered()
    for n in range(3):
        remembered.add(b"%d" % n, NOW)
    assert [remembered.has(b"%d" % n, NOW) for n in range(3)] == [False, True, True]
    assert not remembered.has(b"2", NOW + 361)
