"""`docs/configuration.md`, made from the settings trees, so that it cannot say anything else. Pure."""

import inspect
import json
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, SecretStr
from pydantic.fields import FieldInfo

from fred.conf import values
from fred.conf.agent import AgentConfig
from fred.conf.backends import BackendConfig
from fred.conf.fingerprint import shown
from fred.conf.house import HouseConfig
from fred.conf.provider import NO_UUID, RETIRED_KEYS, ProviderConfig

WITHOUT_EFFECT: dict[type[BaseModel], frozenset[str]] = {
    ProviderConfig: frozenset(
        {
            *RETIRED_KEYS,
            "chain_profile",
            "withdraw_interval",
            "withdraw_limit",
            "max_withdraw_iterations",
            "credit_check_interval",
            "credit_check_zero_grace_period",
            "credit_check_error_threshold",
            "credit_check_retry_interval",
            "placement_snapshot_dir",
            "placement_snapshot_interval",
            "placement_snapshot_retain",
        }
    ),
    BackendConfig: frozenset(),
    HouseConfig: frozenset({"fred_admin_enabled", "fred_admin_four_eyes", "fred_metrics_listen_addr"}),
    AgentConfig: frozenset({"storage_id"}),
}
"""Keys that are accepted and checked, and that nothing reads. A test compares this with the code."""

_NOTES = {
    (ProviderConfig, "tenant_rate_limit_rps"): "0 also lets the form of a path be checked before the token.",
    (BackendConfig, "contract"): (
        "In this version requests are sent in the older dialect whatever stands here, and callbacks of a `current` "
        "backend are refused: leave it at `auto`, or write `v0_13` for a URL with a path."
    ),
}
RETIRED = frozenset(RETIRED_KEYS)
_SECTIONS = (
    ("Identity and mode", "production_mode"),
    ("Chain", "chain_id"),
    ("Signing", "keyring_backend"),
    ("API server", "api_listen_addr"),
    ("Background work", "withdraw_interval"),
    ("Backends", "backends"),
)
_TYPES = {
    values.parse_bool: "boolean",
    values.parse_int: "integer",
    values.parse_float: "number",
    values.parse_duration: "duration",
    values.parse_text: "text",
    values.parse_list: "list",
    values.parse_coin: "coin",
    values.parse_networks: "list",
    values.parse_host_port: "host:port",
}
_NONE = "–"

_HEAD = """\
# Configuration

Made from the settings trees by `python manage.py check_config --reference`; a test keeps both equal.

## Where values come from

Highest first: the environment, the YAML file, the default. The file is named by `PROVIDER_CONFIG`; without it there
is none. `watch_chain`, `backends` and `check_config` also take `--config PATH` (or `-c`), which wins; servers, workers,
beat, `migrate` and all other commands only know `PROVIDER_CONFIG`. A named file that cannot be read or parsed stops the
start.

- The environment name of a provider's key is `PROVIDER_` and the key in upper case: `gas_price` is
  `PROVIDER_GAS_PRICE`, `provider_uuid` is `PROVIDER_PROVIDER_UUID`.
- A variable that is set but empty counts as not set. `[]` empties a list.
- In the file an unknown key, a key that stands twice (in any case), an alias and a second document are refused.
  Unknown `PROVIDER_` and `FRED_` variables are named in a warning.
- A **secret** may stand in a file instead: `NAME_FILE` names it, and one newline at its end is dropped. `NAME` and
  `NAME_FILE` together are refused. Secrets are never logged or shown.
- Everything is read once, at the start, and must be equal in all processes; `fred_config_mismatch` says when it is not.

`python manage.py check_config` prints everything that is wrong, one problem a line, and ends with 1, or says
`configuration is good`; it touches neither network nor database nor keyring. `--show` prints every value with its
source, secrets redacted, and `--print-hmac-key-ids` tells keys of backends apart without showing them.

## How values are written

| Type | Written as | Refused |
|---|---|---|
| duration | numbers with `ns`, `us`, `ms`, `s`, `m`, `h`: `500ms`, `1h30m`, `1.5h`; `0` | no unit, `14d`, below 1µs |
| boolean | `true`, `True`, `TRUE`, `t`, `T`, `1`; `false`, `False`, `FALSE`, `f`, `F`, `0` | `yes`, `on`, `enabled` |
| integer | decimal digits, with or without a sign | `1.0`, `0x10` |
| number | decimal, also with an exponent | NaN, infinity |
| text | as it is; in YAML numbers and booleans need quotes | |
| list | a YAML list; in the environment `a, b` or a JSON array | items that are not text |
| coin | digits and the denom: `10000000umfx` | decimals, spaces |
| host:port | `localhost:9090`, `[::1]:9090`; `:8080` for all interfaces where one listens | no port |
"""
_BACKENDS = """\
Each entry is a mapping; in the environment `PROVIDER_BACKENDS` holds the list as JSON. A backend's key is taken from
the environment first: `<NAME>` is its name in upper case with every other character than A–Z and 0–9 as `_`.
"""
_HOUSE = """\
## The house's own settings

From the environment only.
"""
_AGENT = """\
## The mock backend's agent

`manage.py backend_agent mock` needs none of the above. Its keys come from the environment, or from the YAML file of
`--config`.
"""


