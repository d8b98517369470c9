"""What the routes need around them: a chain as a table, backends as loopback servers.

Models are imported inside the fixtures: this file is read before Django is set up.
"""

import json
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from fred.conf import BackendConfig
from leases.chain.client import Absent, ChainLease, ExactLease, Unknown
from leases.status import LeaseState
from tests.tenants_api import openapi
from tests.tenants_api.calls import PROVIDER, SKU, bearer
from tests.tenants_api.vectors import ALICE, LEASE


class TableChain:
    """A chain that knows these leases; ``fails`` makes it silent."""

    def __init__(self):
        self.known = {}
        self.asked = []
        self.fails = False

    def leases(self, lease_uuids):
        self.asked += lease_uuids
        return {uuid: Unknown("no answer") if self.fails else self.known.get(uuid, Absent(100)) for uuid in lease_uuids}

    def add(self, lease_uuid, *, height=100, **changes):
        fields = {
            "uuid": lease_uuid,
            "tenant": ALICE,
            "provider_uuid": PROVIDER,
            "state": LeaseState.ACTIVE,
            "items": (),
            "created_at": None,
        }
        self.known[lease_uuid] = ExactLease(ChainLease(**{**fields, **changes}), height)


class ScriptedBackend:
    """A backend on loopback that answers by path; unknown paths are 404. ``calls`` is what it was asked.

    An answer is a status and a body, or a function that returns them, in a thread of its own.
    """

    def __init__(self, name):
        self.name, self.answers, self.calls = name, {}, []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                outer.calls.append(self.path)
                answer = outer.answers.get(self.path, (404, b"{}"))
                status, body = answer() if callable(answer) else answer
                with suppress(OSError):  # whoever asked may have given up
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def says(self, path, body, *, status=200):
        self.answers[path] = (status, body if isinstance(body, bytes) else json.dumps(body).encode())

    def holds(self, lease_uuid=LEASE, *, status="ready", code=200, **fields):
        self.says(f"/provisions/{lease_uuid}", {"lease_uuid": str(lease_uuid), "status": status, **fields}, status=code)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(autouse=True)
def documented(monkeypatch):
    """Every answer to a test client is one that the OpenAPI document has."""
    from django.test import Client

    send = Client.request

    def request(self, **asked):
        answer = send(self, **asked)
        openapi.check(asked["REQUEST_METHOD"], asked["PATH_INFO"], answer)
        return answer

    monkeypatch.setattr(Client, "request", request)


@pytest.fixture
def backends():
    """Two scripted backends, docker-1 (the default) and docker-2."""
    made = [ScriptedBackend("docker-1"), ScriptedBackend("docker-2")]
    yield SimpleNamespace(one=made[0], two=made[1], all=made)
    for one in made:
        one.close()


@pytest.fixture
def house(settings, backends, valkey):
    """The settings of the acceptance cases: provider P, both backends, no middleware; all rate limits unused."""
    settings.MIDDLEWARE = []
    settings.FRED = settings.FRED.model_copy(
        update={
            "provider_uuid": PROVIDER,
            "backends": (
                BackendConfig(name="docker-1", url=backends.one.url, default=True),
                BackendConfig(name="docker-2", url=backends.two.url, skus=[str(SKU)]),
            ),
        }
    )
    return settings


@pytest.fixture
def unlimited(house):
    """No limit on the number of a tenant's calls; the order of the checks stays that of a limited tenant."""
    house.FRED = house.FRED.model_copy(update={"tenant_rate_limit_rps": 1e6, "tenant_rate_limit_burst": 10**6})


@pytest.fixture
def chain(monkeypatch):
    """The chain that exact reads go to; the watcher is up to date."""
    from reconciliation.sources import Sources
    from tenants_api import lease_reads

    table = TableChain()
    monkeypatch.setattr(lease_reads, "sources", Sources(table))
    return table


@pytest.fixture
def watcher(house, db):
    """A watcher that saw a head just now."""
    from django.utils import timezone

    from tests.factories.leases import ChainCursorFactory

    return ChainCursorFactory(head_seen_at=timezone.now())


@pytest.fixture
def lease(watcher):
    """Stored lease L of alice, ACTIVE."""
    from tests.factories.leases import LeaseFactory

    return LeaseFactory(uuid=LEASE, tenant=ALICE, provider_uuid=PROVIDER, chain_state=LeaseState.ACTIVE, items=[])


@pytest.fixture
def at(monkeypatch):
    """`at(now)`: from here on the token check's clock stands at this unix time."""

    from tenants_api import auth

    def set_clock(now):
        monkeypatch.setattr(auth, "time", SimpleNamespace(time=lambda: now))

    return set_clock


@pytest.fixture
def ask(client, chain, house):
    """`ask("status")`: call a route of lease L as alice; return status and body."""

    def call(route, who="alice", *, path=LEASE, headers=None, body=None, method=None):
        headers = bearer(who, path) if headers is None else headers
        url = f"/v1/leases/{path}/{route}"
        if body is not None:
            response = client.post(url, body, content_type="application/octet-stream", headers=headers)
        else:
            response = client.generic(method or "GET", url, headers=headers)
        return SimpleNamespace(
            status=response.status_code,
            body=json.loads(response.content) if response.content else None,
            raw=response.content,
            headers=response.headers,
        )

    return call


@pytest.fixture
def stage(backends, house, valkey, monkeypatch):
    """What a case arranges before it is asked on the loop and on threads."""
    from tests.tenants_api.both_ways import Stage, forget

    made = Stage(backends, house, valkey, monkeypatch)
    made.begin()
    yield made
    made.held.set()
    forget()


@pytest.fixture
def web(stage, monkeypatch):
    """As in the web process no thread keeps its connection from one request to the next."""
    from django.db import connections

    from tests.tenants_api.both_ways import BothWays

    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)
    return BothWays(monkeypatch)
