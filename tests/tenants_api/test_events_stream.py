"""Events as server-sent events: the same door, another wire."""

from __future__ import annotations

import time
from contextlib import contextmanager

import orjson
import pytest

from fred.limits import Times
from leases.models import StatusEvent
from tenants_api.event_streams import StreamLimits
from tests.tenants_api.calls import bearer
from tests.tenants_api.streaming import ROWS, record, web_process
from tests.tenants_api.vectors import LEASE
from tests.waiting import wait_until

pytestmark = [ROWS, pytest.mark.usefixtures("chain", "unlimited")]


@pytest.fixture
def web(lease):
    with web_process() as one:
        yield one


def request(web, *, query="", method="GET", **headers):
    fields = {"Host": "x", "Accept": "text/event-stream", **bearer(), **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"{method} {web.target(query=query).decode()} HTTP/1.1\r\n{lines}\r\n".encode()


class Events:
    """Reads a stream of chunks, field by field."""

    def __init__(self, line):
        reader = line._reader
        self.status = int(reader.readline().split()[1])
        self.headers = {}
        while (text := reader.readline().rstrip(b"\r\n").decode()) != "":
            name, _, value = text.partition(": ")
            self.headers[name.lower()] = value
        self._reader, self._text = reader, b""

    def block(self):
        """What comes up to the next blank line; empty at the end of the stream."""
        while b"\n\n" not in self._text:
            size = int(self._reader.readline() or b"0", 16)
            self._text += self._reader.read(size)
            self._reader.readline()
            if not size:
                return ""
        found, _, self._text = self._text.partition(b"\n\n")
        return found.decode()

    def event(self):
        """The next event: its id and its frame."""
        head, kind, data = self.block().split("\n")
        assert kind == "event: status"
        frame = orjson.loads(data.removeprefix("data: "))
        assert head == f"id: {frame['id']}"
        return frame


@contextmanager
def listening(web, **how):
    with web.serving.connect() as line:
        line.send(request(web, **how))
        events = Events(line)
        assert events.status == 200
        assert events.block() == "retry: 3000"
        yield events


def test_ta113_events_arrive_with_ids(web):
    record(("provisioning", LEASE, ""))
    with listening(web) as events:
        assert events.headers["content-type"] == "text/event-stream"
        assert events.headers["cache-control"] == "no-store"
        assert events.headers["x-accel-buffering"] == "no"
        assert "content-length" not in events.headers
        record(("failed", LEASE, "no such image"))
        frame = events.event()
        assert (frame["lease_uuid"], frame["status"], frame["error"]) == (LEASE, "failed", "no such image")


def test_ta113_the_last_event_id_resumes_before_since_and_now(web):
    record(("a", LEASE, ""), ("b", LEASE, ""), ("c", LEASE, ""))
    ids = list(StatusEvent.objects.order_by("id").values_list("id", flat=True))
    for how, expected in (
        ({"Last_Event_ID": str(ids[1])}, ["c"]),
        ({"Last_Event_ID": str(ids[0]), "query": "?since=0"}, ["b", "c"]),
        ({"query": "?since=0"}, ["a", "b", "c"]),
        ({"query": f"?since={ids[2]}"}, []),
    ):
        with listening(web, **how) as events:
            assert [events.event()["status"] for _ in expected] == expected
    with listening(web, Last_Event_ID=str(ids[2] + 9)) as events:
        frame = events.event()
        assert (frame["status"], frame["id"], frame["gap"]) == ("c", str(ids[2]), True)


def test_ta113_a_comment_shows_that_the_stream_lives(lease):
    with web_process(StreamLimits(comment_s=0.05)) as web, listening(web) as events:
        assert [events.block() for _ in range(3)] == [": ping"] * 3
        record(("ready", LEASE, ""))
        while (block := events.block()) == ": ping":
            pass
        assert "ready" in block


def test_a_stream_is_not_cut_by_the_limits_of_requests_and_ends_after_its_life(lease):
    limits = StreamLimits(lifetime_s=1.5, comment_s=0.1)
    started = time.monotonic()
    with web_process(limits, times=Times(read_s=0.5, write_s=0.5)) as web, listening(web) as events:
        blocks = 0
        while events.block() == ": ping":
            blocks += 1
        assert time.monotonic() - started >= 1.5
        assert 1 <= blocks <= 15


def test_the_same_limits_another_answer(lease):
    with web_process(StreamLimits(per_lease=1)) as web:
        with listening(web):
            answer = web.serving.ask(request(web))
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert answer.body == b'{"error":"too many connections","code":503}\n'
        wait_until(lambda: web.serving.ask(request(web, method="HEAD")).status == 200)
        wait_until(lambda: is_let_in(web))


def is_let_in(web):
    with web.serving.connect() as line:
        line.send(request(web))
        return Events(line).status == 200


def test_ta81_ta113_failures_and_other_wishes(web):
    assert web.serving.ask(request(web, Authorization="Bearer x")).status == 401
    assert web.serving.ask(request(web, **bearer("bob"))).status == 403
    answer = web.serving.ask(request(web, query="?since=x"))
    assert (answer.status, answer.body) == (400, b'{"error":"invalid since cursor","code":400}\n')
    assert web.serving.ask(request(web, Last_Event_ID="x")).status == 400
    for accept in ("application/json", "*/*", "text/*", "text/event-stream;q=0, */*"):
        answer = web.serving.ask(request(web, Accept=accept))
        assert (answer.status, answer.body) == (400, b"Bad Request\n"), accept
    head = web.serving.ask(request(web, method="HEAD"))
    assert (head.status, head.body) == (200, b"")
    assert web.serving.ask(request(web, method="POST")).status == 405


def test_a_stop_of_the_server_ends_the_stream(lease):
    with web_process() as web, listening(web) as events:
        web.serving.ask_to_stop()
        assert events.block() == ""
