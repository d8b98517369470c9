"""Which settings a process needs, told by its command line."""

import argparse
from collections.abc import Sequence
from enum import StrEnum
from pathlib import PurePath


class Role(StrEnum):
    """The settings tree that must be valid before the process starts."""

    PROVIDER = "provider"  # the control plane: everything
    AGENT = "agent"  # a backend: its own tree, neither database nor provider
    NONE = "none"  # development, checks, migrations: whatever is there


PROVIDER_COMMANDS = frozenset({"watch_chain", "reconcile", "backends", "withdraw", "lease"})
CONFIG_COMMANDS = PROVIDER_COMMANDS | {"check_config", "backend_agent"}
"""The commands with the flag `--config`; all others only know PROVIDER_CONFIG, and may use `-c` for something else."""
_SERVERS = frozenset({"server", "uvicorn", "gunicorn", "hypercorn", "granian", "daphne"})
_PROCESSES = {"watch_chain": "watcher", "backend_agent": "agent", "devchain": "devchain"}


_HELP = frozenset({"-h", "--help"})


def command_of(argv: Sequence[str]) -> str:
    """The program, or the command of `manage.py` or celery: `uvicorn`, `watch_chain`, `celery worker`."""
    program = _program(argv[0]) if argv else ""
    words = [word for word in argv[1:] if not word.startswith("-")]
    if program == "manage":
        return argv[1] if len(argv) > 1 else ""
    if program == "celery":
        known = [word for word in words if word in {"worker", "beat", "inspect", "control", "shell", "purge", "status"}]
        return f"celery {known[0]}" if known else "celery"
    return program


def role_of(argv: Sequence[str]) -> Role:
    """The role of the process with this command line; an unknown program and a command's help need nothing."""
    command = command_of(argv)
    if _program(argv[0] if argv else "") == "manage" and not _HELP.isdisjoint(argv[2:]):
        return Role.NONE
    if command == "backend_agent":
        return Role.AGENT
    if command in PROVIDER_COMMANDS or command in _SERVERS or command in {"celery worker", "celery beat"}:
        return Role.PROVIDER
    return Role.NONE


def process_of(argv: Sequence[str]) -> str:
    """The name of the process in logs and heartbeats: web, worker, beat, watcher, agent, devchain or the command."""
    command = command_of(argv)
    if command in _SERVERS:
        return "web"
    if command.startswith("celery "):
        return command.removeprefix("celery ")
    return _PROCESSES.get(command, command or "python")


def config_path_of(argv: Sequence[str]) -> str | None:
    """The YAML file of `-c PATH` or `--config PATH` of a command of ours; servers and Celery have no such flag."""
    if not argv or _program(argv[0]) != "manage" or command_of(argv) not in CONFIG_COMMANDS:
        return None
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    add_config_flag(parser)
    try:
        found, _ = parser.parse_known_args(argv[2:])
    except argparse.ArgumentError:
        return None  # the command's own parser says what is wrong
    path: str | None = getattr(found, "config", None)
    return path


def add_config_flag(parser: argparse.ArgumentParser) -> None:
    """Declare `-c PATH` and `--config PATH`. The settings are read by them before the command's own parser runs."""
    # Suppressed: a flag before a subcommand must not be undone by the default of the one behind it.
    parser.add_argument(
        "-c", "--config", metavar="PATH", default=argparse.SUPPRESS, help="YAML file; wins over PROVIDER_CONFIG"
    )


def _program(path: str) -> str:
    pure = PurePath(path)
    return pure.parent.name if pure.name == "__main__.py" else pure.stem
