"""`check_config`: are the settings usable, what are they, which keys do backends sign with."""

import json
import os
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandParser

from fred import conf
from fred.conf.fingerprint import fingerprint, key_id, key_ids, shown
from fred.conf.reference import reference
from fred.conf.tlsfiles import tls_problems

GOOD = "configuration is good"


class Command(BaseCommand):
    """Check the settings of the provider without touching network, database or keyring.

    Says so in one line and ends with 0 when all is well; otherwise prints every problem, one per line, and ends with 1.
    """

    help = "Check the provider's settings; every problem is printed, one per line."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """What to do, and the YAML file."""
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--validate", action="store_true", help="only check (this is the default)")
        what.add_argument("--show", action="store_true", help="print every key, its value and its source as JSON")
        what.add_argument("--print-hmac-key-ids", action="store_true", help="print the ids of the backends' keys")
        what.add_argument(
            "--hmac-key-id-of-stdin", action="store_true", help="print the id of the key read from standard input"
        )
        what.add_argument("--reference", action="store_true", help="print docs/configuration.md: every key there is")
        conf.add_config_flag(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        """Load, check, print."""
        if options["hmac_key_id_of_stdin"]:
            self.stdout.write(key_id(sys.stdin.read().removesuffix("\n")))
            return
        if options["reference"]:
            self.stdout.write(reference(), ending="")
            return
        provider, house = self._load(options.get("config"))
        if options["show"]:
            self.stdout.write(json.dumps(self._shown(provider, house), indent=2))
        elif options["print_hmac_key_ids"]:
            self.stdout.write(json.dumps({"backends": key_ids(provider.tree)}))
        else:
            self.stdout.write(GOOD)

    def _load(self, path: str | None) -> tuple[conf.Loaded[conf.ProviderConfig], conf.Loaded[conf.HouseConfig]]:
        try:
            loaded = conf.load(os.environ, role=conf.Role.PROVIDER, path=path)
        except conf.ConfigError as error:
            readable = error.readable
            files = tls_problems(readable) if isinstance(readable, conf.ProviderConfig) else ()
            _refuse([*error.problems, *files, *error.warnings])
        if problems := list(tls_problems(loaded.provider.tree)):
            _refuse(problems)
        provider, house = loaded.provider, loaded.house
        for warning in (*provider.warnings, *house.warnings):
            sys.stderr.write(f"{warning}\n")
        return provider, house

    @staticmethod
    def _shown(provider: conf.Loaded[conf.ProviderConfig], house: conf.Loaded[conf.HouseConfig]) -> dict[str, Any]:
        return {
            "fingerprint": fingerprint(provider.tree),
            "provider": {
                key: {"value": value, "source": provider.source_of(key)} for key, value in shown(provider.tree).items()
            },
            "house": {
                key.upper(): {"value": value, "source": house.source_of(key)}
                for key, value in shown(house.tree).items()
            },
        }


def _refuse(problems: Iterable[conf.Problem | str]) -> NoReturn:
    """Print each problem and end with 1."""
    sys.stderr.write("".join(f"{problem}\n" for problem in problems))
    raise SystemExit(1)