def reference() -> str:
    """The whole page as Markdown, with one newline at its end."""
    parts = [_HEAD]
    for title, keys in _sections():
        if title == "Backends":
            parts += ["## Backends\n", _provider_table(keys), _BACKENDS, _backend_table()]
        else:
            parts += [f"## {title}\n", _provider_table(keys)]
    parts += ["## Accepted, without effect\n", _without_effect(), _HOUSE, _house_table(), _AGENT, _agent_table()]
    return "\n".join(parts)


def _sections() -> Iterator[tuple[str, list[str]]]:
    keys = list(ProviderConfig.model_fields)
    starts = [keys.index(first) for _, first in _SECTIONS]
    for (title, _), start, end in zip(_SECTIONS, starts, [*starts[1:], len(keys)], strict=True):
        yield title, [key for key in keys[start:end] if key not in RETIRED]


def _provider_table(keys: Iterable[str]) -> str:
    fields = ProviderConfig.model_fields
    rows = (
        [f"`{key}`", _variable(f"PROVIDER_{key.upper()}", fields[key]), *_rest(ProviderConfig, key)] for key in keys
    )
    return _table(("Key", "Environment", "Type", "Default", "Meaning"), rows)


def _backend_table() -> str:
    rows = []
    for key, field in BackendConfig.model_fields.items():
        own = _variable(f"PROVIDER_BACKEND_<NAME>_{key.upper()}", field) if _is_secret(field) else _NONE
        rows.append([f"`{key}`", own, *_rest(BackendConfig, key)])
    return _table(("Key of an entry", "Environment", "Type", "Default", "Meaning"), rows)


def _house_table() -> str:
    rows = [["`PROVIDER_CONFIG`", "text", _NONE, "The YAML file."]]
    rows += [
        [_variable(key.upper(), field), *_rest(HouseConfig, key)] for key, field in HouseConfig.model_fields.items()
    ]
    return _table(("Environment", "Type", "Default", "Meaning"), rows)


def _agent_table() -> str:
    fields = AgentConfig.model_fields
    rows = (
        [f"`{key}`", _variable(f"MOCK_BACKEND_{key.upper()}", fields[key]), *_rest(AgentConfig, key)] for key in fields
    )
    return _table(("Key", "Environment", "Type", "Default", "Meaning"), rows)


def _without_effect() -> str:
    names = [
        *(f"`{key}`" for key in ProviderConfig.model_fields if key in WITHOUT_EFFECT[ProviderConfig] - RETIRED),
        *(f"`{key.upper()}`" for key in HouseConfig.model_fields if key in WITHOUT_EFFECT[HouseConfig]),
        *(f"`MOCK_BACKEND_{key.upper()}`" for key in AgentConfig.model_fields if key in WITHOUT_EFFECT[AgentConfig]),
    ]
    rows = ([f"`{key}`", f"`PROVIDER_{key.upper()}`", *_rest(ProviderConfig, key)[2:]] for key in RETIRED_KEYS)
    return (
        "These change nothing and never will; they are accepted so that an existing file goes on to work:\n\n"
        + _table(("Key", "Environment", "Why"), rows)
        + "\nThese are accepted and checked as well, but no code of this version reads them: "
        + ", ".join(names)
        + ".\n"
    )


def _rest(tree: type[BaseModel], key: str) -> list[str]:
    """Type, default and meaning of a key."""
    field = tree.model_fields[key]
    meaning = " ".join(inspect.cleandoc(field.description or "").split())
    if key in WITHOUT_EFFECT[tree] and key not in RETIRED:
        meaning = f"*No effect in this version.* {meaning}"
    if note := _NOTES.get((tree, key)):
        meaning = f"{meaning} {note}"
    return [_type(field), _default(shown(tree())[key]), meaning]


def _type(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{word}`" if word else "empty" for word in get_args(field.annotation))
    if _is_secret(field):
        return "secret"
    if field.annotation in {uuid.UUID, uuid.UUID | None}:
        return "UUID"
    if field.annotation == tuple[uuid.UUID, ...]:
        return "list of UUIDs"
    if field.annotation == tuple[BackendConfig, ...]:
        return "list of entries"
    return next(_TYPES[one.func] for one in field.metadata if isinstance(one, BeforeValidator) and one.func in _TYPES)


def _default(value: Any) -> str:
    if value is None or value in ("", str(NO_UUID)):
        return _NONE
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


def _is_secret(field: FieldInfo) -> bool:
    return field.annotation is SecretStr


def _variable(name: str, field: FieldInfo) -> str:
    return f"`{name}`, `{name}_FILE`" if _is_secret(field) else f"`{name}`"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = tuple(heads)
    lines = [heads, ("---",) * len(heads), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" if line[0] != "---" else f"|{'|'.join(line)}|\n" for line in lines)
