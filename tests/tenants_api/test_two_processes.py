"""Limits that two web processes keep together, exactly; what somebody else's forged tokens cost nobody."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest
from django.db import connection

from fred import signing
from fred.dev.foreground import free_port
from tests.fred.served import connect
from tests.services import PROVIDER
from tests.tenants_api.calls import bearer, token
from tests.tenants_api.vectors import ALICE, LEASE
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
ROOT = Path(__file__).resolve().parents[2]
STATUS = f"/v1/leases/{LEASE}/status"
LIMITS = {"RATE_LIMIT_RPS": "0.001", "RATE_LIMIT_BURST": "40", "TENANT_RATE_LIMIT_RPS": "0.001"}
LIMITS |= {"TENANT_RATE_LIMIT_BURST": "10", "TRUSTED_PROXIES": "127.0.0.1"}


@pytest.fixture(scope="module")
def running(django_db_setup):
    """Ports of two web processes on this test's database and Valkey; the first client they see is told by a header."""
    parts = urlsplit(os.environ["DATABASE_URL"])
    database = urlunsplit(parts._replace(path="/" + connection.settings_dict["NAME"]))
    ports = [free_port(), free_port()]
    processes = [start(port, database) for port in ports]

    def restart():
        kill_all(processes[:1])
        processes[0] = start(ports[0], database)
        wait_until(lambda: answers(ports[0]))

    for port in ports:
        wait_until(lambda port=port: answers(port))
    yield SimpleNamespace(ports=ports, restart=restart, kill=lambda: kill_all(processes))
    kill_all(processes)


def start(port, database):
    """A web process on this port."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.patient", "fred.server"],
        cwd=ROOT,
        env={
            **os.environ,
            **{f"PROVIDER_{name}": value for name, value in LIMITS.items()},
            "PROVIDER_API_LISTEN_ADDR": f"127.0.0.1:{port}",
            "DATABASE_URL": database,
        },
    )


@pytest.fixture
def webs(running, valkey):
    """The same, with full buckets."""
    return running


def kill_all(processes):
    for process in processes:
        process.kill()
        process.wait()


def answers(port):
    try:
        return ask(port, "/health", "203.0.113.1") == 200
    except ConnectionRefusedError:
        return False


def ask(port, target, client, headers=None):
    """The status of one request of a client behind the proxy."""
    named = {"Host": "x", "X-Forwarded-For": client, **(headers or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    with connect(port) as line:
        line.send(f"GET {target} HTTP/1.1\r\n{lines}\r\n".encode())
        return line.answer().status


def crowd(calls):
    """The statuses of these calls, made by sixteen at a time."""
    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(lambda one: ask(*one), calls))


def test_ta34_one_address_has_its_burst_in_both_together(webs):
    statuses = crowd([(webs.ports[number % 2], "/nope", "198.51.100.1") for number in range(160)])
    assert (statuses.count(404), statuses.count(429)) == (40, 120)
    assert [ask(port, "/nope", "198.51.100.2") for port in webs.ports] == [404, 404]
    assert [ask(port, "/health", "198.51.100.1") for port in webs.ports] == [200, 200]
    assert [ask(port, "/nope", "2001:db8::1") for port in webs.ports] == [404, 404]


def test_ta35_ta36_one_tenant_has_its_burst_in_both_together_and_forgers_cost_it_nothing(webs, valkey):
    genuine = token()
    forged = {"Authorization": f"Bearer {genuine[:-24]}{'A' * 22}=="}
    statuses = crowd([(webs.ports[number % 2], STATUS, f"198.51.100.{number}", forged) for number in range(100)])
    assert statuses == [401] * 100
    assert not valkey.exists(f"fred:rl:tenant:{ALICE}")
    own = {"Authorization": f"Bearer {genuine}"}
    statuses = crowd([(webs.ports[number % 2], STATUS, f"203.0.113.{number}", own) for number in range(60)])
    assert statuses.count(429) == 50
    other = bearer("bob")
    assert ask(webs.ports[0], STATUS, "203.0.113.99", other) != 429


def test_ta7_of_the_same_token_at_both_at_one_moment_one_gets_through(webs, valkey):
    """Fifty times; what becomes of the one that gets through does not matter here."""
    for number in range(50):
        valkey.flushdb()  # no try is one too many
        lease = uuid4()
        target, headers = f"/v1/leases/{lease}/connection", bearer(lease=lease)
        statuses = crowd([(port, target, f"203.0.113.{number}", headers) for port in webs.ports])
        assert statuses.count(401) == 1, statuses
        assert 429 not in statuses


def test_ta10_a_used_token_is_used_also_for_a_process_that_was_started_anew(webs):
    lease = uuid4()
    target, headers = f"/v1/leases/{lease}/connection", bearer(lease=lease, timestamp=int(time.time()) + 8)
    assert ask(webs.ports[0], target, "203.0.113.1", headers) not in {401, 429}
    webs.restart()
    assert ask(webs.ports[0], target, "203.0.113.1", headers) == 401


# The last one here: it leaves no process.
def test_ta97_what_was_answered_200_is_there_after_a_kill(webs):
    from leases.models import Lease
    from placements.models import Callback, Operation
    from placements.status import OperationState
    from tests.factories.placements import OperationFactory

    operation = OperationFactory()
    Lease.objects.update(due_at=None)
    target = f"/callbacks/provision?operation_id={operation.id}"
    body = f'{{"lease_uuid":"{operation.lease_id}","status":"success"}}'.encode()
    secret = PROVIDER["PROVIDER_CALLBACK_SECRET"]
    signature = signing.sign(secret, timestamp=int(time.time()), method="POST", target=target, body=body)
    with connect(webs.ports[0]) as line:
        head = f"POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{signing.HEADER}: {signature}\r\n"
        line.send(head.encode() + b"\r\n" + body)
        status = line.answer().status
        webs.kill()
    assert status == 200
    assert Callback.objects.count() == 1
    assert Operation.objects.get().state == OperationState.SUCCEEDED
    assert Lease.objects.get().due_at is not None
