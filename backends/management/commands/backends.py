"""`manage.py backends list|sync`: the backends this control plane knows."""

import argparse
from typing import Any

from django.core.management.base import BaseCommand

from backends import sync
from backends.models import Backend


class Command(BaseCommand):
    """Show the backends, or bring the rows in line with the configuration."""

    help = "List the backends, or sync their rows with the configuration."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """One verb."""
        parser.add_argument("verb", choices=("list", "sync"))

    def handle(self, *_args: Any, **options: Any) -> None:
        """Do it and say what was done."""
        if options["verb"] == "sync":
            self._sync()
        else:
            self._list()

    def _sync(self) -> None:
        done = sync.sync_backends()
        for word, names in (("added", done.added), ("changed", done.changed), ("not configured", done.unconfigured)):
            for name in names:
                self.stdout.write(f"{word}: {name}")
        if not (done.added or done.changed or done.unconfigured):
            self.stdout.write("nothing to do")

    def _list(self) -> None:
        lines = [("NAME", "URL", "CONTRACT", "DIALECT", "KEY", "SKUS", "STATE")]
        lines.extend(
            (row.name, row.url, row.contract, row.dialect, row.key_id or "-", str(len(row.skus)), _state(row))
            for row in Backend.objects.order_by("-configured", "position", "name")
        )
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            self.stdout.write("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _state(row: Backend) -> str:
    marks = {
        "default": row.is_default,
        "fenced": row.fenced,
        "drained": row.drained,
        "unconfigured": not row.configured,
        "retired": row.retired_at is not None,
    }
    return ",".join(word for word, holds in marks.items() if holds) or "-"
