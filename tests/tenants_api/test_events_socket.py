"""Events over WebSockets: who is let in, what comes, and how it ends. The real server, a real client."""

from __future__ import annotations

import asyncio
import base64
import re
import threading
import time
from contextlib import ExitStack, suppress
from unittest.mock import patch

import pytest
from django.db import OperationalError, connection, connections
from websockets.exceptions import InvalidStatus

from fred.limits import STOPPING, Times
from leases.models import Lease, StatusEvent
from leases.status import LeaseState
from tenants_api.event_streams import EventStreams, StreamLimits
from tenants_api.events_asgi import EventsApp
from tests.factories.leases import LeaseFactory
from tests.fred.served import upgrade
from tests.tenants_api.calls import PROVIDER, bearer, token
from tests.tenants_api.streaming import ROWS, end_of, record, statuses, told, web_process
from tests.tenants_api.vectors import ALICE, BOB, LEASE
from tests.waiting import wait_until

pytestmark = [ROWS, pytest.mark.usefixtures("chain", "unlimited")]
SECURITY = {"x-content-type-options", "x-frame-options", "x-xss-protection", "cache-control"}
OTHER = "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5c"


@pytest.fixture
def web(lease):
    with web_process() as one:
        yield one


def ask(web, *, query="", lease=LEASE, method=b"GET", headers=None, **changes):
    fields = {name: value.encode() for name, value in (bearer() if headers is None else headers).items()}
    return web.serving.ask(upgrade(web.target(query=query, lease=lease), method=method, **fields, **changes))


def test_ta80_a_token_in_the_header_or_in_the_query(web):
    for socket in (web.opened(), web.with_token(token())):
        with socket:
            record(("ready", LEASE, ""))
            assert statuses(socket, 1) == ["ready"]


def test_ta80_a_header_wins_over_the_query(web):
    with web.with_token("no token", Authorization=f"Bearer {token()}"):
        pass
    with pytest.raises(InvalidStatus, match="401"):
        web.with_token(token(), Authorization="Bearer no-token")
    with web.with_token(token(), Authorization=""):
        pass


def test_ta23_the_upgrade_itself_has_no_headers_of_answers(web):
    answer = ask(web)
    assert answer.status == 101
    assert not SECURITY & answer.headers.keys()
    assert {"vary", "server", "sec-websocket-extensions", "sec-websocket-protocol"}.isdisjoint(answer.headers)


def test_ta80_no_token_no_stream(web):
    good = token()
    plus = base64.b64encode(base64.b64decode(good)[:-1] + b',"x":">>>?"}').decode()
    assert "+" in plus
    for query in ("", "?token=", "?token", f"?Token={good}", f"?token={plus}", f"?token=&token={good}"):
        answer = ask(web, query=query, headers={})
        assert (answer.status, answer.body) == (401, b'{"error":"unauthorized","code":401}\n'), query


FAILURES = {
    "no such token": ({"headers": {"Authorization": "Bearer x"}}, 401, "unauthorized"),
    "token of another lease": ({"who": ("alice", OTHER)}, 401, "unauthorized"),
    "TA-14": ({"lease": "x", "who": ("alice", "x")}, 400, "invalid lease UUID format"),
    "another tenant": ({"who": ("bob",)}, 403, "forbidden"),
    "unknown lease": ({"lease": OTHER, "who": ("alice", OTHER)}, 404, "lease not found"),
    "no cursor": ({"query": "?since=x"}, 400, "invalid since cursor"),
    "negative cursor": ({"query": "?since=-1"}, 400, "invalid since cursor"),
    "token before cursor": ({"query": "?since=x", "headers": {}}, 401, "unauthorized"),
}


def test_ta81_failures_before_the_upgrade_have_the_envelope(web, chain):
    """TA-14 and the cursor of TA-112 too."""
    for name, (changes, status, text) in FAILURES.items():
        fields = dict(changes)
        if "who" in fields:
            fields["headers"] = bearer(*fields.pop("who"))  # a token made with this module would be too old
        answer = ask(web, **fields)
        assert (answer.status, answer.body) == (status, b'{"error":"%b","code":%d}\n' % (text.encode(), status)), name
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["vary"] == "Origin"
        assert answer.headers.keys() >= SECURITY


