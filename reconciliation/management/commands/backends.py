"""`manage.py backends …`: the backends this control plane knows, and what an operator may do to one."""

import argparse
import json
from collections.abc import Mapping
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from redis.exceptions import RedisError

from backends import sync
from backends.models import Backend, HealthCheck
from fred import breaker, conf
from fred.errors import FredError
from reconciliation import operators

VERBS = ("fence", "unfence", "drain", "undrain", "retire")


class Command(BaseCommand):
    """List the backends, sync them with the configuration, or change what one of them gets."""

    help = "List the backends, sync their rows with the configuration, or fence, drain or retire one."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """One verb; those about one backend want its name and a reason."""
        conf.add_config_flag(parser)
        verbs = parser.add_subparsers(dest="verb", required=True)
        listing = verbs.add_parser("list", help="what is known of each backend")
        listing.add_argument("--json", action="store_true", help="as JSON")
        syncing = verbs.add_parser("sync", help="bring the rows in line with the configuration")
        about = {
            "fence": "contact it no more, refuse its callbacks",
            "unfence": "contact it again",
            "drain": "give it no new leases",
            "undrain": "give it new leases again",
            "retire": "never contact it again; refused while anything names it",
        }
        for verb in VERBS:
            one = verbs.add_parser(verb, help=about[verb])
            one.add_argument("name", metavar="NAME")
            one.add_argument("--reason", required=True, help="why; kept with your name")
            conf.add_config_flag(one)
        for one in (listing, syncing):
            conf.add_config_flag(one)

    def handle(self, *_args: Any, **options: Any) -> None:
        """Do it and say what was done."""
        match options["verb"]:
            case "sync":
                self._sync()
            case "list":
                self._list(as_json=options["json"])
            case verb:
                self._change(verb, options["name"], reason=options["reason"])

    def _change(self, verb: str, name: str, *, reason: str) -> None:
        try:
            changed = getattr(operators, verb)(name, reason=reason, operator=operators.Operator.of_command())
        except FredError as refusal:
            raise CommandError(str(refusal)) from None
        self.stdout.write(f"{verb}: {name}" if changed else f"{name}: nothing to do")
        if verb == "fence" and changed:
            self.stdout.write("isolating its host is yours to do; replace its key before you unfence it")

    def _sync(self) -> None:
        done = sync.sync_backends()
        said = (
            ("added", done.added),
            ("changed", done.changed),
            ("not configured", done.unconfigured),
            ("fence lifted", done.lifted),
        )
        for word, names in said:
            for name in names:
                self.stdout.write(f"{word}: {name}")
        if not any(names for _, names in said):
            self.stdout.write("nothing to do")

    def _list(self, *, as_json: bool) -> None:
        rows = list(Backend.objects.order_by("-configured", "position", "name"))
        checks = HealthCheck.objects.filter(name__startswith="backend:")
        health = {check.name: "healthy" if check.healthy else "unhealthy" for check in checks}
        breakers = _breakers([row.name for row in rows])
        found = [
            {
                "name": row.name,
                "url": row.url,
                "contract": row.contract,
                "dialect": row.dialect if row.contract == Backend.Contract.AUTO else row.contract,
                "key": row.key_id or "-",
                "skus": len(row.skus),
                "health": health.get(f"backend:{row.name}", "-"),
                "breaker": breakers.get(row.name, "-"),
                "state": _state(row),
            }
            for row in rows
        ]
        if as_json:
            self.stdout.write(json.dumps(found, indent=2))
            return
        titles = ("name", "url", "contract", "dialect", "key", "skus", "health", "breaker", "state")
        lines = [[title.upper() for title in titles], *([str(one[title]) for title in titles] for one in found)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            self.stdout.write("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _breakers(names: list[str]) -> Mapping[str, str]:
    try:
        return {name: state.value for name, state in breaker.states(names).items()}
    except (RedisError, OSError):
        return {}


def _state(row: Backend) -> str:
    marks = {
        "default": row.is_default,
        "fenced": row.fenced,
        "drained": row.drained,
        "unconfigured": not row.configured,
        "retired": row.retired_at is not None,
        "takes-no-calls": not row.takes_calls,
    }
    return ",".join(word for word, holds in marks.items() if holds) or "-"
