"""How many big answers one process holds: places, order, fairness, and when a place is free again."""

import threading

import pytest

from tenants_api import log_slots, logs
from tenants_api.log_slots import MOST_BYTES, MOST_RUNNING, MOST_WAITING, Full, LogSlots, TooLate
from tests.tenants_api.calls import bearer, envelope
from tests.tenants_api.placed import placed
from tests.tenants_api.vectors import LEASE
from tests.waiting import wait_until


@pytest.fixture
def slots():
    return LogSlots()


@pytest.fixture
def waiting(slots):
    """`waiting("a")`: a thread that waits for a place for this tenant; its result is the slot."""
    threads, found = [], {}

    def wait(name, tenant="a", size=1):
        before = len(slots._waiting)
        thread = threading.Thread(target=lambda: found.update({name: slots.take(tenant, size=size, seconds=20)}))
        thread.start()
        threads.append(thread)
        wait_until(lambda: len(slots._waiting) == before + 1 or name in found)
        return found

    yield wait

    def have_ended():
        for slot in list(slots._running):
            slot.release()
        return not any(thread.is_alive() for thread in threads)

    wait_until(have_ended)


def fill(slots, tenant="a", number=MOST_RUNNING):
    return [slots.take(tenant, size=1, seconds=0) for _ in range(number)]


def test_so_many_run_and_one_more_waits_in_vain(slots):
    fill(slots)
    with pytest.raises(TooLate):
        slots.take("b", size=1, seconds=0.01)
    assert not slots._waiting


def test_a_full_queue_is_told_at_once(slots, waiting):
    fill(slots)
    for number in range(MOST_WAITING):
        waiting(number)
    with pytest.raises(Full):
        slots.take("b", size=1, seconds=20)


def test_who_came_first_is_next(slots, waiting):
    held = fill(slots)
    waiting("first")
    found = waiting("second")
    held[0].release()
    wait_until(lambda: "first" in found)
    assert "second" not in found


def test_a_place_is_given_back_once(slots):
    held = fill(slots)
    held[0].release()
    held[0].release()
    fill(slots, number=1)
    with pytest.raises(TooLate):
        slots.take("a", size=1, seconds=0)


def test_bytes_count_too_until_the_answer_is_known_to_be_smaller(slots):
    big = slots.take("a", size=MOST_BYTES, seconds=0)
    with pytest.raises(TooLate):
        slots.take("b", size=1, seconds=0)
    big.shrink(10)
    assert slots.take("b", size=MOST_BYTES - 10, seconds=0).size == MOST_BYTES - 10


def test_nobody_passes_one_that_waits_for_room(slots, waiting):
    held = slots.take("a", size=MOST_BYTES - 1, seconds=0)
    waiting("big", "b", size=MOST_BYTES)
    found = waiting("small", "c", size=1)
    assert found == {}
    held.release()
    wait_until(lambda: "big" in found)
    assert "small" not in found


def test_a_tenant_has_no_more_than_two_while_another_waits(slots, waiting):
    held = fill(slots, "a", 2) + fill(slots, "b", 2)
    waiting("third of a", "a")
    found = waiting("third of c", "c")
    held[2].release()  # b's
    wait_until(lambda: "third of c" in found)
    assert "third of a" not in found
    held[3].release()  # nobody else waits now
    wait_until(lambda: "third of a" in found)


def test_alone_a_tenant_may_have_all(slots):
    assert len(fill(slots, "a", MOST_RUNNING)) == MOST_RUNNING


@pytest.fixture
def taken(monkeypatch, slots):
    """Every place to run is taken, and no place to wait is left."""
    monkeypatch.setattr(logs, "slots", slots)
    monkeypatch.setattr(log_slots, "MOST_WAITING", 0)
    return fill(slots)


@pytest.mark.django_db
def test_ta133_without_a_place_it_is_503_and_the_token_stays_good(ask, client, lease, backends, taken, unlimited):
    backends.one.says(f"/logs/{LEASE}?tail=100", {"0": "x"})
    headers = bearer()
    refused = ask("logs", headers=headers)
    assert (refused.status, refused.raw) == (503, b'{"error":"log response capacity exhausted","code":503}')
    assert refused.headers["Retry-After"] == "1"
    assert ask("logs", headers={}).status == 401
    assert ask("logs", "bob").status == 403
    bad = client.get(f"/v1/leases/{LEASE}/logs?tail=0", headers=headers)
    assert bad.json() == envelope("tail must be a positive integer", 400)
    assert backends.one.calls == []
    taken[0].release()
    assert ask("logs", headers=headers).body["logs"] == {"0": "x"}
    assert ask("logs", headers=headers).status == 200  # the place is free again


@pytest.mark.django_db
def test_whoever_waits_too_long_is_told_to_come_back(ask, lease, slots, monkeypatch):
    monkeypatch.setattr(logs, "slots", slots)
    monkeypatch.setattr(logs, "BUDGET_S", 0.05)
    fill(slots)
    late = ask("logs")
    assert (late.status, late.raw) == (503, b'{"error":"request timeout","code":503}')
    assert late.headers["Retry-After"] == "1"


@pytest.mark.django_db
@pytest.mark.parametrize("answer", [(200, b'{"0":"x"}'), (404, b""), (500, b""), (200, b"?")], ids=str)
def test_every_outcome_frees_the_place(answer, ask, lease, backends, slots, monkeypatch):
    monkeypatch.setattr(logs, "slots", slots)
    placed(lease)
    backends.one.answers[f"/logs/{LEASE}?tail=100"] = answer
    ask("logs")
    assert not slots._running


@pytest.mark.django_db
def test_a_place_is_kept_until_the_answer_was_written(lease, backends, slots, monkeypatch, house, chain, rf):
    monkeypatch.setattr(logs, "slots", slots)
    backends.one.says(f"/logs/{LEASE}?tail=100", {"0": "x"})
    request = rf.get(f"/v1/leases/{LEASE}/logs", headers=bearer())
    request.scope = {"fred.sent": []}
    response = logs.logs(request, LEASE)
    (slot,) = slots._running
    assert slot.size == len(response.content)
    (release,) = request.scope["fred.sent"]
    release()
    assert not slots._running
