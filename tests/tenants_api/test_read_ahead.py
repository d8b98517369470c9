"""What small reads ask for ahead of their checks: it spares trips, and changes neither an answer nor what one costs."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from uuid import UUID

import pytest
from django.db import connections
from psycopg import OperationalError

from fred.handler import Room
from fred.loop_buckets import LoopBuckets
from fred.loop_database import LoopConnection
from leases.models import Lease
from leases.status import LeaseState
from tenants_api import lease_reads, read_ahead, tokens
from tests.tenants_api.calls import bearer
from tests.tenants_api.read_cases import held
from tests.tenants_api.vectors import ALICE, LEASE

pytestmark = pytest.mark.django_db(transaction=True)
TELL = {"X-RateLimit-Info": "1"}


@pytest.fixture
def asked(monkeypatch):
    """How often Valkey was asked in a trip of its own, a lease was read, a signature verified."""
    counted = Counter()

    def count(kind, name, what):
        original = getattr(kind, name)

        def noted(*args, **kwargs):
            counted[what] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(kind, name, noted)

    count(LoopBuckets, "take_soon", "alone")
    count(LoopBuckets, "take_both", "together")
    count(LoopConnection, "rows", "statements")
    count(tokens, "_verify", "verified")
    return counted


def addresses(stage, *, rps, burst):
    stage.house.FRED = stage.house.FRED.model_copy(update={"rate_limit_rps": rps, "rate_limit_burst": burst})


def ask_in_turn(web, *headers, route="status", **how):
    """The answers to requests over the loop, one after the other."""

    async def work(ask):
        return [await ask("loop", route, headers=one, **how) for one in headers]

    return web.run(work)


@pytest.mark.parametrize(("route", "statements"), [("status", 1), ("provision", 1), ("connection", 2)])
def test_a_good_request_makes_one_trip_for_both_limits_and_reads_its_lease_once(route, statements, stage, web, asked):
    stage.limit(rps=0.01, burst=5)
    held(stage)
    (found,) = ask_in_turn(web, {**bearer(), **TELL}, route=route)
    assert (found.status, found.headers["ratelimit-remaining"]) == (200, "4")
    assert asked == {"together": 1, "statements": statements, "verified": 1}


def test_ta36_a_forged_token_is_looked_at_once_and_nothing_is_asked_for_it(stage, web, asked):
    stage.limit(rps=0.01, burst=1)
    held(stage)
    (found,) = ask_in_turn(web, bearer("bob", tenant=ALICE))
    assert found.status == 401
    assert asked == {"alone": 1, "verified": 1}
    (found,) = ask_in_turn(web, bearer())
    assert found.status == 200


def test_who_is_over_the_limit_of_its_address_costs_no_tenant_a_token_and_is_not_verified_again(stage, web, asked):
    addresses(stage, rps=0.001, burst=1)
    stage.limit(rps=0.01, burst=5)
    held(stage)
    answers = ask_in_turn(web, *[{**bearer(), **TELL}] * 4)
    assert [one.status for one in answers] == [200, 429, 429, 429]
    assert (asked["together"], asked["alone"], asked["verified"]) == (2, 2, 2)
    stage._valkey.delete(*stage._valkey.keys("fred:rl:ip*"))
    (found,) = ask_in_turn(web, {**bearer(), **TELL})
    assert (found.status, found.headers["ratelimit-remaining"]) == (200, "3")


def test_an_address_that_was_let_in_again_is_served_with_one_trip(stage, web, asked, valkey):
    addresses(stage, rps=0.001, burst=1)
    held(stage)

    async def work(ask):
        answers = [await ask("loop", "status") for _ in range(2)]
        for key in valkey.keys("fred:rl:ip:*"):
            valkey.delete(key)
        return [*answers, await ask("loop", "status"), *[await ask("loop", "status") for _ in range(1)]]

    assert [one.status for one in web.run(work)] == [200, 429, 200, 429]
    assert (asked["together"], asked["alone"]) == (3, 2)  # both limits of the third one by themselves


def test_of_many_pairs_at_once_the_tenant_pays_for_those_that_were_let_in(stage, web):
    addresses(stage, rps=0.001, burst=3)
    stage.limit(rps=0.001, burst=10)
    held(stage)

    async def work(ask):
        first = await asyncio.gather(*(ask("loop", "status") for _ in range(8)))
        return [one.status for one in first]

    assert sorted(web.run(work)) == [200] * 3 + [429] * 5
    addresses(stage, rps=1000, burst=1000)
    stage._valkey.delete(*stage._valkey.keys("fred:rl:ip*"))
    (found,) = ask_in_turn(web, {**bearer(), **TELL})
    assert (found.status, found.headers["ratelimit-remaining"]) == (200, "6")


@pytest.mark.parametrize(
    ("path", "lease", "status"),
    [(LEASE, "0190a1b2-c3d4-7e5f-8a9b-ffffffffffff", 401), ("not-a-uuid", "not-a-uuid", 400)],
    ids=["another lease", "no uuid"],
)
def test_ta35_a_good_token_on_a_wrong_path_costs_its_tenant_one_as_ever(path, lease, status, stage, web, asked):
    stage.limit(rps=0.01, burst=5)
    held(stage)
    (found,) = ask_in_turn(web, {**bearer(lease=lease), **TELL}, path=path)
    assert (found.status, found.headers.get("ratelimit-remaining")) == (status, None)
    assert asked == {"alone": 2, "verified": 1}
    (found,) = ask_in_turn(web, {**bearer(), **TELL})
    assert found.headers["ratelimit-remaining"] == "3"


@pytest.mark.parametrize(
    "change",
    [
        {"method": "POST"},
        {"headers": [(b"content-length", b"3")]},
        {"headers": [(b"transfer-encoding", b"chunked")]},
        {"path": f"/v1/leases/{LEASE}/x/status"},
        {"path": f"/v2/leases/{LEASE}/status"},
        {"raw_path": f"/v1/leases/{LEASE}/stat%75s".encode()},
        {"room": 0},
        {"rps": 0},
        {"authorization": None},
    ],
    ids=lambda change: "-".join(map(str, change)),
)
def test_nothing_is_asked_ahead_for(change, house, asked):
    change = dict(change)
    house.FRED = house.FRED.model_copy(update={"tenant_rate_limit_rps": change.pop("rps", 10)})
    room = Room(change.pop("room", 1))
    authorization = change.pop("authorization", bearer()["Authorization"])
    headers = [*change.pop("headers", []), *([(b"authorization", authorization.encode())] if authorization else [])]
    path = change.get("path", f"/v1/leases/{LEASE}/status")
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "headers": headers, **change}
    assert read_ahead.begin(room, scope) is None
    assert not asked


def test_a_lease_that_could_not_be_read_ahead_is_nobodys_error_when_the_request_is_refused(
    stage, web, monkeypatch, caplog
):
    addresses(stage, rps=0.001, burst=1)
    held(stage)

    async def work(ask):
        found = [(await ask("loop", "status")).status]
        await lease_reads.rows.close()
        with monkeypatch.context() as patched:
            for name, value in {"HOST": "127.0.0.1", "PORT": "1"}.items():
                patched.setitem(connections.settings["default"], name, value)
            found.append((await ask("loop", "status")).status)
            with pytest.raises(OperationalError):
                await lease_reads.rows.begin(UUID(LEASE))  # by now the one before has failed
        gc.collect()
        return found

    assert web.run(work) == [200, 429]
    assert "never retrieved" not in caplog.text


def test_the_lease_is_read_anew_for_each_request(stage, web):
    held(stage)
    states = []
    for state in (LeaseState.ACTIVE, LeaseState.CLOSED):
        Lease.objects.update(chain_state=state)
        (found,) = ask_in_turn(web, bearer())
        states.append(found.json()["state"])
    assert states == ["LEASE_STATE_ACTIVE", "LEASE_STATE_CLOSED"]
