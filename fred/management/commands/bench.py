"""`manage.py bench`: load scenarios and their floors."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from django.core.management.base import BaseCommand

from fred.bench.run import add_arguments, run


class Command(BaseCommand):
    """Measure the whole product on this machine beside a bare script that makes the same calls."""

    help = "Measure a burst of leases, or callbacks, beside the same calls made by a bare script."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """See `fred.bench.run`."""
        add_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        """Exit with the status of the run."""
        sys.exit(run(options))
