"""`manage.py backend_agent KIND`: serve a backend over HTTP, without the control plane's database or settings."""

import argparse
import asyncio
import gc
import ipaddress
from typing import Any

import uvloop
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from backends import registry
from backends.agent import SetupError
from backends.agent_server import AgentServer
from backends.agent_tls import ServerTls, TlsError, TlsFiles
from backends.store import StoreError
from fred.conf import AgentConfig


class Command(BaseCommand):
    """Serve a backend until SIGTERM or Ctrl-C; a second one does not wait for open requests."""

    help = "Serve a backend of this kind over the backend HTTP contract."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The kind, where its settings are and where to listen."""
        parser.add_argument("kind", choices=sorted(registry.KINDS))
        parser.add_argument("-c", "--config", metavar="PATH", help="YAML file of settings; the environment wins")
        parser.add_argument("--listen", metavar="HOST:PORT", help="in place of the configured address")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Serve; the address is printed once requests are taken."""
        config: AgentConfig | None = settings.AGENT
        if config is None:
            raise CommandError("the agent's settings were not read: start it as `manage.py backend_agent KIND`")
        host, port = _address(options["listen"] or config.addr)
        if config.control and config.control_token.get_secret_value() and not config.control_anywhere:
            _require_loopback(host)
        try:
            app = registry.KINDS[options["kind"]](config)
            tls = ServerTls.of(files, app.metrics) if (files := tls_files(config)) is not None else None
        except (SetupError, StoreError, TlsError) as error:
            raise CommandError(str(error)) from None
        server = AgentServer(
            app,
            host,
            port,
            tls=tls,
            read_timeout=config.read_timeout.total_seconds(),
            write_timeout=config.write_timeout.total_seconds(),
            idle_timeout=config.idle_timeout.total_seconds(),
        )
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                could_start = runner.run(_serve(server))
        except OSError as error:
            raise CommandError(f"cannot listen on {host}:{port}: {error.strerror}") from error
        if not could_start:
            raise CommandError("the agent could not start; its log says why")


async def _serve(server: AgentServer) -> bool:
    # What an agent holds stays for hours and has no cycles: looking through it again and again would cost a busy one a
    # quarter of its time.
    gc.freeze()
    gc.set_threshold(50_000, 50, 1000)
    server.handle_signals()
    return await server.serve()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdigit():
        raise CommandError(f"{text!r} is not HOST:PORT")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 (an empty host has always meant all addresses)


def _require_loopback(host: str) -> None:
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise CommandError("the control API is offered on loopback addresses only; set MOCK_BACKEND_CONTROL_ANYWHERE")


def tls_files(config: AgentConfig) -> TlsFiles | None:
    """The TLS files of these settings; None without a certificate."""
    if not config.tls_cert_file:
        return None
    allowed = frozenset(config.tls_client_allowed_names)
    return TlsFiles(config.tls_cert_file, config.tls_key_file, config.tls_client_ca_file, allowed)
