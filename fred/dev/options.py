"""What `manage.py dev` can be told."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fred.dev.ports import LISTENERS, Listener

ROOT = Path(__file__).resolve().parent.parent.parent
"""The folder of manage.py."""


@dataclass(frozen=True, slots=True)
class Options:
    """The command line and the environment, read once. `wanted` are the ports that were named on the command line."""

    folder: Path = ROOT / ".dev"
    once: bool = False
    leases: int = 1
    fresh: bool = False
    plain: bool = False
    free_ports: bool = False
    block_interval: str = "1s"
    wait_s: float = 120.0
    wanted: Mapping[str, int] = field(default_factory=dict)
    database_url: str = ""
    redis_url: str = ""

    @classmethod
    def of(cls, arguments: Mapping[str, object], environment: Mapping[str, str] = os.environ) -> Options:
        """From parsed arguments; services of one's own come from `DATABASE_URL` and `REDIS_URL`."""
        parsed = argparse.Namespace(**arguments)
        return cls(
            folder=Path(parsed.folder).absolute(),
            once=parsed.once,
            leases=parsed.leases,
            fresh=parsed.fresh,
            plain=parsed.plain,
            free_ports=parsed.free_ports,
            block_interval=parsed.block_interval,
            wait_s=parsed.wait,
            wanted={
                listener.name: port
                for listener in LISTENERS
                if (port := getattr(parsed, listener.argument)) is not None
            },
            database_url=environment.get("DATABASE_URL", ""),
            redis_url=environment.get("REDIS_URL", ""),
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--once", action="store_true", help="exit 0 after the leases were ACTIVE, closed and torn down")
    parser.add_argument("--leases", type=_positive, default=1, metavar="N", help="how many leases to drive; default 1")
    parser.add_argument("--fresh", action="store_true", help="start from nothing: delete the folder's contents first")
    parser.add_argument("--plain", action="store_true", help="lines of text instead of the live view")
    parser.add_argument("--folder", default=str(ROOT / ".dev"), help="where everything is kept; default .dev")
    parser.add_argument(
        "--wait", type=float, default=120.0, metavar="SECONDS", help="longest wait for each stage; default 120"
    )
    parser.add_argument("--block-interval", default="1s", metavar="TIME", help="of the simulated chain; default 1s")
    parser.add_argument("--free-ports", action="store_true", help="take any free ports instead of the usual ones")
    for listener in LISTENERS:
        _add_port(parser, listener)


def _add_port(parser: argparse.ArgumentParser, listener: Listener) -> None:
    parser.add_argument(
        listener.option,
        type=_port,
        default=None,
        metavar="PORT",
        help=f"{listener.meaning}; default {listener.default}",
    )


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError("a port is a number up to 65535; 0 takes a free one")
    return number


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number
