"""The YAML file: read strictly, with scalars as a Go program sees them.

Only `true` and `false` are booleans and only plain decimals are numbers; dates, `yes`, `0x10` and `1:30` stay
text, so that the value's own syntax decides. Aliases are refused, a duplicate key and a second document too.
"""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from fred.conf.problems import ConfigError, Problem


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader with fewer implicit types and no duplicate keys."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """A dict whose text keys are lower case; the same key twice, in any case, is an error."""
        seen: dict[str, str] = {}
        for key_node, _ in node.value:
            key = str(key_node.value)
            if key.lower() in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} stands twice (as {seen[key.lower()]!r} before)", key_node.start_mark
                )
            seen[key.lower()] = key
        made = super().construct_mapping(node, deep=deep)
        return {key.lower() if isinstance(key, str) else key: value for key, value in made.items()}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """A node; an alias is refused, because it lets a small file grow without bound."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "aliases are not allowed", mark)
        return super().compose_node(parent, index)


_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]
)
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789")
)
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^(?:[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"),
    list("-+0123456789."),
)


def read_yaml(path: Path) -> dict[str, Any]:
    """The file's top-level mapping with keys in lower case and null values dropped.

    Raises ConfigError when the file cannot be read or parsed: a named file is never ignored.
    """
    try:
        with path.open(encoding="utf-8") as stream:
            loader = _StrictLoader(stream)
            try:
                found = loader.get_single_data()
            finally:
                loader.dispose()
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, str(error), fix="make the file readable or name another one") from error
    except yaml.YAMLError as error:
        text = " ".join(str(error).split())
        raise _unreadable(path, text, fix="correct the YAML") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise _unreadable(path, "the top level is not a mapping", fix="write `key: value` lines")
    return {str(key): value for key, value in found.items() if value is not None}


def _unreadable(path: Path, reason: str, *, fix: str) -> ConfigError:
    problem = Problem(
        f"failed to read config file: {path}: {reason}",
        where="PROVIDER_CONFIG or --config",
        fix=fix,
        prefix="failed to load config: ",
    )
    return ConfigError([problem])
