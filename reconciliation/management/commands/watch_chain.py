"""`manage.py watch_chain`: the watcher process."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import structlog
from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from fred import conf
from reconciliation.watcher import Watcher

log = structlog.get_logger("reconciliation.watcher")


class Command(BaseCommand):
    """Watch the chain until SIGTERM or Ctrl-C. One or two run for a provider; each may be killed at any time."""

    help = "Follow the chain: store its events, wake leases, and keep the cursor."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the settings file."""
        conf.add_config_flag(parser)

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Run; reconnects by itself."""
        asyncio.run(_watch())


async def _watch() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, stop.set)
    log.info("watcher.starts", chain_id=settings.FRED.chain_id, websocket_url=settings.FRED.websocket_url)
    await Watcher(settings.FRED).run(stop)
    log.info("watcher.stopped")
