"""`manage.py backend_agent KIND`: serve a backend over HTTP, without the control plane's database or settings."""

import argparse
import asyncio
from typing import Any

import uvicorn
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from backends import registry
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
        try:
            app = registry.KINDS[options["kind"]](config)
        except StoreError as error:
            raise CommandError(str(error)) from None
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                http="httptools",
                loop="uvloop",
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=max(1, int(config.idle_timeout.total_seconds())),
                timeout_graceful_shutdown=10,
            )
        )
        try:
            with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
                runner.run(server.serve())
        except KeyboardInterrupt:
            return
        except SystemExit as stop:
            raise CommandError(f"cannot listen on {host}:{port}") from stop
        if not server.started:
            raise CommandError("the agent could not start; its log says why")


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdigit():
        raise CommandError(f"{text!r} is not HOST:PORT")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 (an empty host has always meant all addresses)