def test_ta16_a_lease_of_another_provider(web):
    Lease.objects.update(provider_uuid=OTHER)
    assert ask(web).body == b'{"error":"forbidden","code":403}\n'


def test_ta17_a_chain_that_does_not_answer(web, chain):
    Lease.objects.update(news_height=11)
    chain.fails = True
    assert ask(web).body == b'{"error":"internal server error","code":500}\n'


def test_ta8_a_stream_needs_no_table_of_used_tokens(web):
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE tenants_api_usedtoken RENAME TO away")
    try:
        with web.opened() as socket:
            record(("ready", LEASE, ""))
            assert statuses(socket, 1) == ["ready"]
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE away RENAME TO tenants_api_usedtoken")


def test_a_lease_in_any_state_has_events(web):
    for state in (LeaseState.PENDING, LeaseState.CLOSED, LeaseState.EXPIRED):
        Lease.objects.update(chain_state=state)
        with web.opened():
            pass


def test_an_upper_case_path_is_the_same_lease(web):
    """TA-11"""
    with web.opened(lease=LEASE.upper()) as socket:
        record(("ready", LEASE, ""))
        assert told(socket)["lease_uuid"] == LEASE


ALMOST = {
    "plain GET": ({"Connection": None, "Upgrade": None}, 400, b"Bad Request\n"),
    "no Upgrade": ({"Upgrade": None}, 426, b"Upgrade Required\n"),
    "another protocol": ({"Upgrade": b"h2c"}, 426, b"Upgrade Required\n"),
    "old version": ({"Sec_WebSocket_Version": b"8"}, 400, b"Bad Request\n"),
    "bad key": ({"Sec_WebSocket_Key": b"short"}, 400, b"Bad Request\n"),
}


def test_ta81_who_is_let_in_but_asks_for_no_websocket(web):
    """TA-23 too: the headers of a failed upgrade."""
    for name, (changes, status, body) in ALMOST.items():
        answer = ask(web, **changes)
        assert (answer.status, answer.body) == (status, body), name
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.headers["sec-websocket-version"] == "13"
        assert answer.headers.get("upgrade") == ("websocket" if status == 426 else None)
        assert answer.headers["vary"] == "Origin"
        assert answer.headers.keys() >= SECURITY
        assert ask(web, headers={}, **changes).status == 401
    for changes in ({}, {"Sec_WebSocket_Version": b"8"}):
        answer = ask(web, method=b"HEAD", **changes)
        assert (answer.status, answer.headers["sec-websocket-version"]) == (405, "13")
    assert ask(web, method=b"HEAD", Connection=None, Upgrade=None).status == 400


def test_another_method_is_not_allowed(web):
    answer = ask(web, method=b"POST", headers={})
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


def test_ta82_what_comes_after_the_opening_and_nothing_else(web):
    LeaseFactory(uuid=OTHER, tenant=ALICE, provider_uuid=PROVIDER)
    record(("provisioning", LEASE, ""))
    with web.opened() as socket:
        record(("ready", OTHER, ""))
        record(("failed", LEASE, "no such image"), ("ready", LEASE, ""))
        first, second = told(socket), told(socket)
        assert list(first) == ["lease_uuid", "status", "error", "timestamp"]
        assert list(second) == ["lease_uuid", "status", "timestamp"]
        assert (first["status"], first["error"], first["lease_uuid"]) == ("failed", "no such image", LEASE)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d*[1-9])?Z", first["timestamp"])


def test_ta83_an_eleventh_of_a_lease_is_closed_until_another_ends(web):
    with ExitStack() as stack:
        sockets = [stack.enter_context(web.opened()) for _ in range(10)]
        with web.opened() as one_more:
            assert end_of(one_more) == (1013, "too many connections")
        sockets.pop().close()
        wait_until(lambda: not is_full(web))


