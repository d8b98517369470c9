"""Nouns and verbs: every call of the admin API as words of a command line.

Words of the form `name=value` become members of the body; a value that is JSON is taken as such, anything else is
text. What a command lists in `takes` may stand without its name, in that order; a name that ends with `*` takes all
words that are left, one that ends with `?` may be left out. Names of keys (`t0`, `provider`) stand for their addresses,
on the chain's side.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


class BadCommand(ValueError):
    """There is no such command, or its words do not fit."""


@dataclass(frozen=True, slots=True)
class Command:
    """One call: method, path (with `{name}` parts taken from the body) and the words that need no name."""

    method: str
    path: str
    takes: tuple[str, ...] = ()
    fixed: dict[str, Any] = field(default_factory=dict)
    about: str = ""


def _many(verb: str, about: str) -> Command:
    return Command("POST", f"leases/{verb}", ("lease_uuids*",), about=about)


COMMANDS: dict[tuple[str, str], Command] = {
    ("info", "show"): Command("GET", "info", about="addresses, height, providers, SKUs"),
    ("keys", "list"): Command("GET", "keys", about="all keys with their secrets"),
    ("provider", "create"): Command("POST", "provider", ("address", "api_url"), about="payout_address="),
    ("sku", "create"): Command("POST", "sku", ("provider_uuid", "name", "base_price"), about="unit=1 (hour) or 2"),
    ("faucet", "give"): Command("POST", "faucet", ("address", "coins"), about="mints, for example 5umfx"),
    ("credit", "fund"): Command("POST", "credit", ("tenant", "coins"), about="as="),
    ("credit", "drain"): Command("POST", "credit/drain", ("tenant", "coins?"), about="all=true instead of coins"),
    ("lease", "create"): Command(
        "POST", "lease", ("tenant?",), about="count= sku= items= payload= payload_base64= meta_hash="
    ),
    ("lease", "show"): Command("GET", "lease/{lease_uuid}", ("lease_uuid",), about="the lease as chain JSON"),
    ("lease", "ack"): _many("ack", "as="),
    ("lease", "reject"): _many("reject", "as= reason="),
    ("lease", "cancel"): _many("cancel", "as="),
    ("lease", "close"): _many("close", "as= reason="),
    ("lease", "withdraw"): _many("withdraw", "as="),
    ("lease", "expire"): _many("expire", "the next blocks expire them"),
    ("lease", "domain"): Command(
        "POST", "lease/{lease_uuid}/domain", ("lease_uuid", "custom_domain"), about="as= service_name="
    ),
    ("lease", "state"): Command("POST", "lease/{lease_uuid}/state", ("lease_uuid", "state"), about="writes any number"),
    ("params", "set"): Command("POST", "params", about="parameters of the billing module by their names"),
    ("mode", "set"): Command("POST", "mode", ("mode", "interval?"), about="interval (seconds), instant or manual"),
    ("blocks", "make"): Command("POST", "blocks", ("count?", "step?"), about="makes blocks now"),
    ("clock", "advance"): Command("POST", "clock", ("advance",), about="seconds"),
    ("clock", "set"): Command("POST", "clock", ("set",), about="RFC 3339 or seconds since 1970"),
    ("clock", "freeze"): Command("POST", "clock", ("step?",), {"freeze": True}, about="seconds between blocks"),
    ("clock", "run"): Command("POST", "clock", (), {"freeze": False}, about="ends a freeze"),
    ("profile", "set"): Command("POST", "profile", ("profile",), about="A, B or C"),
    ("state", "show"): Command("GET", "state", about="the whole state"),
    ("state", "snapshot"): Command("POST", "snapshot", about="the whole chain; --out FILE writes it there"),
    ("state", "restore"): Command("POST", "restore", about="--in FILE"),
    ("state", "reset"): Command("POST", "reset", about="an empty chain with the same id"),
    ("txs", "list"): Command("GET", "txs", about="what was included"),
    ("mempool", "list"): Command("GET", "mempool", about="what waits"),
    ("calls", "list"): Command("GET", "calls", about="gRPC calls"),
    ("calls", "clear"): Command("DELETE", "calls", about="forgets them"),
    ("faults", "add"): Command("POST", "faults", ("effect",), about="where= times= match= and parameters"),
    ("faults", "list"): Command("GET", "faults", about="rules in force"),
    ("faults", "remove"): Command("DELETE", "faults/{id}", ("id",), about="ends one rule"),
    ("faults", "clear"): Command("DELETE", "faults", about="ends all rules"),
}


def call_of(words: list[str]) -> tuple[str, str, dict[str, Any]]:
    """Method, path below `/admin/` and body of a command; raises `BadCommand`."""
    command = COMMANDS.get((words[0], words[1])) if len(words) > 1 else None
    if command is None:
        raise BadCommand(_no_such(words))
    body, loose = _sorted_words(words[2:])
    body |= command.fixed
    for name in command.takes[: len(loose)]:
        if name.endswith("*"):
            body[name[:-1]], loose = loose, []
        else:
            body[name.removesuffix("?")] = _value(loose.pop(0))
    if loose:
        raise BadCommand(f"{' '.join(words[:2])} does not take {' '.join(loose)}")
    for name in ("coins", "base_price"):
        if isinstance(body.get(name), str):
            body[name] = _coins(body[name], single=name == "base_price")
    try:
        path = command.path.format_map(body)
    except KeyError as missing:
        raise BadCommand(f"{' '.join(words[:2])} needs {missing}") from None
    return command.method, path, body


_TEXTS = frozenset({"payload", "payload_base64", "meta_hash"})
"""Words that stay as they are: a manifest is JSON and its bytes count, a hash may look like a number."""


def _sorted_words(words: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Words with names as a body, and the others."""
    body, loose = {}, []
    for word in words:
        name, separator, value = word.partition("=")
        if separator and name.isidentifier():
            body[name] = value if name in _TEXTS else _value(value)
        else:
            loose.append(word)
    return body, loose


def _no_such(words: list[str]) -> str:
    verbs = [verb for noun, verb in COMMANDS if noun == words[0]]
    if verbs:
        return f"{words[0]} knows: {', '.join(verbs)}"
    return f"known are {', '.join(dict.fromkeys(noun for noun, _ in COMMANDS))}, and call METHOD PATH [JSON]"


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _coins(text: str, *, single: bool) -> Any:
    """`5umfx,7upwr` as the API takes it; raises `BadCommand`."""
    coins = []
    for part in text.split(","):
        digits = len(part) - len(part.lstrip("0123456789"))
        if not 0 < digits < len(part):
            raise BadCommand(f"{part} is no amount with a denomination")
        coins.append({"denom": part[digits:], "amount": part[:digits]})
    if single and len(coins) != 1:
        raise BadCommand("a price is one amount")
    return coins[0] if single else coins


def listing() -> str:
    """All commands, one a line; words in brackets may be left out."""
    lines = []
    for (noun, verb), command in COMMANDS.items():
        words = " ".join(_shown(name.upper()) for name in command.takes)
        lines.append(f"  {noun} {verb} {words}".ljust(52) + command.about)
    return "\n".join(lines)


def _shown(name: str) -> str:
    return f"[{name[:-1]}]" if name.endswith("?") else name.replace("*", " …")
