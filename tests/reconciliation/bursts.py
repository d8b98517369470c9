"""Bursts of leases at one mock backend that misbehaves, driven until each is where it belongs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from uuid import UUID

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
from fred.dev.foreground import free_port
from fred.http import Request, fetch
from fred.web import Web
from leases import lanes
from leases.models import Lease
from leases.status import LeaseState
from placements.callbacks_asgi import CallbackEndpoint
from placements.models import Operation, Teardown
from reconciliation.facts_types import Limits
from reconciliation.look import Looker
from tests.backends.servers import SECRET, mock_agent, served, target
from tests.factories.backends import BackendFactory
from tests.leases.house import config_of
from tests.reconciliation.story import Story, is_due, trust
from tests.waiting import wait_until

TOKEN = "token-0123456789abcdef"
LEASES = 20
BURST_S = 200.0
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
ROOT = Path(__file__).resolve().parents[2]
MOST_CRASHES = 2
"""After so many the agent is started without faults, so that a burst ends."""


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


@contextmanager
def mock_here(made: Counter[UUID]) -> Iterator[str]:
    """A mock behind its door in this process; counts what it made for each lease."""
    agent = mock_agent(outbox={"quick_waits": (0.05, 0.1), "slow_wait": 0.5})
    provision = agent.backend.provision

    async def counted(spec):
        found = await provision(spec)
        made[spec.lease_uuid] += 1
        return found

    agent.backend.provision = counted
    with served(serve.behind_door(agent, agent.backend, RuleBook(1), token=TOKEN)) as url:
        yield url


class CrashingAgent:
    """A mock agent as a process that these rules kill again and again, and that is started again on its file."""

    def __init__(self, state: Path, rules: list[dict]) -> None:
        self.port, self.state, self.rules = free_port(), state, rules
        self.crashes = 0
        self._ending = threading.Event()
        self._running = self._start()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _start(self) -> subprocess.Popen[bytes]:
        faults = json.dumps(self.rules if self.crashes < MOST_CRASHES else [])
        environment = {
            "PATH": os.environ["PATH"],
            "MOCK_BACKEND_CALLBACK_SECRET": SECRET,
            "MOCK_BACKEND_STATE_PATH": str(self.state),
            "MOCK_BACKEND_FAULTS": faults,
        }
        command = [sys.executable, "manage.py", "backend_agent", "mock", "--listen", f"127.0.0.1:{self.port}"]
        return subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def _keep(self) -> None:
        while True:
            status = self._running.wait()
            if self._ending.is_set():
                return
            assert status == 1, f"the agent ended with {status}"
            self.crashes += 1
            self._running = self._start()

    def answers(self) -> bool:
        """Whether it is up."""
        return fetch(Request(f"{self.url}/health", timeout=1.0)).status == 200

    def stop(self) -> None:
        """End it for good."""
        self._ending.set()
        while self._keeper.is_alive():
            self._running.kill()
            self._keeper.join(0.1)
        self._running.wait()


@contextmanager
def house(devchain, monkeypatch, url: str) -> Iterator[Story]:
    """A provider whose one backend is there, with a callback route that it reaches."""
    from placements.sender import Sender

    entry = BackendConfig(name="b1", url=url, timeout="2s", skus=[devchain.sku_uuid])
    base = config_of(devchain, settings.FRED, backends=(entry,)).model_copy(
        update={"callback_secret": SecretStr(SECRET)}
    )
    with listening(base) as port:
        config = base.model_copy(update={"callback_base_url": f"http://127.0.0.1:{port}"})
        monkeypatch.setattr(settings, "FRED", config)
        BackendFactory(name="b1", url=url, skus=[devchain.sku_uuid], timeout_ms=2000, is_default=True)
        for module in (breaker, load, targets):
            module.forget()
        lanes.ensure_signers()
        trust()
        sender = Sender()
        yield Story(devchain, {}, Looker(limits=QUICK, pushes=False), sender)
        sender.drain(deadline=0.5)
    for module in (breaker, load, targets):
        module.forget()


class Burst:
    """Leases of one moment, driven until all are where they belong."""

    def __init__(self, story, url, valkey, made):
        self.story, self.url, self.valkey, self.made = story, url, valkey, made
        self._swept = 0.0

    def order(self, verb, content):
        headers = (("Authorization", f"Bearer {TOKEN}"),)
        answer = fetch(Request(f"{self.url}/_mock/{verb}", headers, json.dumps(content).encode(), timeout=5))
        assert answer.status == 200, answer.body

    def break_with(self, *rules):
        self.order("faults", rules)

    def mend(self):
        self.break_with()
        self.order("reset", {})

    def take(self):
        return [self.story.create() for _ in range(LEASES)]

    def drive(self, leases, *ends):
        """Until each lease is in one of these states on chain."""
        self._drive_until(lambda: all(self.story.state(uuid) in ends for uuid in leases), leases)

    def finish(self, leases):
        """Until nothing is left to do, three sweeps later too."""
        for _ in range(3):
            self._sweep()
            self._drive_until(lambda: not self._is_anything_open(), leases)

    def _is_anything_open(self):
        return (
            is_due(Lease)
            or Operation.objects.filter(settled_at=None).exists()
            or Teardown.objects.exclude(state="done").exists()
        )

    def _drive_until(self, is_over, leases):
        until = time.monotonic() + BURST_S
        while time.monotonic() < until:
            self.story.look()
            self.story.sender.pull()
            lanes.run()
            if is_over():
                return
            if time.monotonic() - self._swept > 1.0:
                self._sweep()
        where = {str(uuid)[-4:]: (row.phase, row.reason) for uuid in leases if (row := self.story.row(uuid))}
        raise AssertionError(f"not over after {BURST_S:g} s: {where}")

    def _sweep(self):
        """A minute passes for the breaker, five seconds for silence, and every lease's wait."""
        self._swept = time.monotonic()
        self.valkey.delete("fred:cb:b1")
        breaker.forget()
        self.story.looker.sources._backend_silence.clear()
        self.story.sweep()
        Lease.objects.filter(due_at__gt=Now()).update(due_at=Now())

    def held(self):
        """What the backend lists: lease to status."""
        listed = BackendClient(target(self.url)).provisions().items
        found = {row.lease_uuid: str(row.status) for row in listed}
        assert len(found) == len(listed)
        return found

    def assert_ends(self, leases):
        """Each lease is ACTIVE and served, or rejected and nowhere: once made, once told to the chain. Both groups."""
        served_ = {uuid for uuid in leases if self.story.state(uuid) is LeaseState.ACTIVE}
        refused = set(leases) - served_
        for uuid in leases:
            told = self.story.included("MsgAcknowledgeLease", uuid), self.story.included("MsgRejectLease", uuid)
            assert told == ((1, 0) if uuid in served_ else (0, 1)), self.story.wishes(uuid)
        assert self.held() == dict.fromkeys(served_, "ready")
        assert not Teardown.objects.filter(lease_id__in=served_).exists(), "nothing that is served was removed"
        return served_, refused
