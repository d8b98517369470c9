"""Callbacks: signed, in order, until they are taken."""

import asyncio
import json
import threading
import time
from datetime import timedelta

import pytest

from backends.contract import Callback, CallbackStatus
from backends.outbox import Outbox, Schedule, body_of
from backends.store import Store
from fred import signing
from tests.backends.servers import LEASE, SECRET, answer, peer, uuid_number
from tests.waiting import wait_until

QUICK = {"quick_waits": (0.01, 0.02), "slow_wait": 0.02}


class Running:
    """An outbox in a running event loop of its own."""

    def __init__(self, box):
        self.box = box
        self.store = box.store
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.call(box.start)

    def call(self, function):
        async def inside():
            found = function()
            return await found if asyncio.iscoroutine(found) else found

        return asyncio.run_coroutine_threadsafe(inside(), self._loop).result(10)

    @property
    def counts(self):
        return self.call(lambda: self.box.counts)

    def stop(self):
        if self._thread.is_alive():
            self.call(self.box.stop)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            if self.store is not None:
                self.store.close()


@pytest.fixture
def outboxes():
    made = []

    def make(**changes):
        made.append(Running(Outbox(**{"name": "mock-1", "secret": SECRET, **QUICK, **changes})))
        return made[-1]

    yield make
    for box in made:
        box.stop()


def report(running, *callbacks, url, state=None):
    async def all_of_them():
        for callback in callbacks:
            await running.box.report(callback, url=url, state=state)

    running.call(all_of_them)


def success(number=1):
    return Callback(uuid_number(number), CallbackStatus.SUCCESS)


def failure(number=1, error="image pull failed"):
    return Callback(uuid_number(number), CallbackStatus.FAILED, error=error)


def statuses(server):
    return [json.loads(got.body)["status"] for got in server.got]


def test_a_callback_is_signed_over_its_exact_target(outboxes):
    with peer() as server:
        report(outboxes(), success(), url=f"{server.url}/fred/callbacks/provision?b=2&operation_id=x%2f")
        got = wait_until(lambda: server.got)[0]
    header = got.headers["x-fred-signature"]
    verdict = signing.verify(header, keys=[SECRET], now=time.time(), method="POST", target=got.target, body=got.body)
    assert (verdict.ok, got.target) == (True, "/fred/callbacks/provision?b=2&operation_id=x%2f")
    assert json.loads(got.body) == {"lease_uuid": str(uuid_number(1)), "status": "success", "backend": "mock-1"}


def test_bodies_hold_only_what_belongs_to_the_status():
    assert json.loads(body_of(failure(error="e" * 300), backend=""))["error"] == "e" * 253 + "..."
    gone = Callback(LEASE, CallbackStatus.DEPROVISIONED, retained=True)
    assert json.loads(body_of(gone, backend=""))["retained"] is True


def test_bc102_a_callback_is_repeated_until_it_is_taken(outboxes):
    said = iter([500, 404, 302, 500, 204])
    with peer(lambda _got: answer(next(said))) as server:
        box = outboxes()
        report(box, success(), url=server.url)
        wait_until(lambda: box.counts.delivered == 1)
        assert len(server.got) == 5
        assert len({got.body for got in server.got}) == 1
        assert box.counts.waiting == 0


def test_waits_follow_the_schedule():
    """BC-102, BC-103"""
    box = Outbox(name="m", secret=SECRET)
    assert (tuple(box.quick_waits), box.slow_wait) == ((1.0, 5.0), 30.0)


def test_bc104_callbacks_of_a_lease_arrive_in_order_each_after_the_one_before(outboxes):
    refusals = iter(range(3))
    with peer(lambda _got: answer(503 if next(refusals, None) is not None else 200)) as server:
        box = outboxes()
        report(box, failure(), success(), failure(), url=server.url)
        wait_until(lambda: box.counts.delivered == 3)
        assert statuses(server) == ["failed"] * 4 + ["success", "failed"]


def test_a_lease_whose_callbacks_fail_holds_up_no_other(outboxes):
    with peer(lambda got: answer(503 if str(uuid_number(1)) in got.body.decode() else 200)) as server:
        box = outboxes()
        report(box, *[success(1) for _ in range(3)], *[success(n) for n in range(2, 120)], url=server.url)
        wait_until(lambda: box.counts.delivered == 118)
        assert box.counts.waiting == 3


