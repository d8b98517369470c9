"""Limits that two web processes keep together, exactly; what somebody else's forged tokens cost nobody."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from django.db import connection

from tests.fred.served import connect
from tests.tenants_api.calls import bearer, token
from tests.tenants_api.vectors import ALICE, LEASE
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
ROOT = Path(__file__).resolve().parents[2]
STATUS = f"/v1/leases/{LEASE}/status"
LIMITS = {"RATE_LIMIT_RPS": "0.001", "RATE_LIMIT_BURST": "40", "TENANT_RATE_LIMIT_RPS": "0.001"}
LIMITS |= {"TENANT_RATE_LIMIT_BURST": "10", "TRUSTED_PROXIES": "127.0.0.1"}


@pytest.fixture
def webs(valkey):
    """Ports of two web processes on this test's database and Valkey; the first client they see is told by a header."""
    parts = urlsplit(os.environ["DATABASE_URL"])
    database = urlunsplit(parts._replace(path="/" + connection.settings_dict["NAME"]))
    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports.append(free.getsockname()[1])
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "fred.server"],
            cwd=ROOT,
            env={
                **os.environ,
                **{f"PROVIDER_{name}": value for name, value in LIMITS.items()},
                "PROVIDER_API_LISTEN_ADDR": f"127.0.0.1:{port}",
                "DATABASE_URL": database,
            },
        )
        for port in ports
    ]
    for port in ports:
        wait_until(lambda port=port: answers(port), timeout=30)
    valkey.flushdb()
    yield ports
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
    statuses = crowd([(webs[number % 2], "/nope", "198.51.100.1") for number in range(160)])
    assert (statuses.count(404), statuses.count(429)) == (40, 120)
    assert [ask(port, "/nope", "198.51.100.2") for port in webs] == [404, 404]
    assert [ask(port, "/health", "198.51.100.1") for port in webs] == [200, 200]
    assert [ask(port, "/nope", "2001:db8::1") for port in webs] == [404, 404]


def test_ta35_ta36_one_tenant_has_its_burst_in_both_together_and_forgers_cost_it_nothing(webs, valkey):
    genuine = token()
    forged = {"Authorization": f"Bearer {genuine[:-24]}{'A' * 22}=="}
    statuses = crowd([(webs[number % 2], STATUS, f"198.51.100.{number}", forged) for number in range(100)])
    assert statuses == [401] * 100
    assert not valkey.exists(f"fred:rl:tenant:{ALICE}")
    own = {"Authorization": f"Bearer {genuine}"}
    statuses = crowd([(webs[number % 2], STATUS, f"203.0.113.{number}", own) for number in range(60)])
    assert statuses.count(429) == 50
    other = bearer("bob")
    assert ask(webs[0], STATUS, "203.0.113.99", other) != 429
