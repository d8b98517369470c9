"""Starts processes of the control plane in milliseconds: all is imported once, each of them is a fork of that.

Commands come as lines on standard input: `worker POINTS`, `watcher POINTS`, `web POINTS` (`-`: none), or `probe -` and
`sweep -`, which once ask everybody's health and run the periodic tasks that are due. A `hasty` is a worker that sweeps
every second and waits less for what is in doubt or behind a breaker. Answers go as lines to standard
output: `started PID`, `ended PID STATUS`. Nothing is connected to and no thread runs before a fork, as in a Celery
worker's parent. A worker looks, dispatches and runs lanes in turn: no Celery, no broker.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from datetime import timedelta

import django

django.setup()

from django.conf import settings  # noqa: E402
from django.db import DatabaseError, connection  # noqa: E402
from redis import Redis  # noqa: E402

from fred import breaker, crash, server  # noqa: E402
from fred.dev.children import PR_SET_PDEATHSIG  # noqa: E402
from leases import lanes  # noqa: E402
from placements import dispatch  # noqa: E402
from reconciliation import look, periodic, probes, sweep  # noqa: E402
from reconciliation.facts_types import Limits  # noqa: E402
from reconciliation.watcher import Watcher  # noqa: E402

SWEEP_EVERY_S = 1.0
HASTY = Limits(
    watch_first=timedelta(seconds=0.5),
    watch_longest=timedelta(seconds=2),
    confirm_after=timedelta(seconds=2),
    source_retry=timedelta(seconds=0.5),
    late_push=timedelta(seconds=7),
    retry_s=(1, 1, 1, 1, 1, 1),
    late_retry=timedelta(seconds=1),
    maintenance_timeout=timedelta(seconds=17),
)
"""The same rules with shorter intervals, for calls that end after five seconds."""


def work(looker: look.Looker, sweep_every_s: float | None = None) -> None:
    tick, swept = threading.Event(), time.monotonic()
    while not tick.wait(0.03):
        try:
            looker.at_due_leases()
            dispatch.sender().pull()
            lanes.run()
            if sweep_every_s is not None and time.monotonic() > swept + sweep_every_s:
                sweep.sweep(looker.sources)
                close_breakers()
                swept = time.monotonic()
        except DatabaseError:
            connection.close()


def close_breakers() -> None:
    """The minute passes for which an open breaker holds calls back."""
    with Redis.from_url(os.environ["REDIS_URL"]) as valkey:
        for key in valkey.scan_iter("fred:cb:*"):
            valkey.delete(key)
    breaker.forget()


async def watch() -> None:
    await Watcher(settings.FRED).run(asyncio.Event())


def serve_web() -> None:
    """Several webs share one port: the kernel hands each connection to one of them."""
    listener = socket.socket()
    for option in (socket.SO_REUSEPORT, socket.SO_REUSEADDR):
        listener.setsockopt(socket.SOL_SOCKET, option, 1)
    listener.bind(settings.FRED.api_address)
    server.of_settings(settings.FRED, settings.HOUSE).run([listener])


def live(kind: str, points: str) -> None:
    """The whole life of a child; all that do more than one thing end by a signal."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    crash._points = crash.Points(points)
    try:
        match kind:
            case "worker":
                work(look.Looker())
            case "hasty":
                work(look.Looker(limits=HASTY), SWEEP_EVERY_S)
            case "watcher":
                asyncio.run(watch())
            case "web":
                serve_web()
            case "probe":
                probes.probe_all()
                os._exit(0)
            case "sweep":
                periodic.run_due()
                os._exit(0)
    except BaseException:  # noqa: BLE001 - whatever it is, the child ends here, not in the loop of its parent
        traceback.print_exc()
    finally:
        os._exit(1)


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def main() -> None:
    say("ready")
    left = b""
    while True:
        if select.select([0], [], [], 0.01)[0]:
            read = os.read(0, 65536)
            if not read:
                return
            left += read
        while b"\n" in left:
            line, _, left = left.partition(b"\n")
            kind, points = line.decode().split()
            pid = os.fork()
            if pid == 0:
                live(kind, "" if points == "-" else points)
            say(f"started {pid}")
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            continue
        if pid:
            say(f"ended {pid} {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    sys.exit(main())