def test_the_older_schedule_gives_up_after_three_tries_until_the_next_start(outboxes, tmp_path):
    """BC-103"""
    path = tmp_path / "a.sqlite"
    with peer(lambda _got: answer(500)) as server:
        box = outboxes(schedule=Schedule.V0_13, store=Store(path))
        report(box, success(), url=server.url)
        wait_until(lambda: len(server.got) == 3)
        box.stop()
        assert len(server.got) == 3
        server.script = lambda _got: answer(200)
        again = outboxes(schedule=Schedule.V0_13, store=Store(path))
        wait_until(lambda: again.counts.delivered == 1)


def test_what_is_never_taken_is_kept_and_tried_for_ever(outboxes, tmp_path):
    """BC-103: three quick tries, then again and again"""
    store = Store(tmp_path / "a.sqlite")
    with peer(lambda _got: answer(500)) as server:
        box = outboxes(store=store)
        report(box, success(), url=server.url)
        wait_until(lambda: len(server.got) >= 6)
        assert (box.counts.delivered, box.counts.waiting) == (0, 1)
        assert store.rows("SELECT count(*) FROM outbox") == [(1,)]
        assert len({got.body for got in server.got}) == 1


def test_the_schedule_once_tries_once(outboxes):
    with peer(lambda _got: answer(500)) as server:
        box = outboxes(schedule=Schedule.ONCE)
        report(box, success(), success(2), url=server.url)
        wait_until(lambda: box.counts.attempts == 2 and box.counts.waiting == 0)
        assert box.counts.delivered == 0


def test_c87_what_was_not_taken_is_sent_after_a_restart(outboxes, tmp_path):
    path = tmp_path / "a.sqlite"
    box = outboxes(store=Store(path), slow_wait=60.0, quick_waits=())
    with peer() as server:
        gone = server.url
    report(box, failure(1), success(1), success(2), url=gone + "/x")
    wait_until(lambda: box.counts.attempts >= 2)
    box.stop()
    store = Store(path)
    with peer() as server:
        store.write(lambda c: c.execute("UPDATE outbox SET url = ?", (server.url,))).result()
        again = outboxes(store=store)
        wait_until(lambda: again.counts.delivered == 3)
        assert sorted(statuses(server)) == ["failed", "success", "success"]
        wait_until(lambda: store.rows("SELECT count(*) FROM outbox") == [(0,)])


def test_a_callback_and_the_state_it_reports_are_one_commit(outboxes, tmp_path):
    box = outboxes(store=Store(tmp_path / "a.sqlite"))

    def fails(_connection):
        raise ValueError("no")

    with peer() as server:
        with pytest.raises(ValueError, match="no"):
            report(box, success(), url=server.url, state=fails)
        assert box.store.rows("SELECT count(*) FROM outbox") == [(0,)]
        assert box.counts.waiting == 0


def test_bc107_exact_results_never_expire_observations_do(outboxes, tmp_path):
    store = Store(tmp_path / "a.sqlite")
    old = time.time() - 30 * 86400
    with peer() as server:
        for lease, query in (("exact", "?operation_id=1"), ("seen", "?lifecycle_id=1")):
            row = (lease, server.url + "/" + query, b"{}", old)
            store.write(
                lambda c, row=row: c.execute(
                    "INSERT INTO outbox (lease_uuid, url, body, created_at) VALUES (?,?,?,?)", row
                )
            ).result()
        box = outboxes(store=store, max_age=timedelta(hours=24))
        wait_until(lambda: box.counts.delivered == 1 and box.counts.waiting == 0)
        assert [got.target for got in server.got] == ["/?operation_id=1"]


def test_c89_no_callback_url_is_logged(outboxes, caplog, capsys):
    with peer(lambda _got: answer(500)) as server:
        box = outboxes(schedule=Schedule.ONCE)
        report(box, success(), url=f"{server.url}/callbacks/provision?operation_id=bearer-secret")
        wait_until(lambda: box.counts.attempts == 1 and box.counts.waiting == 0)
    said = capsys.readouterr()
    assert "bearer-secret" not in caplog.text + said.out + said.err
    assert "not_taken" in caplog.text + said.out + said.err


def test_an_outbox_that_was_never_started_can_be_stopped():
    Outbox(name="m", secret=SECRET).stop()
