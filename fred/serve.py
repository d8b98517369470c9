"""The image's entry point: `python -m fred.serve PROCESS [more arguments]` becomes that process.

web, admin, worker, beat, watcher, agent, devchain, or `manage` for any command. Options that the settings decide
(addresses, TLS, time limits) are filled in; further arguments are passed on. No Django inside.
"""

import os
import sys
from collections.abc import Mapping, Sequence

from fred import conf
from fred.conf.values import split_host_port

_MANAGE = (sys.executable, "manage.py")
_CELERY = (sys.executable, "-m", "celery", "-A", "fred")
_UVICORN = (sys.executable, "-m", "uvicorn", "fred.asgi:application")


def web_command(provider: conf.ProviderConfig, /) -> list[str]:
    """The tenant API's server, as the settings describe it."""
    command = _server(*provider.api_address, idle_s=provider.http_idle_timeout.total_seconds())
    command += ["--timeout-graceful-shutdown", str(max(1, round(provider.shutdown_timeout.total_seconds())))]
    if provider.tls_cert_file:
        command += ["--ssl-certfile", provider.tls_cert_file, "--ssl-keyfile", provider.tls_key_file]
    return command


def admin_command(house: conf.HouseConfig, /) -> list[str]:
    """The admin site's server; it also needs FRED_ROLE=admin."""
    return _server(*split_host_port(house.fred_admin_listen_addr), idle_s=60)


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
            made = web_command(conf.load_provider(variables).tree)
        case "admin":
            made = admin_command(conf.load_house(variables, required=True).tree)
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


def _server(host: str, port: int, *, idle_s: float) -> list[str]:
    command = [*_UVICORN, "--host", host or "0.0.0.0", "--port", str(port)]  # noqa: S104 - an empty host asks for all
    # Our layers write the access log; the client's address comes from them too.
    command += [
        "--loop",
        "uvloop",
        "--http",
        "httptools",
        "--no-access-log",
        "--no-proxy-headers",
        "--no-server-header",
    ]
    return [*command, "--timeout-keep-alive", str(max(1, round(idle_s)))]


if __name__ == "__main__":
    main()
