"""Where a value comes from: the environment, a file that a `NAME_FILE` variable names, the YAML file.

Everything is gathered into plain dicts first; the pydantic trees see all of it at once.
"""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from environ.fileaware_mapping import FileAwareMapping

from fred.conf.problems import Problem
from fred.conf.yamlfile import read_yaml

PREFIX = "PROVIDER_"
_BACKEND_SECRET = re.compile(r"BACKEND_[A-Z0-9_]+_HMAC_SECRET(_PREVIOUS)?(_FILE)?")
_NOT_KEYS = frozenset({"PROVIDER_CONFIG"})


@dataclass(frozen=True)
class Found:
    """Values by key, where each was found, and what was already wrong on the way (`unread`: with which keys)."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)


class Environment:
    """The process environment as settings read it: an empty value counts as not set."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = {name: value for name, value in variables.items() if value}
        self._with_files = FileAwareMapping(env=self._variables)

    def names(self, prefix: str, /) -> list[str]:
        """All names with this prefix, sorted."""
        return sorted(name for name in self._variables if name.startswith(prefix))

    def text(self, name: str, /) -> str | None:
        """The value, or None."""
        return self._variables.get(name)

    def secret(self, name: str, problems: list[Problem], /) -> tuple[str, str] | None:
        """Value and place of a secret that may also stand in the file `NAME_FILE` names, less one newline."""
        path = self._variables.get(f"{name}_FILE")
        if path is None:
            value = self._variables.get(name)
            return None if value is None else (value, "env")
        if name in self._variables:
            problems.append(Problem(f"{name} and {name}_FILE are both set", where=name, fix="keep one of the two"))
            return None
        try:
            value = str(self._with_files[name])
        except (OSError, UnicodeDecodeError) as error:
            problems.append(
                Problem(f"{name}_FILE cannot be read: {error}", where=f"{name}_FILE", fix="name a readable text file")
            )
            return None
        return value.removesuffix("\n").removesuffix("\r"), "env file"


def gather(environment: Environment, *, prefix: str, keys: Iterable[str], secrets: frozenset[str]) -> Found:
    """The environment's values of these keys; the variable is the prefix and the key in upper case."""
    found = Found()
    for key in keys:
        name = prefix + key.upper()
        if key in secrets:
            before = len(found.problems)
            secret = environment.secret(name, found.problems)
            if secret is not None:
                found.values[key], found.sources[key] = secret
            elif len(found.problems) > before:
                found.unread.add(key)
        elif (value := environment.text(name)) is not None:
            found.values[key], found.sources[key] = value, "env"
    return found


def gather_provider(
    environment: Environment, *, path: str | None, keys: frozenset[str], backend_keys: frozenset[str]
) -> Found:
    """The provider's values: environment over YAML file.

    `path` (of `--config`) wins over `PROVIDER_CONFIG`. Raises ConfigError when the named file cannot be read.
    """
    found = gather(environment, prefix=PREFIX, keys=sorted(keys), secrets=frozenset({"callback_secret"}))
    named = path or environment.text("PROVIDER_CONFIG")
    in_file = read_yaml(Path(named)) if named else {}
    found.problems.extend(
        Problem(f"unknown key: {key}", where=f"in {named}", fix=f"remove it{_suggest(key, keys)}")
        for key in in_file
        if key not in keys
    )
    for key in keys & in_file.keys():
        if key not in found.values:
            found.values[key], found.sources[key] = in_file[key], "file"
    if "backends" in found.values:
        found.values["backends"] = _backends(found, environment, keys=backend_keys)
    known = {PREFIX + key.upper() for key in keys} | {"PROVIDER_CALLBACK_SECRET_FILE"} | _NOT_KEYS
    unknown = [
        name
        for name in environment.names(PREFIX)
        if name not in known and not _BACKEND_SECRET.fullmatch(name.removeprefix(PREFIX))
    ]
    if unknown:
        found.warnings.append("unknown PROVIDER_ variables are ignored: " + ", ".join(unknown))
    return found


def secret_variable(name: str, /) -> str:
    """The variable that may hold this backend's own key."""
    return f"PROVIDER_BACKEND_{re.sub(r'[^A-Z0-9]', '_', name.upper())}_HMAC_SECRET"


def _backends(found: Found, environment: Environment, *, keys: frozenset[str]) -> list[dict[str, Any]]:
    """The list of entries, each a dict with known keys only and its keys from the environment put in."""
    where = "PROVIDER_BACKENDS or backends: in the YAML file"
    entries = found.values["backends"]
    if isinstance(entries, str):
        try:
            entries = json.loads(entries)
        except json.JSONDecodeError as error:
            found.problems.append(
                Problem(f"backends is not JSON: {error}", where="PROVIDER_BACKENDS", fix="write a JSON list of objects")
            )
            found.unread.add("backends")
            return []
    if not isinstance(entries, list):
        found.problems.append(
            Problem("backends must be a list of mappings", where=where, fix="start each with `- name:`")
        )
        found.unread.add("backends")
        return []
    made: list[dict[str, Any]] = []
    owners: dict[str, str] = {}
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            message = f"backends must be a list of mappings; entry {index} is none"
            found.problems.append(Problem(message, where=where, fix="start each with `- name:`"))
            found.unread.add(f"backends[{index}]")
            made.append({})
            continue
        known = {str(key).lower(): value for key, value in entry.items() if value is not None}
        for key in sorted(known.keys() - keys):
            if key == "sku_prefix":
                message = (
                    f"backends[{index}]: sku_prefix is no longer supported (on-chain SKUs are always UUIDs); "
                    "replace sku_prefix with skus: [list of exact SKU UUIDs]"
                )
                found.problems.append(Problem(message, where=where))
            else:
                fix = f"remove it{_suggest(key, keys)}"
                found.problems.append(Problem(f"backends[{index}]: unknown key: {key}", where=where, fix=fix))
            del known[key]
        name = known.get("name")
        if isinstance(name, str) and name:
            _own_keys(found, environment, known, owners)
        made.append(known)
    return made


def _own_keys(found: Found, environment: Environment, entry: dict[str, Any], owners: dict[str, str]) -> None:
    name = entry["name"]
    for key, suffix in (("hmac_secret", ""), ("hmac_secret_previous", "_PREVIOUS")):
        variable = secret_variable(name) + suffix
        secret = environment.secret(variable, found.problems)
        if secret is None:
            continue
        other = owners.setdefault(variable, name)
        if other != name:
            message = f"{variable} would be the key of both {other} and {name}"
            found.problems.append(
                Problem(message, where=variable, fix="rename one backend or use backends[].hmac_secret")
            )
        entry[key] = secret[0]


def _suggest(key: str, keys: Iterable[str]) -> str:

    near = difflib.get_close_matches(key, list(keys), n=1)
    return f" or write {near[0]}" if near else ""
