"""What `manage.py dev` can be told."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fred.conf import arguments
from fred.dev.ports import LISTENERS, Listener

ROOT = Path(__file__).resolve().parent.parent.parent
"""The folder of manage.py."""
MOST_LEASES = 1000
"""So many leases of one tenant may be PENDING on the simulated chain, and the demo takes them all in one block."""
LONGEST_INTERVAL = "20s"
"""After 30 s without a block the control plane counts a chain as silent."""


@dataclass(frozen=True, slots=True)
class Options:
    """The command line and the environment, read once. `wanted` are the ports that were named on the command line."""

    folder: Path = ROOT / ".dev"
    once: bool = False
    leases: int = 1
    fresh: bool = False
    plain: bool = False
    free_ports: bool = False
    block_interval_s: float = 1.0
    wait_s: float = 120.0
    wanted: Mapping[str, int] = field(default_factory=dict)
    database_url: str = ""
    redis_url: str = ""
    parent: int | None = None

    @classmethod
    def of(cls, given: Mapping[str, object], environment: Mapping[str, str] = os.environ) -> Options:
        """From parsed arguments; services of one's own come from `DATABASE_URL` and `REDIS_URL`."""
        parsed = argparse.Namespace(**given)
        return cls(
            folder=Path(parsed.folder).absolute(),
            once=parsed.once,
            leases=parsed.leases,
            fresh=parsed.fresh,
            plain=parsed.plain,
            free_ports=parsed.free_ports,
            block_interval_s=parsed.block_interval,
            wait_s=parsed.wait,
            wanted={
                listener.name: port
                for listener in LISTENERS
                if (port := getattr(parsed, listener.argument)) is not None
            },
            database_url=environment.get("DATABASE_URL", ""),
            redis_url=environment.get("REDIS_URL", ""),
            parent=parsed.parent,
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--once", action="store_true", help="exit 0 after the leases were ACTIVE, closed and torn down")
    parser.add_argument(
        "--leases",
        type=arguments.whole(1, MOST_LEASES, like="25"),
        default=1,
        metavar="N",
        help=f"how many leases to drive, up to {MOST_LEASES}; default 1",
    )
    parser.add_argument("--fresh", action="store_true", help="start from nothing: delete the folder's contents first")
    parser.add_argument("--plain", action="store_true", help="lines of text instead of the live view")
    parser.add_argument(
        "--folder",
        type=_folder,
        default=str(ROOT / ".dev"),
        metavar="PATH",
        help="where everything is kept; default .dev",
    )
    parser.add_argument(
        "--wait",
        type=arguments.seconds("1s", "1h", like="120 or 5m"),
        default=120.0,
        metavar="TIME",
        help="longest wait for each stage; default 120s",
    )
    parser.add_argument(
        "--block-interval",
        type=arguments.seconds("10ms", LONGEST_INTERVAL, like="1s or 250ms"),
        default=1.0,
        metavar="TIME",
        help=f"of the simulated chain, up to {LONGEST_INTERVAL}; default 1s",
    )
    parser.add_argument(
        "--parent",
        type=arguments.whole(1, 2**31 - 1, like="4711"),
        default=None,
        metavar="PID",
        help="stop when this process, which started this one, ends; `make run` says its own",
    )
    parser.add_argument("--free-ports", action="store_true", help="take any free ports instead of the usual ones")
    for listener in LISTENERS:
        _add_port(parser, listener)


def _add_port(parser: argparse.ArgumentParser, listener: Listener) -> None:
    parser.add_argument(
        listener.option,
        type=arguments.port(like=listener.default),
        default=None,
        metavar="PORT",
        help=f"{listener.meaning}; default {listener.default}",
    )


def _folder(text: str) -> str:
    """A folder that is there or may be made; that it may be used is seen when it is locked."""
    if not text or (arguments.seen(Path(text)) and not Path(text).is_dir()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a folder; name one that is empty or new, such as /tmp/house")
    return text
