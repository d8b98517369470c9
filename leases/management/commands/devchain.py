"""`manage.py devchain`: the simulated chain in the foreground, or one call of a running one's admin API."""

from __future__ import annotations

import json
import signal
import threading
from argparse import ArgumentParser
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib import error, request

from django.core.management.base import BaseCommand, CommandError

from leases.chain import devchain

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0}


def seconds(text: str) -> float:
    """A duration like `1s`, `100ms` or `0.5`, in seconds; raises ValueError."""
    for unit, factor in _UNITS.items():
        if text.endswith(unit) and text[: -len(unit)].replace(".", "", 1).isdigit():
            return float(text[: -len(unit)]) * factor
    return float(text)


class Command(BaseCommand):
    """Run the simulated chain until SIGTERM or Ctrl-C."""

    help = "The simulated chain for development; `devchain call METHOD PATH [JSON]` asks a running one."
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Flags as in the documentation of `leases.chain.devchain`."""
        parser.add_argument("action", nargs="*", help="call METHOD PATH [JSON]: one call of the admin API")
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--grpc-port", type=int, default=9090)
        parser.add_argument("--rpc-port", type=int, default=26657)
        parser.add_argument("--rest-port", type=int, default=1317)
        parser.add_argument("--admin-port", type=int, default=26670)
        parser.add_argument("--chain-id", default="")
        parser.add_argument("--fixture", choices=("devnet", "scenario", "bare"), default="devnet")
        parser.add_argument("--profile", choices=("B",), default="B")
        parser.add_argument("--block-mode", choices=("interval", "instant", "manual"), default="interval")
        parser.add_argument("--block-interval", type=seconds, default=1.0)
        parser.add_argument("--min-gas-price", type=Fraction, default=None)
        parser.add_argument("--ready-file", type=Path, default=None)

    def handle(self, *_args: Any, **options: Any) -> None:
        """Serve, or make the one call."""
        if options["action"]:
            self.stdout.write(ask(options["admin_port"], options["action"]))
            return
        ports = devchain.Ports(
            grpc=options["grpc_port"], rpc=options["rpc_port"], rest=options["rest_port"], admin=options["admin_port"]
        )
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        try:
            chain = devchain.start(
                fixture=options["fixture"],
                chain_id=options["chain_id"],
                block_mode=options["block_mode"],
                block_interval=options["block_interval"],
                host=options["host"],
                ports=ports,
                profile=options["profile"],
                min_gas_price=options["min_gas_price"],
            )
        except OSError as refused:
            raise CommandError(f"devchain cannot listen: {refused}") from refused
        info = json.dumps(chain.call(chain.node.info))
        self.stdout.write(info)
        self.stdout.flush()
        if options["ready_file"] is not None:
            options["ready_file"].write_text(info)
        ended.wait()
        devchain.stop(chain)


def ask(port: int, action: list[str]) -> str:
    """Call the admin API of a running chain; raises CommandError with its refusal."""
    if action[0] != "call" or len(action) not in (3, 4):
        raise CommandError("usage: devchain call METHOD PATH [JSON]")
    body = action[3].encode() if len(action) == 4 else None
    path = action[2] if action[2].startswith("/admin") else f"/admin/{action[2].lstrip('/')}"
    call = request.Request(f"http://127.0.0.1:{port}{path}", body, method=action[1].upper())
    try:
        with request.urlopen(call, timeout=60) as answer:  # noqa: S310
            text: str = answer.read().decode()
            return text
    except error.HTTPError as refused:
        raise CommandError(refused.read().decode()) from refused
    except error.URLError as refused:
        raise CommandError(f"no chain answers on port {port}: {refused.reason}") from refused
