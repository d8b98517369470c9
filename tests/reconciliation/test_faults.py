"""Bursts against a mock that misbehaves: one provision for each lease, nothing lost, nothing destroyed."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from uuid import UUID

import pytest
import uvicorn
from django.conf import settings
from django.db.models.functions import Now
from pydantic import SecretStr

from backends import load, targets
from backends.client import BackendClient
from backends.mock import serve
from backends.mock.faults import RuleBook
from fred import breaker
from fred.conf import BackendConfig
from fred.http import Request, fetch
from fred.web import Web
from leases import lanes
from leases.models import Lease
from leases.status import LeaseState
from placements.callbacks_asgi import CallbackEndpoint
from placements.models import Teardown
from reconciliation.facts_types import Limits
from reconciliation.look import Looker
from tests.backends.servers import SECRET, mock_agent, served, target
from tests.factories.backends import BackendFactory
from tests.leases.house import config_of
from tests.reconciliation.story import ROWS, Story, trust
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, ROWS]

TOKEN = "token-0123456789abcdef"
LEASES = 20
BURST_S = 100.0
QUICK = Limits(
    watch_first=timedelta(seconds=0.2),
    watch_longest=timedelta(seconds=1),
    confirm_after=timedelta(seconds=1),
    source_retry=timedelta(seconds=0.5),
    late_push=timedelta(seconds=4),
    retry_s=(1, 1, 1, 1, 1, 1),
    late_retry=timedelta(seconds=1),
)
"""The same rules with shorter intervals; the time limit of callbacks stays."""


def some(action, route="provision", *, share=0.3, **how):
    return {"action": action, "match": {"route": route, "probability": share}, **how}


def callbacks(kind, **how):
    return some("callback", "", kind=kind, **how)


FAULTS = {
    "latency": some("latency", p50_ms=50, p99_ms=900),
    "hang before the work": some("hang"),
    "hang after the work": some("hang", effect=True),
    "hang inside the body": some("hang", at="body", effect=True),
    "500 before the work": some("status", status=500),
    "500 after the work": some("status", status=500, effect=True),
    "503 without a word": some("status", status=503, shape="empty"),
    "503 after the work": some("status", status=503, effect=True),
    "400 as html": some("status", status=400, shape="html"),
    "302": some("status", status=302, shape="redirect"),
    "lost before the work": some("lose", effect=False),
    "lost after the work": some("lose"),
    "result twice": some("result", kind="twice"),
    "result late": some("result", kind="late", seconds=1.0),
    "callback dropped": callbacks("drop"),
    "callback five times": callbacks("duplicate", copies=5),
    "callback late": callbacks("delay", seconds=1.0),
    "callbacks out of order": callbacks("reorder"),
    "callback with a wrong key": callbacks("wrong_key"),
    "callback unsigned": callbacks("unsigned"),
    "callback tampered": callbacks("tampered"),
    "callback from yesterday": callbacks("old"),
    "callback from tomorrow": callbacks("future"),
    "callback to a wrong query": callbacks("wrong_query"),
    "callback retained": callbacks("retained"),
    "list without end": some("inventory", "provisions", kind="endless"),
    "list is 404": some("inventory", "provisions", kind="not_found"),
    "list with a row twice": some("inventory", "provisions", kind="duplicate"),
    "point read fails": some("status", "provision_info", status=500),
}
THREE = [
    ("lost after the work", "callback dropped", "point read fails"),
    ("500 after the work", "callback five times", "latency"),
    ("503 after the work", "callback late", "list is 404"),
]


@contextmanager
def listening(config):
    """The callback route on a port of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    endpoint = CallbackEndpoint(config)
    server = uvicorn.Server(uvicorn.Config(Web(endpoint, [endpoint.close]), lifespan="on", log_config=None, ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


@pytest.fixture
def burst(devchain, transactional_db, valkey, monkeypatch):
    """A house with one mock backend behind its door, and a callback route that it reaches."""
    from placements.sender import Sender

    agent = mock_agent(outbox={"quick_waits": (0.05, 0.1), "slow_wait": 0.5})
    book = RuleBook(1)
    with ExitStack() as stack:
        url = stack.enter_context(served(serve.behind_door(agent, agent.backend, book, token=TOKEN)))
        entry = BackendConfig(name="b1", url=url, timeout="2s", skus=[devchain.sku_uuid])
        base = config_of(devchain, settings.FRED, backends=(entry,)).model_copy(
            update={"callback_secret": SecretStr(SECRET)}
        )
        port = stack.enter_context(listening(base))
        config = base.model_copy(update={"callback_base_url": f"http://127.0.0.1:{port}"})
        monkeypatch.setattr(settings, "FRED", config)
        BackendFactory(name="b1", url=url, skus=[devchain.sku_uuid], timeout_ms=2000, is_default=True)
        for module in (breaker, load, targets):
            module.forget()
        lanes.ensure_signers()
        trust()
        sender = Sender()
        yield Burst(Story(devchain, {}, Looker(limits=QUICK, pushes=False), sender), url, valkey)
        sender.drain(deadline=0.5)
    for module in (breaker, load, targets):
        module.forget()


class Burst:
    """Leases of one moment, driven until all are where they belong."""

    def __init__(self, story, url, valkey):
        self.story, self.url, self.valkey = story, url, valkey

    def break_with(self, *rules):
        headers = (("Authorization", f"Bearer {TOKEN}"),)
        answer = fetch(Request(f"{self.url}/_mock/faults", headers, json.dumps(rules).encode(), timeout=5))
        assert answer.status == 200, answer.body

    def drive(self, leases):
        until, swept = time.monotonic() + BURST_S, 0.0
        while time.monotonic() < until:
            self.story.look()
            self.story.sender.pull()
            lanes.run()
            if all(self.story.state(uuid) is LeaseState.ACTIVE for uuid in leases):
                return
            if time.monotonic() - swept > 1.0:
                swept = time.monotonic()
                self.valkey.delete("fred:cb:b1")  # a minute passes for the breaker, five seconds for silence
                breaker.forget()
                self.story.looker.sources._backend_silence.clear()
                self.story.sweep()
                Lease.objects.filter(due_at__gt=Now()).update(due_at=Now())
        where = {str(uuid)[-4:]: (row.phase, row.reason) for uuid in leases if (row := self.story.row(uuid))}
        raise AssertionError(f"not all are ACTIVE after {BURST_S:g} s: {where}")


def survive(burst, *rules):
    burst.break_with(*rules)
    leases = [burst.story.create() for _ in range(LEASES)]
    burst.drive(leases)
    for uuid in leases:
        assert burst.story.included("MsgAcknowledgeLease", uuid) == 1
        assert burst.story.wishes(uuid) == {"ack": "done"}
    assert not Teardown.objects.exists()
    burst.break_with()
    fetch(Request(f"{burst.url}/_mock/reset", (("Authorization", f"Bearer {TOKEN}"),), b"{}", timeout=5))
    listed = BackendClient(target(burst.url)).provisions().items
    assert {row.lease_uuid for row in listed} == {UUID(str(uuid)) for uuid in leases}
    assert len(listed) == LEASES
    assert {str(row.status) for row in listed} == {"ready"}


@pytest.mark.parametrize("name", FAULTS)
def test_bc_17_2_each_fault_alone(burst, name):
    survive(burst, FAULTS[name])


@pytest.mark.parametrize("names", THREE, ids=", ".join)
def test_bc_17_2_three_at_once(burst, names):
    survive(burst, *(FAULTS[name] for name in names))
