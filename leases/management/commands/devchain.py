"""`manage.py devchain`: the simulated chain in the foreground, or one call of a running one's admin API."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import threading
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any
from urllib import error, request

from django.core.management.base import BaseCommand, CommandError

from fred.conf import arguments
from leases.chain import devchain
from leases.chain.devchain import commandline

_DEFAULTS = devchain.Limits()
_MOST = 10**9
_PORTS = (
    ("grpc", 9090, "gRPC"),
    ("rpc", 26657, "CometBFT RPC"),
    ("rest", 1317, "REST"),
    ("admin", 26670, "admin API"),
)


class Command(BaseCommand):
    """Run the simulated chain until SIGTERM or Ctrl-C, or speak to a running one."""

    help = "The simulated chain for development. With words it asks a running one: NOUN VERB [words] [name=value …]"
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> Any:
        """The parser, with all nouns and verbs below its options."""
        told = "commands for a running chain (words in [brackets] may be left out):\n" + commandline.listing()
        kwargs |= {"epilog": told, "formatter_class": RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Flags as in docs/devchain.md."""
        parser.add_argument("words", nargs="*", help="NOUN VERB …, or call METHOD PATH [JSON]")
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on; default %(default)s")
        for name, default, meaning in _PORTS:
            parser.add_argument(
                f"--{name}-port", type=arguments.port(like=default), default=default, metavar="PORT",
                help=f"{meaning}; default %(default)s; 0: a free one",
            )  # fmt: skip
        parser.add_argument("--chain-id", default="", help="in place of the genesis' own")
        parser.add_argument(
            "--genesis",
            "--fixture",
            dest="genesis",
            choices=("devnet", "scenario", "bare"),
            default="devnet",
            help="what the chain begins with; default %(default)s",
        )
        parser.add_argument("--profile", choices=("A", "B", "C"), default="", help="B, or what --state holds")
        parser.add_argument(
            "--block-mode", choices=devchain.MODES, default="interval", help="when blocks come; default %(default)s"
        )
        parser.add_argument(
            "--block-interval", type=arguments.seconds("1ms", "1h", like="1s or 100ms"), default=1.0, metavar="TIME",
            help="such as 1s or 100ms; default 1s",
        )  # fmt: skip
        gas = arguments.whole(-1, 10**18, like="50000000, or -1 for none")
        parser.add_argument("--block-gas-limit", type=gas, default=-1, metavar="GAS", help="-1: none")
        parser.add_argument(
            "--min-gas-price", type=arguments.fraction(like="0.001 or 1"), metavar="UMFX", help="umfx per gas"
        )
        for option, size, what in (
            ("--mempool-size", _DEFAULTS.mempool_size, "most waiting"),
            ("--keep-blocks", _DEFAULTS.keep_blocks, "blocks kept"),
        ):
            parser.add_argument(
                option, type=arguments.whole(1, _MOST, like=str(size)), default=size, metavar="N",
                help=f"{what}; default %(default)s",
            )  # fmt: skip
        parser.add_argument("--history", action="store_true", help="let x-cosmos-block-height select a past height")
        parser.add_argument(
            "--no-keepalive-policy",
            dest="keepalive_policy",
            action="store_false",
            help="let clients ping as often as they like",
        )
        parser.add_argument("--state", type=_state_file, default=None, metavar="FILE", help="keep the chain there")
        parser.add_argument(
            "--ready-file",
            type=arguments.file_to_write,
            metavar="FILE",
            help="write the addresses there once it serves",
        )
        parser.add_argument(
            "--in", dest="source", type=arguments.file_to_read, metavar="FILE", help="a file for `state restore`"
        )
        parser.add_argument(
            "--out", dest="target", type=arguments.file_to_write, metavar="FILE", help="write the answer there"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """Serve, or make the one call."""
        if options["words"]:
            answer = ask(options["admin_port"], options["words"], source=options["source"])
            if options["target"] is not None:
                options["target"].write_text(answer)
            else:
                self.stdout.write(answer)
            return
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        chain = _start(options)
        info = json.dumps(chain.call(chain.node.info))
        self.stdout.write(info)
        self.stdout.flush()
        if options["ready_file"] is not None:
            options["ready_file"].write_text(info)
        ended.wait()
        devchain.stop(chain)


def _start(options: dict[str, Any]) -> devchain.RunningDevchain:
    ports = devchain.Ports(
        grpc=options["grpc_port"], rpc=options["rpc_port"], rest=options["rest_port"], admin=options["admin_port"]
    )
    names = ("keep_blocks", "block_gas_limit", "mempool_size", "history", "keepalive_policy")
    try:
        return devchain.start(
            fixture=options["genesis"],
            chain_id=options["chain_id"],
            block_mode=options["block_mode"],
            block_interval=options["block_interval"],
            host=options["host"],
            ports=ports,
            profile=options["profile"],
            min_gas_price=options["min_gas_price"],
            state=options["state"],
            limits=devchain.Limits(**{name: options[name] for name in names}),
        )
    except (OSError, ValueError) as refused:
        is_taken = isinstance(refused, OSError) and refused.errno == errno.EADDRINUSE
        why = (isinstance(refused, OSError) and refused.strerror) or refused
        raise CommandError(
            f"devchain cannot start: {why}", returncode=os.EX_UNAVAILABLE if is_taken else 1
        ) from refused


def _state_file(text: str) -> Path:
    """A file that is there or can be made, with the folders it needs."""
    if not text or (arguments.seen(Path(text)) and Path(text).is_dir()):
        raise ArgumentTypeError(f"{text!r} is not a file; name one, such as /var/tmp/chain.state")
    return Path(text)


def ask(port: int, words: list[str], *, source: Path | None = None) -> str:
    """Call the admin API of a running chain; raises CommandError with its refusal."""
    method, path, body = _call(words)
    if source is not None:
        body = sys.stdin.read() if str(source) == "-" else source.read_text()
    call = request.Request(f"http://127.0.0.1:{port}/admin/{path}", body.encode() or None, method=method)
    try:
        with request.urlopen(call, timeout=60) as answer:  # noqa: S310
            text: str = answer.read().decode()
            return text
    except error.HTTPError as refused:
        raise CommandError(refused.read().decode()) from refused
    except error.URLError as refused:
        raise CommandError(f"no chain answers on port {port}: {refused.reason}") from refused


def _call(words: list[str]) -> tuple[str, str, str]:
    """Method, path below `/admin/` and JSON text of the words; raises CommandError."""
    if words[0] == "call":
        if len(words) not in (3, 4):
            raise CommandError("usage: devchain call METHOD PATH [JSON]")
        path = words[2].lstrip("/").removeprefix("admin/")
        return words[1].upper(), path, words[3] if len(words) == 4 else ""
    try:
        method, path, body = commandline.call_of(words)
    except commandline.BadCommand as error_:
        raise CommandError(str(error_)) from None
    return method, path, json.dumps(body) if body and method != "GET" else ""
