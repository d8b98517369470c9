"""`manage.py bench` from its first line to its last."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
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
from fred.conf import arguments
from fred.dev.options import LONGEST_INTERVAL
from fred.dev.run import PROBLEMS, Stopped, stopped_by_signals
from fred.dev.teller import Teller
from leases.chain.errors import ChainError

MOST_LEASES = 20_000
"""What the simulated chain's twenty tenants may have PENDING together."""
MOST_CALLS = 1_000_000
MOST_CONNECTIONS = 1000
MOST_WEBS = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the scenarios and their options."""
    scenarios = parser.add_subparsers(dest="scenario", required=True)
    leases = scenarios.add_parser("burst", help="leases of one block until all are ACTIVE, and single idle ones")
    _add_number(leases, "--leases", MOST_LEASES, default=1000, meaning="leases of the block")
    leases.add_argument(
        "--blocks", type=_blocks, default="instant", metavar="TIME",
        help="instant, or an interval such as 1s; default instant",
    )  # fmt: skip
    _add_number(leases, "--idle", 1000, default=10, meaning="single leases to time", least=0)
    _add_number(leases, "--warm-up", MOST_LEASES, default=200, meaning="leases before")
    calls = scenarios.add_parser("callbacks", help="durable callbacks per second through the web process")
    _add_number(calls, "--count", MOST_CALLS, default=20_000, meaning="callbacks")
    _add_number(calls, "--connections", MOST_CONNECTIONS, default=64, meaning="connections")
    posts = scenarios.add_parser("dispatch", help="provisions per second that the agent accepts")
    _add_number(posts, "--count", MOST_CALLS, default=10_000, meaning="provisions")
    reads = scenarios.add_parser("api", help="calls of tenants per second through the web process")
    reads.add_argument("--route", choices=api.ROUTES, required=True)
    _add_number(reads, "--leases", MOST_LEASES, default=1000, meaning="leases that are called in turn")
    _add_number(reads, "--count", MOST_CALLS, default=5000, meaning="calls at each number of connections")
    reads.add_argument(
        "--connections", type=arguments.whole(1, MOST_CONNECTIONS, like="16"), nargs="+", default=[1, 16, 64],
        metavar="N", help="connections, one measurement at each of these numbers; default 1 16 64",
    )  # fmt: skip
    _add_number(reads, "--web", MOST_WEBS, default=1, meaning="web processes")
    reads.add_argument(
        "--way", choices=api.WAYS, default="loop",
        help="how they serve the calls: on the event loop as the product does, on threads, by Django's own handler",
    )  # fmt: skip
    for scenario in (leases, calls, posts, reads):
        scenario.add_argument(
            "--json", type=arguments.file_to_write, default=None, metavar="PATH", help="write the report here too"
        )
        scenario.add_argument("--no-floor", action="store_true", help="measure the product alone")
        scenario.add_argument(
            "--wait", type=arguments.seconds("1s", "24h", like="300 or 10m"), default=300.0, metavar="TIME",
            help="longest wait of a step; default 300s",
        )  # fmt: skip


def _add_number(
    scenario: argparse.ArgumentParser, option: str, most: int, *, default: int, meaning: str, least: int = 1
) -> None:
    scenario.add_argument(
        option, type=arguments.whole(least, most, like=str(default)), default=default, metavar="N",
        help=f"{meaning}, {least} to {most}; default {default}",
    )  # fmt: skip


def _blocks(text: str) -> str:
    """How the chain makes its blocks, as it was named."""
    if text != "instant":
        try:
            arguments.seconds("1ms", LONGEST_INTERVAL, like="")(text)
        except argparse.ArgumentTypeError:
            raise argparse.ArgumentTypeError(
                f"{text!r} is neither instant nor a time from 1ms to {LONGEST_INTERVAL}, such as 1s"
            ) from None
    return text


def run(options: Mapping[str, Any]) -> int:
    """Measure one scenario and print its report; return the exit status.

    1 when something could not be done, with its reason on standard error; 130 after a stop that was asked for.
    """
    console = Console(stderr=True)
    teller = Teller(console)
    try:
        if options["scenario"] == "api":
            api.refuse_too_many(options["count"], leases=options["leases"])
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
                way=options["way"],
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
