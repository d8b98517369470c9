"""`status`, `provision` and `connection` answer the same on the event loop as on a thread, and count together."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from django.db import connection, connections
from pydantic import SecretStr

from fred import loop_http
from fred.loop_database import LoopConnection
from leases.status import LeaseState
from tenants_api.models import UsedToken
from tests.tenants_api.both_ways import WAYS, forget, told
from tests.tenants_api.calls import bearer, envelope
from tests.tenants_api.placed import placed
from tests.tenants_api.read_cases import CASES, held
from tests.tenants_api.vectors import ALICE, BOB, LEASE
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
LIMITED, UNAUTHORIZED = envelope("rate limit exceeded", 429), envelope("unauthorized", 401)


def ask_each_way(stage, web, arrange, route, *, headers=lambda: None, **how):
    """The answer, which is the same on both ways, as are the questions to backends and chain."""
    answers, asked = [], []
    for way in WAYS:
        stage.begin()
        arrange(stage)
        answers.append(told(web.one(way, route, headers=headers(), **how)))
        asked.append([*(Counter(one.calls) for one in stage.backends.all), stage.chain.asked])
        stage.release()
    assert answers[0] == answers[1]
    assert asked[0] == asked[1]
    return SimpleNamespace(**dict(zip(("status", "headers", "body"), answers[0], strict=True)))


@pytest.mark.parametrize(
    ("arrange", "route", "status"),
    [pytest.param(*rest, id="-".join(filter(None, (name, rest[0].__name__, rest[1])))) for name, *rest in CASES],
)
def test_both_ways_answer_the_same(arrange, route, status, stage, web):
    found = ask_each_way(stage, web, arrange, route)
    assert found.status == status
    assert ("retry-after" in found.headers) == (status == 503)


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ({"headers": dict}, 401),
        ({"headers": lambda: {"Authorization": "Bearer bm8="}}, 401),
        ({"headers": lambda: bearer("bob", tenant=ALICE)}, 401),
        ({"headers": lambda: bearer(lease="0190a1b2-c3d4-7e5f-8a9b-ffffffffffff")}, 401),
        ({"path": "not-a-uuid"}, 400),
        ({"path": LEASE.upper()}, 200),
        ({"method": "POST"}, 405),
        ({"method": "HEAD"}, 200),
        ({"headers": lambda: {**bearer("bob"), "Accept": "application/problem+json", "X-Request-ID": "abc"}}, 403),
    ],
    ids=["no token", "no JSON", "forged", "another lease", "no uuid", "upper case", "POST", "HEAD", "problem"],
)
@pytest.mark.parametrize("route", ["status", "connection"])
def test_both_ways_let_the_same_in(route, how, status, stage, web):
    assert ask_each_way(stage, web, held, route, **how).status == status


@pytest.mark.parametrize("route", ["status", "connection"])
def test_both_ways_tell_how_the_bucket_stands(route, stage, web):
    found = ask_each_way(stage, web, held, route, headers=lambda: {**bearer(), "X-RateLimit-Info": "1"})
    assert [found.headers[f"ratelimit-{name}"] for name in ("limit", "remaining", "reset")] == ["10", "9", "1"]


# --- what both ways share


@pytest.mark.parametrize("first", WAYS)
@pytest.mark.parametrize("second", WAYS)
def test_ta5_a_token_is_good_once_whichever_way_it_comes(first, second, stage, web):
    held(stage)
    headers = bearer()

    async def work(ask):
        return [await ask(way, "connection", headers=headers) for way in (first, second)]

    good, again = web.run(work)
    assert (good.status, again.status, again.json()) == (200, 401, UNAUTHORIZED)
    assert stage.backends.one.calls == [f"/info/{LEASE}"]
    assert UsedToken.objects.count() == 1


@pytest.fixture
def statements(monkeypatch):
    """What the loop asked the database: the first word of each statement, and how many were asked for in it."""
    asked, rows = [], LoopConnection.rows

    async def noted(one, query, params, **how):
        asked.append((query.split()[0], len(params[-1])))
        return await rows(one, query, params, **how)

    monkeypatch.setattr(LoopConnection, "rows", noted)
    return asked


def test_ta7_of_two_uses_in_one_batch_one_gets_through(stage, web, statements):
    held(stage)
    headers, other = bearer(), bearer(timestamp=int(time.time()) - 1)

    async def work(ask):
        asked = [ask("loop", "connection", headers=one) for one in (headers, headers, other)]
        return [one.status for one in await asyncio.gather(*asked)]

    assert sorted(web.run(work)) == [200, 200, 401]
    assert [one for one in statements if one[0] == "INSERT"] == [("INSERT", 3)]


def test_ta7_of_equal_requests_at_one_moment_over_both_ways_one_gets_through(stage, web):
    held(stage)
    headers = bearer()

    async def work(ask):
        asked = [ask(way, "connection", headers=headers) for way in WAYS * 3]
        return [one.status for one in await asyncio.gather(*asked)]

    assert sorted(web.run(work)) == [200] + [401] * 5


def test_what_many_ask_at_once_goes_to_the_database_in_few_statements(stage, web, statements, monkeypatch):
    monkeypatch.setattr(loop_http, "CONNECTIONS", 4)  # more at once than a backend of the tests takes
    stage.limit(rps=1e6, burst=10**6)
    held(stage)

    async def work(ask):
        routes = ["connection", "status", "provision", "status", "provision"] * 10
        asked = [ask("loop", name, headers=bearer(timestamp=begun - n // 5)) for n, name in enumerate(routes)]
        return [one.status for one in await asyncio.gather(*asked)]

    begun = int(time.time())
    assert web.run(work) == [200] * 50
    asked = Counter(word for word, _ in statements)
    assert asked["SELECT"] <= 10
    assert asked["INSERT"] <= 5
    assert sum(many for word, many in statements if word == "INSERT") == 10


def test_of_many_who_ask_at_once_each_is_told_of_its_own_lease(stage, web, statements):
    mine, bobs, nobodys = (f"0190a1b2-c3d4-7e5f-8a9b-00000000000{number}" for number in range(3))
    for name, tenant, state in ((mine, ALICE, LeaseState.CLOSED), (bobs, BOB, LeaseState.ACTIVE)):
        placed(stage.lease(uuid=name, tenant=tenant, chain_state=state))
        stage.backends.one.says(f"/info/{name}", {"host": name})

    async def work(ask):
        asked = [(mine, "alice"), (bobs, "bob"), (bobs, "alice"), (nobodys, "alice"), (mine, "bob")]
        answers = await asyncio.gather(
            *(ask("loop", "status", path=name, headers=bearer(who, name)) for name, who in asked)
        )
        return [(one.status, one.json().get("lease_uuid"), one.json().get("state")) for one in answers]

    assert web.run(work) == [
        (200, mine, "LEASE_STATE_CLOSED"),
        (200, bobs, "LEASE_STATE_ACTIVE"),
        (403, None, None),
        (404, None, None),
        (403, None, None),
    ]
    assert ("SELECT", 5) in statements


@pytest.mark.parametrize("route", ["status", "provision", "connection"])
def test_while_one_waits_for_its_backend_others_are_answered(route, stage, web):
    placed(stage.lease())
    for path in (f"/provisions/{LEASE}", f"/info/{LEASE}"):
        stage.backends.one.answers[path] = lambda: stage.held.wait(10) and (404, b"{}")

    async def work(ask):
        slow = asyncio.ensure_future(ask("loop", route))
        await asyncio.to_thread(wait_until, lambda: stage.backends.one.calls)
        others = [(await ask("loop", "status", headers=bearer("bob"))).status for _ in range(3)]
        assert not slow.done()
        stage.held.set()
        return [*others, (await slow).status]

    assert web.run(work) == [403, 403, 403, 200 if route == "status" else 404]


@pytest.mark.parametrize("valkey_is", ["there", "away"])
def test_ta35_a_tenants_calls_are_counted_together(valkey_is, stage, web, monkeypatch):
    stage.limit(rps=0.01, burst=10)
    held(stage)
    if valkey_is == "away":
        lose_valkey(stage, monkeypatch)

    async def work(ask):
        found = [(await ask(way, "status")).status for way in WAYS * 5]
        refused = [await ask(way, "status") for way in WAYS]
        return found, refused, [(await ask(way, "status", headers=bearer("bob"))).status for way in WAYS]

    found, refused, others = web.run(work)
    assert (found, others) == ([200] * 10, [403] * 2)
    assert told(refused[0]) == told(refused[1])
    assert (refused[0].status, refused[0].json(), refused[0].headers["retry-after"]) == (429, LIMITED, "100")


def test_ta36_a_forged_token_costs_its_victim_nothing(stage, web):
    stage.limit(rps=0.01, burst=2)
    held(stage)
    forged = bearer("bob", tenant=ALICE)

    async def work(ask):
        refused = {(await ask(way, "connection", headers=forged)).status for way in WAYS * 5}
        return refused, [(await ask(way, "status")).status for way in (*WAYS, "loop")]

    assert web.run(work) == ({401}, [200, 200, 429])
    assert not UsedToken.objects.exists()


# --- what is away


def lose_valkey(stage, monkeypatch):
    url = SecretStr("redis://127.0.0.1:1/0")
    stage.house.HOUSE = stage.house.HOUSE.model_copy(update={"redis_url": url})
    monkeypatch.setattr("fred.valkey._client", None)
    forget()


@pytest.mark.parametrize("route", ["status", "provision", "connection"])
def test_without_valkey_both_ways_answer_as_with_it(route, stage, web, monkeypatch):
    def arrange(stage):
        held(stage)
        lose_valkey(stage, monkeypatch)

    assert ask_each_way(stage, web, arrange, route).status == 200


@pytest.mark.parametrize(("route", "status"), [("status", 500), ("provision", 500), ("connection", 503)])
def test_without_a_database_both_ways_say_the_same_and_serve_again_once_it_is_back(
    route, status, stage, web, monkeypatch
):
    held(stage)

    async def work(ask):
        with monkeypatch.context() as patched:
            for name, value in {"HOST": "127.0.0.1", "PORT": "1"}.items():
                patched.setitem(connections.settings["default"], name, value)
            away = [await ask(way, route) for way in WAYS]
        back = [await ask(way, route, headers=bearer(timestamp=begun - n)) for n, way in enumerate(WAYS)]
        return away, [one.status for one in back]

    begun = int(time.time())
    away, back = web.run(work)
    assert told(away[0]) == told(away[1])
    text = "internal server error" if status == 500 else "service temporarily unavailable"
    assert (away[0].status, away[0].json()) == (status, envelope(text, status))
    assert away[0].headers.get("retry-after") == ("1" if status == 503 else None)
    assert (back, len(stage.backends.one.calls)) == ([200, 200], 2)


@pytest.fixture
def without_store():
    """`with without_store():` the table of used tokens is gone."""

    def rename(table, to):
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {table} RENAME TO {to}")

    @contextmanager
    def gone():
        rename("tenants_api_usedtoken", "away")
        try:
            yield
        finally:
            rename("away", "tenants_api_usedtoken")

    return gone


def test_ta8_without_the_store_of_used_tokens_nothing_is_done(stage, web, without_store):
    answers = []
    for way in WAYS:
        stage.begin()
        held(stage)
        with without_store():
            answers.append(told(web.one(way, "connection")))
        assert (stage.backends.one.calls, stage.chain.asked) == ([], [])
    assert answers[0] == answers[1]
    assert (answers[0][0], json.loads(answers[0][2])) == (503, envelope("service temporarily unavailable", 503))
