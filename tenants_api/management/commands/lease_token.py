"""`manage.py lease_token`: the console script of the same name."""

import argparse
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from tenants_api import lease_token


class Command(BaseCommand):
    """Print a tenant's token for a mnemonic."""

    help = lease_token.__doc__ or ""
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the flags of the console script."""
        lease_token.add_flags(parser)
        self._parser = parser

    def handle(self, *_: Any, **options: Any) -> None:
        """Print the token, or exit with status 1."""
        status = lease_token.run(self._parser, argparse.Namespace(**options))
        if status:
            sys.exit(status)
