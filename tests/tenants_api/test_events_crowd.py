"""A thousand subscribers of a hundred leases at one web process, some of whom do not read."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import orjson
import psutil
import pytest
from django.conf import settings
from django.db import connection
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from fred import serve
from fred.curl import Request
from fred.dev import children
from fred.dev.foreground import free_port
from fred.http import fetch
from leases.models import Lease
from leases.status import LeaseState
from tenants_api.event_slots import TOTAL
from tests.factories.leases import LeaseFactory
from tests.fred.served import upgrade
from tests.tenants_api.calls import token
from tests.tenants_api.streaming import record
from tests.tenants_api.vectors import ALICE
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
LEASES, EACH, SLOW_EACH, ROUNDS = 100, 10, 5, 40
BIG = "x" * 16_000


@pytest.fixture
def leases():
    """Ended leases: what is stored of them holds without a watcher."""
    made = LeaseFactory.build_batch(LEASES, tenant=ALICE, chain_state=LeaseState.CLOSED)
    Lease.objects.bulk_create(made)
    return sorted(lease.uuid for lease in made)


@pytest.fixture
def web(valkey, tmp_path):
    """The web process as it is served, over this test's database; its port and its figures."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    (tmp_path / "metrics").mkdir()
    parameters = connection.get_connection_params()
    port = free_port()
    environment = {
        **os.environ,
        "DATABASE_URL": "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**parameters),
        "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "metrics"),
        "PROVIDER_API_LISTEN_ADDR": f"127.0.0.1:{port}",
        "PROVIDER_RATE_LIMIT_RPS": "1000000",
        "PROVIDER_RATE_LIMIT_BURST": "1000000",
        "PROVIDER_TENANT_RATE_LIMIT_RPS": "1000000",
        "PROVIDER_TENANT_RATE_LIMIT_BURST": "1000000",
    }
    command = serve.command_of("web", environment)
    started = children.spawn(command, tmp_path / "web.log", environment=environment, folder=settings.BASE_DIR)
    try:
        wait_until(lambda: answers(port) or started.poll() is not None, timeout=60)
        assert started.poll() is None, (tmp_path / "web.log").read_text()
        yield port, psutil.Process(started.pid)
    finally:
        children.kill_group(started.pid)
        started.wait(10)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def answers(port):
    return fetch(Request(f"http://127.0.0.1:{port}/health", timeout=5.0, connect_timeout=1.0)).status == 200


@dataclass
class Listener:
    """One subscriber, what it got, and how long after the commit."""

    lease: UUID
    opened: ClientConnection
    got: list[str] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)

    async def listen(self, committed):
        async for text in self.opened:
            frame = orjson.loads(text)
            assert frame["lease_uuid"] == str(self.lease)
            self.got.append(frame["status"])
            if frame["status"] in committed:
                self.delays.append(time.monotonic() - committed[frame["status"]])


def url(port, lease):
    return f"ws://127.0.0.1:{port}/v1/leases/{lease}/events"


async def opened(port, lease):
    headers = {"Authorization": f"Bearer {token(lease=lease)}"}
    return await connect(
        url(port, lease), additional_headers=headers, ping_interval=None, compression=None, open_timeout=60
    )


async def refused(port, lease):
    """Code and reason with which one more is closed."""
    async with await opened(port, lease) as one, asyncio.timeout(60):
        with pytest.raises(ConnectionClosed) as end:
            await one.recv()
    return end.value.rcvd.code, end.value.rcvd.reason


async def is_let_in(port, lease):
    """Whether one more hears what is said of its lease."""
    async with await opened(port, lease) as one, asyncio.timeout(60):
        await asyncio.to_thread(say, "here", lease)
        return orjson.loads(await one.recv())["status"] == "here"


def say(status, lease):
    record((status, lease, ""))
    connection.close()


