"""`manage.py check_backend URL --contract`: does this backend keep the contract?"""

import argparse
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from backends.check import run
from backends.check.bench import Options
from backends.check.cases import Verdict
from backends.check.listener import Listener
from fred.http import Tls

KEY_VARIABLE = "MOCK_BACKEND_CALLBACK_SECRET"
_FILES = ("manifest", "other_manifest", "bad_manifest", "forbidden_manifest", "failing_manifest")


class Command(BaseCommand):
    """Check a backend; exit status 0 when no check failed."""

    help = "Check any backend against the contract; without --destructive only with requests that change nothing."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Where the backend is, what it may be asked, and who listens to it."""
        parser.add_argument("url")
        parser.add_argument("--contract", action="store_true", required=True, help="run the contract's checklist")
        parser.add_argument("--destructive", action="store_true", help="make and remove leases too")
        parser.add_argument("--key", default=f"env:{KEY_VARIABLE}", help="the HMAC key: env:NAME, @FILE or itself")
        parser.add_argument("--key-next", default="", help="the other key of a rotation, likewise")
        parser.add_argument("--listen", metavar="HOST:PORT", help="where to wait for callbacks")
        parser.add_argument("--callback-base", metavar="URL", default="", help="how the backend reaches that")
        parser.add_argument("--hook", action="append", default=[], metavar="NAME=CMD", help="restart, kill-workload")
        parser.add_argument("--sku", default=Options.sku, help="a SKU that fits")
        parser.add_argument("--unknown-sku", default="", help="a SKU the backend does not know")
        parser.add_argument("--small-sku", default="", help="a SKU whose disk is too small for a lease of --sku")
        parser.add_argument("--too-much", type=int, default=0, metavar="N", help="a quantity of --sku that has no room")
        parser.add_argument("--retention", choices=("on", "off"), help="whether data of closed leases are kept")
        parser.add_argument("--log-file", default="", help="the backend's log, to look for secrets in")
        for name in _FILES:
            words = name.split("_")
            parser.add_argument(f"--{'-'.join(words)}", metavar="FILE", help=f"file with the {' '.join(words)}")
        parser.add_argument("--tls-ca-file", default="", help="PEM bundle to verify it with")
        parser.add_argument("--tls-client-cert-file", default="", help="PEM certificate to show it")
        parser.add_argument("--tls-client-key-file", default="", help="its PEM key")
        parser.add_argument("--patience", type=float, default=30.0, metavar="SECONDS", help="the longest single wait")
        parser.add_argument("--only", default="", metavar="CASES", help="a list such as C1,C25")
        parser.add_argument("--json", action="store_true", help="print the report as JSON")

    def handle(self, *_args: Any, **given: Any) -> None:
        """Run, print, and raise `SystemExit` 1 if a check failed."""
        options = _options(given)
        listener = _listener(given)
        try:
            found = run.results(
                options,
                destructive=given["destructive"],
                listener=listener,
                only=frozenset(filter(None, given["only"].split(","))),
            )
            if given["json"]:
                kept = list(found)
                self.stdout.write(json.dumps(run.report(options, kept), indent=1))
            else:
                kept = run.show(found, self.stdout.write)
        finally:
            if listener is not None:
                listener.close()
        if any(one.result is Verdict.FAILED for one in kept):
            raise SystemExit(1)


def _options(given: dict[str, Any]) -> Options:
    hooks = dict(pair.partition("=")[::2] for pair in given["hook"])
    unknown = sorted(hooks.keys() - {"restart", "kill-workload"})
    if unknown:
        raise CommandError(f"no such hook: {', '.join(unknown)}")
    key = _key(given["key"])
    if not key:
        raise CommandError(f"no key: set {KEY_VARIABLE} or give --key")
    retention = given["retention"]
    options = Options(
        url=given["url"],
        key=key,
        key_next=_key(given["key_next"]),
        tls=Tls(
            ca_file=given["tls_ca_file"],
            client_cert_file=given["tls_client_cert_file"],
            client_key_file=given["tls_client_key_file"],
        ),
        sku=given["sku"],
        unknown_sku=given["unknown_sku"],
        small_sku=given["small_sku"],
        too_much=given["too_much"],
        retention=None if retention is None else retention == "on",
        log_file=given["log_file"],
        hooks=hooks,
        patience=given["patience"],
    )
    manifests: dict[str, Any] = {name: _read(given[name]) for name in _FILES if given[name]}
    return replace(options, **manifests)


def _listener(given: dict[str, Any]) -> Listener | None:
    if not given["listen"]:
        return None
    host, _, port = str(given["listen"]).rpartition(":")
    if not port.isdigit():
        raise CommandError(f"{given['listen']!r} is not HOST:PORT")
    try:
        return Listener(host.strip("[]"), int(port), base=given["callback_base"])
    except OSError as error:
        raise CommandError(f"cannot listen on {given['listen']}: {error.strerror}") from None


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None


def _key(text: str) -> str:
    if text.startswith("env:"):
        return os.environ.get(text.removeprefix("env:"), "")
    if text.startswith("@"):
        return _read(text[1:]).decode().strip()
    return text
