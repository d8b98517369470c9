"""`manage.py bench` from its first line to its last."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from fred.bench import api, burst, callbacks, dispatch
from fred.bench.api import RefusedError
from fred.bench.bare_burst import FloorError
from fred.bench.blocks import UnseenBlockError
from fred.bench.callbacks import NotDurableError
from fred.bench.caller import CallError
from fred.bench.dispatch import NotAcceptedError
from fred.bench.report import Report
from fred.bench.stage import Stage, opened
from fred.dev.run import PROBLEMS, Stopped, stopped_by_signals
from fred.dev.teller import Teller
from leases.chain.errors import ChainError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the scenarios and their options."""
    scenarios = parser.add_subparsers(dest="scenario", required=True)
    leases = scenarios.add_parser("burst", help="leases of one block until all are ACTIVE, and single idle ones")
    leases.add_argument("--leases", type=_positive, default=1000, metavar="N")
    leases.add_argument("--blocks", default="instant", help="instant, or an interval such as 1s; default instant")
    leases.add_argument("--idle", type=int, default=10, metavar="N", help="single leases to time; default 10")
    leases.add_argument("--warm-up", type=_positive, default=200, metavar="N", help="leases before; default 200")
    calls = scenarios.add_parser("callbacks", help="durable callbacks per second through the web process")
    calls.add_argument("--count", type=_positive, default=20_000, metavar="N")
    calls.add_argument("--connections", type=_positive, default=64, metavar="C")
    posts = scenarios.add_parser("dispatch", help="provisions per second that the agent accepts")
    posts.add_argument("--count", type=_positive, default=10_000, metavar="N")
    reads = scenarios.add_parser("api", help="calls of tenants per second through the web process")
    reads.add_argument("--route", choices=api.ROUTES, required=True)
    reads.add_argument("--leases", type=_positive, default=1000, metavar="N", help="called in turn; default 1000")
    reads.add_argument("--count", type=_positive, default=5000, metavar="N", help="calls at each number of connections")
    reads.add_argument("--connections", type=_positive, nargs="+", default=[1, 16, 64], metavar="C")
    reads.add_argument("--web", type=_positive, default=1, metavar="N", help="web processes; default 1")
    for scenario in (leases, calls, posts, reads):
        scenario.add_argument("--json", type=Path, default=None, metavar="PATH", help="write the report here too")
        scenario.add_argument("--no-floor", action="store_true", help="measure the product alone")
        scenario.add_argument("--wait", type=float, default=300.0, metavar="SECONDS", help="longest wait of a step")


def run(options: Mapping[str, Any]) -> int:
    """Measure one scenario and print its report; return the exit status.

    1 when something could not be done, with its reason on standard error; 130 after a stop that was asked for.
    """
    console = Console(stderr=True)
    teller = Teller(console)
    try:
        with stopped_by_signals(), opened(teller, wait_s=options["wait"]) as stage:
            report = _measure(stage, options)
    except Stopped:
        teller.done()
        teller.say("stopped")
        return 130
    except (
        *PROBLEMS,
        FloorError,
        UnseenBlockError,
        NotDurableError,
        NotAcceptedError,
        RefusedError,
        CallError,
        ChainError,
    ) as problem:
        teller.done()
        print(f"bench: {problem}", file=sys.stderr)
        return 1
    teller.done()
    if options["json"] is not None:
        report.write(options["json"])
    print(report.text())
    return 0


def _measure(stage: Stage, options: Mapping[str, Any]) -> Report:
    floor, wait_s = not options["no_floor"], options["wait"]
    if options["scenario"] == "burst":
        return burst.measure(
            stage,
            burst.Settings(
                leases=options["leases"],
                blocks=options["blocks"],
                idle=options["idle"],
                warm_up=options["warm_up"],
                floor=floor,
                wait_s=wait_s,
            ),
        )
    if options["scenario"] == "api":
        return api.measure(
            stage,
            api.Settings(
                route=options["route"],
                leases=options["leases"],
                calls=options["count"],
                connections=tuple(options["connections"]),
                web=options["web"],
                floor=floor,
                wait_s=wait_s,
            ),
        )
    if options["scenario"] == "dispatch":
        return dispatch.measure(stage, dispatch.Settings(count=options["count"], floor=floor, wait_s=wait_s))
    return callbacks.measure(
        stage,
        callbacks.Settings(count=options["count"], connections=options["connections"], floor=floor, wait_s=wait_s),
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number