def silent(port, lease):
    """A client that opens its WebSocket and never reads again."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)  # else loopback alone keeps megabytes
    one.connect(("127.0.0.1", port))
    one.sendall(upgrade(f"/v1/leases/{lease}/events".encode(), Authorization=f"Bearer {token(lease=lease)}".encode()))
    assert b" 101 " in one.recv(4096)
    return one


def memory(process):
    """MiB that the process holds, shared pages counted in part."""
    return process.memory_full_info().pss / 2**20


def test_a_thousand_subscribers(web, leases, valkey):
    """Everybody gets every event of its lease once and in order, within a second, beside clients that do not read.

    The 1,001st in all and the 11th of a lease are refused (TA-83); who does not read is gone after 10 s (TA-88).
    """
    port, process = web
    with ExitStack() as deaf_ones:
        asyncio.run(crowd(port, process, leases, valkey, deaf_ones))


async def crowd(port, process, leases, valkey, deaf_ones):
    slow_of = leases[:2]
    before = memory(process)
    started = time.monotonic()
    places = [lease for lease in leases for _ in range(EACH - SLOW_EACH * (lease in slow_of))]
    gate = asyncio.Semaphore(32)

    async def join(lease):
        async with gate:
            return Listener(lease, await opened(port, lease))

    listeners = await asyncio.gather(*(join(lease) for lease in places))
    deaf = [
        deaf_ones.enter_context(await asyncio.to_thread(silent, port, lease))
        for lease in slow_of
        for _ in range(SLOW_EACH)
    ]
    opening_s = time.monotonic() - started
    idle = memory(process)
    assert len(listeners) + len(deaf) == 1000
    # Soon: a Valkey that answered too late on a busy machine is told again a moment after.
    await asyncio.to_thread(wait_until, lambda: valkey.zcard(TOTAL) == 1000)
    full = await refused(port, leases[-1])
    assert full == (1013, "too many connections")

    committed: dict[str, float] = {}
    listening = [asyncio.create_task(one.listen(committed)) for one in listeners]
    cpu = sum(process.cpu_times()[:2])
    started = time.monotonic()
    await asyncio.to_thread(publish, leases, slow_of, committed, listeners)
    wanted = list(committed)
    await asyncio.to_thread(wait_until, lambda: all(len(one.got) >= ROUNDS for one in listeners), timeout=60)
    telling_s = time.monotonic() - started
    cpu = sum(process.cpu_times()[:2]) - cpu
    busy = memory(process)
    await asyncio.to_thread(wait_until, lambda: valkey.zcard(TOTAL) == len(listeners))
    gone_s = time.monotonic() - started

    assert [one.got for one in listeners if one.got != wanted] == []
    delays = sorted(delay for one in listeners for delay in one.delays)
    sys.stderr.write(
        f"\n{len(listeners)} listeners and {len(deaf)} deaf ones opened in {opening_s:.1f} s; {len(delays)} deliveries "
        f"in {telling_s:.1f} s, {cpu:.1f} CPU s; after the commit p50 {delays[len(delays) // 2] * 1000:.0f} ms, p99 "
        f"{delays[len(delays) * 99 // 100] * 1000:.0f} ms, max {delays[-1] * 1000:.0f} ms; deaf ones gone after "
        f"{gone_s:.1f} s; memory {before:.1f} MiB before, {idle:.1f} with 1,000 open, {busy:.1f} after the events\n"
    )
    assert delays[-1] < 8, "who does not read is waited for"
    for one in deaf:
        one.close()

    more = [await opened(port, lease) for lease in slow_of for _ in range(SLOW_EACH)]
    assert await refused(port, leases[-1]) == (1013, "too many connections")
    await more.pop().close()
    await asyncio.to_thread(wait_until, lambda: valkey.zcard(TOTAL) == 999)
    assert await refused(port, leases[-1]) == (1013, "too many connections")  # its eleventh
    assert await is_let_in(port, leases[1])
    await asyncio.gather(*(one.opened.close() for one in listeners), *(one.close() for one in more))
    await asyncio.gather(*listening)


def publish(leases, slow_of, committed, listeners):
    """One event of every lease in one transaction, many times; those of leases with slow readers are big.

    The next when everybody who reads has the last: what a delay says is then how long all of them take.
    """
    for number in range(ROUNDS):
        wait_until(lambda number=number: all(len(one.got) >= number for one in listeners), timeout=60)
        status = f"s{number}-{uuid4().hex[:6]}"
        committed[status] = time.monotonic()
        record(*((status, lease, BIG if lease in slow_of else "") for lease in leases))
        committed[status] = time.monotonic()
    connection.close()
