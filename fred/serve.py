"""The image's entry point: `python -m fred.serve PROCESS [more arguments]` becomes that process.

web, admin, worker, beat, watcher, agent, devchain, or `manage` for any command. Settings are checked before the
process is started; further arguments are passed on. No Django inside.
"""

import os
import sys
from collections.abc import Mapping, Sequence

from fred import conf

_MANAGE = (sys.executable, "manage.py")
_CELERY = (sys.executable, "-m", "celery", "-A", "fred")
_WEB = (sys.executable, "-m", "fred.server", "fred.asgi:application")


def web_command() -> list[str]:
    """The server of the tenant API, or with FRED_ROLE=admin of the admin site; it reads the settings itself."""
    return [*_WEB]


def worker_command(queues: Sequence[str] = ("lifecycle", "dispatch", "chain", "sweep"), /) -> list[str]:
    """A Celery worker of these queues that talks to nobody but its broker."""
    name = "-".join(queues)
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    return [*_CELERY, "worker", "--queues", ",".join(queues), "--hostname", f"{name}@%h", *quiet]


def beat_command() -> list[str]:
    """The clock."""
    return [*_CELERY, "beat", "--pidfile", ""]


def command_of(process: str, variables: Mapping[str, str], /) -> list[str]:
    """The command line of a process. Raises ConfigError for bad settings, KeyError for an unknown process."""
    made: list[str]
    match process:
        case "web":
            conf.load_provider(variables)
            made = web_command()
        case "admin":
            conf.load_house(variables, required=True)
            made = web_command()
        case "worker":
            made = worker_command()
        case "beat":
            made = beat_command()
        case "watcher":
            made = [*_MANAGE, "watch_chain"]
        case "agent":
            made = [*_MANAGE, "backend_agent"]
        case "devchain":
            made = [*_MANAGE, "devchain"]
        case "manage":
            made = [*_MANAGE]
        case _:
            raise KeyError(process)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Become the process that the first argument names."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    process = words[0] if words else ""
    try:
        command = command_of(process, os.environ) + words[1:]
    except KeyError:
        sys.stderr.write(f"unknown process {process!r}: web, admin, worker, beat, watcher, agent, devchain or manage\n")
        raise SystemExit(2) from None
    except conf.ConfigError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(1) from None
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "fred.settings"}
    if process == "admin":
        environment["FRED_ROLE"] = "admin"
    os.execve(command[0], command, environment)  # noqa: S606 - becoming it is the purpose


if __name__ == "__main__":
    main()