def is_full(web, **where):
    """Whether a new one is closed at once; what is let in hears the next event."""
    with web.opened(**where) as socket:
        record(("ready", where.get("lease", LEASE), ""))
        try:
            return end_of(socket) == (1013, "too many connections")
        except AssertionError:
            return False


def test_ta83_the_limit_of_all_counts_over_processes(lease):
    LeaseFactory(uuid=OTHER, tenant=ALICE, provider_uuid=PROVIDER, chain_state=LeaseState.ACTIVE)
    few = StreamLimits(total=4, per_lease=3)
    with web_process(few) as one, web_process(few) as two, ExitStack() as stack:
        first, *_ = [stack.enter_context(web.opened()) for web in (one, two, two)]
        assert is_full(one)  # three of this lease
        stack.enter_context(one.opened(lease=OTHER))
        assert is_full(two, lease=OTHER)  # four in all
        first.close()
        wait_until(lambda: not is_full(two))


def test_ta84_a_client_that_speaks_is_closed_for_good(lease):
    with web_process(StreamLimits(per_lease=1)) as web:
        for data, is_text, end in (
            (b"hello", True, (1008, "client messages not allowed")),
            (b"\xff", True, (1008, "client messages not allowed")),
            (b"\0" * 512, False, (1008, "client messages not allowed")),
            (b"\0" * 513, False, (1009, "")),
        ):
            with web.opened() as socket:
                socket.send(data, text=is_text)
                assert end_of(socket) == end
                wait_until(lambda: not is_full(web))


def test_ta85_a_connection_has_a_life(lease):
    with web_process(StreamLimits(lifetime_s=0.5)) as web, web.opened() as socket:
        record(("ready", LEASE, ""))
        assert statuses(socket, 1) == ["ready"]
        assert end_of(socket) == (1013, "max connection lifetime reached")


def test_ta86_a_stop_of_the_server_closes_with_1001(lease):
    with web_process() as web, web.opened() as socket:
        web.serving.ask_to_stop()
        assert end_of(socket) == (1001, "")


def test_who_comes_while_the_server_stops_is_told_to_come_back(lease):
    """Close code 1001, `broker closed`."""
    sent = []

    async def main():
        messages = asyncio.Queue()
        messages.put_nowait({"type": "websocket.connect"})
        stopping = asyncio.Event()
        stopping.set()
        scope = {
            "type": "websocket",
            "raw_path": f"/v1/leases/{LEASE}/events".encode(),
            "query_string": b"",
            "headers": [(b"authorization", bearer()["Authorization"].encode())],
            "state": {STOPPING: stopping},
        }

        async def send(message):
            sent.append(message)
            if message["type"] == "websocket.close":
                messages.put_nowait({"type": "websocket.disconnect", "code": message["code"]})

        streams = EventStreams()
        await EventsApp(streams)(scope, messages.get, send)
        await streams.close()

    with patch.dict(connections.settings["default"], CONN_MAX_AGE=0):
        asyncio.run(main())
    assert sent == [{"type": "websocket.accept"}, {"type": "websocket.close", "code": 1001, "reason": "broker closed"}]


def test_ta87_a_socket_stays_while_its_client_answers_pings_and_no_longer(lease):
    """Also past the time limits of requests."""
    times = Times(read_s=1.0, write_s=1.0, idle_s=1.0, ping_s=0.2, pong_s=3.0)
    with web_process(times=times) as web, web.opened() as lively, web.serving.connect() as silent:
        silent.send(upgrade(web.target(), Authorization=bearer()["Authorization"].encode()))
        assert silent.answer().status == 101
        started = time.monotonic()
        assert [silent.frame() for _ in range(2)] == [(9, b"")] * 2
        silent.rest()
        assert 2 < time.monotonic() - started < 30
        record(("ready", LEASE, ""))
        assert statuses(lively, 1) == ["ready"]


def test_ta88_a_client_that_does_not_read_delays_nobody(web):
    with web.opened() as quick, web.serving.connect() as slow:
        slow.send(upgrade(web.target(), Authorization=bearer()["Authorization"].encode()))
        assert slow.answer().status == 101
        for number in range(20):
            record((f"s{number}", LEASE, "x" * 16_000))
        assert statuses(quick, 20) == [f"s{number}" for number in range(20)]


