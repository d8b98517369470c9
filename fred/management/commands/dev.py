"""`manage.py dev`: the whole house on this machine."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from django.core.management.base import BaseCommand

from fred.dev.options import Options, add_arguments
from fred.dev.run import run


class Command(BaseCommand):
    """Start everything, show a lease living and stay until Ctrl-C."""

    help = "Start database, broker, simulated chain, mock backend and control plane; drive a lease; stay."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """See `fred.dev.options`."""
        add_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        """Exit with the status of the run."""
        sys.exit(run(Options.of(options)))