def test_ta89_an_event_reaches_the_sockets_of_every_process(lease):
    with web_process() as one, web_process() as two, one.opened() as first, two.opened() as second:
        record(("ready", LEASE, ""))
        assert statuses(first, 1) == statuses(second, 1) == ["ready"]


def test_ta112_frames_with_ids_and_what_was_missed(web):
    record(("provisioning", LEASE, ""), ("ready", LEASE, ""))
    ids = list(StatusEvent.objects.order_by("id").values_list("id", flat=True))
    with web.opened(query="?since=0") as socket:
        first, second = told(socket), told(socket)
        assert [(one["status"], one["id"]) for one in (first, second)] == [
            ("provisioning", str(ids[0])),
            ("ready", str(ids[1])),
        ]
        assert list(first) == ["lease_uuid", "status", "timestamp", "id"]
        record(("restarting", LEASE, ""))
        assert told(socket)["status"] == "restarting"
    with web.opened(query=f"?since={ids[0]}") as socket:
        assert statuses(socket, 2) == ["ready", "restarting"]
    for query in ("?since=", "?since=now"):
        with web.opened(query=query) as socket:
            record(("live", LEASE, ""))
            assert told(socket)["id"].isdigit()


@pytest.mark.parametrize("beyond", [True, False], ids=["above the newest", "older than the oldest"])
def test_ta112_a_gap_is_said(beyond, web):
    record(("forgotten", LEASE, ""), ("ready", LEASE, ""))
    oldest, newest = StatusEvent.objects.order_by("id").values_list("id", flat=True)
    StatusEvent.objects.filter(id=oldest).delete()
    with web.opened(query=f"?since={newest + 5 if beyond else oldest}") as socket:
        first = told(socket)
        assert (first["status"], first["id"], first["gap"]) == ("ready", str(newest), True)
        record(("live", LEASE, ""))
        assert "gap" not in told(socket)


def test_ta112_a_gap_where_nothing_is_kept(web):
    Lease.objects.update(phase="degraded")
    with web.opened(query="?since=99999999999999999999999") as socket:
        first = told(socket)
        assert (first["status"], first["id"], first["gap"]) == ("failed", "0", True)


def test_ta112_kill_and_resume_under_a_hundred_publishers(web):
    """No gap and no repeat, wherever the connection is cut."""
    stop = threading.Event()
    publishers = [threading.Thread(target=publish, args=(number, stop), daemon=True) for number in range(100)]
    for one in publishers:
        one.start()
    got, since, cuts = [], "0", 0
    try:
        while len(got) < 200:
            with web.opened(query=f"?since={since}") as socket:
                got += [told(socket) for _ in range(1 + len(got) % 13)]
                since = got[-1]["id"]
                socket.socket.close()
                cuts += 1
    finally:
        stop.set()
        for one in publishers:
            one.join(20)
    assert cuts > 10
    kept = list(StatusEvent.objects.order_by("id").values_list("id", "status"))
    assert [(int(one["id"]), one["status"]) for one in got] == kept[: len(got)]


def publish(number, stop):
    for turn in range(20):
        if stop.is_set():
            break
        with suppress(OperationalError):  # a hundred want the same lease's lock, and none waits for more than 2 s
            record((f"{number}-{turn}", LEASE, ""))
    connection.close()


def test_who_may_not_see_a_lease_is_told_nothing_of_its_limits(lease):
    LeaseFactory(uuid=OTHER, tenant=BOB, provider_uuid=PROVIDER, chain_state=LeaseState.ACTIVE)
    with web_process(StreamLimits(total=1)) as web, web.opened():
        assert ask(web, lease=OTHER, headers=bearer("alice", OTHER)).status == 403


def test_a_websocket_elsewhere_is_not_found(web):
    answer = web.serving.ask(upgrade(f"/v1/leases/{LEASE}/nope".encode()))
    assert (answer.status, answer.body) == (404, b'{"error":"not found","code":404}\n')
    assert answer.headers.keys() >= SECURITY
