"""Gather, parse, check: the three steps from an environment to a settings tree."""

import copy
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from fred.conf.agent import AgentConfig
from fred.conf.backends import BackendConfig
from fred.conf.house import HouseConfig
from fred.conf.problems import ConfigError, Problem
from fred.conf.provider import ProviderConfig
from fred.conf.roles import Role
from fred.conf.rule import Rule
from fred.conf.rules import PROVIDER_RULES
from fred.conf.small_rules import AGENT_RULES, HOUSE_RULES, PRODUCTION_RULES, SERVICE_RULES
from fred.conf.sources import PREFIX, Environment, Found, gather, gather_provider
from fred.conf.yamlfile import read_yaml

Tree = TypeVar("Tree", bound=BaseModel)
NOT_SETTINGS = frozenset({"FRED_BENCH_PIPE", "FRED_BENCH_SECRET", "FRED_TEST_SEED"})
"""Variables that benches and tests hand to their own children."""


@dataclass(frozen=True)
class Loaded(Generic[Tree]):
    """A valid tree, where each key's value came from (`env`, `env file`, `file`, else default), and warnings."""

    tree: Tree
    sources: Mapping[str, str]
    warnings: tuple[str, ...] = ()

    def source_of(self, key: str, /) -> str:
        """`env`, `env file`, `file` or `default`."""
        return self.sources.get(key, "default")


class Unconfigured:
    """Stands where the provider's settings would be in a process that does not need them.

    Reading anything of it raises ConfigError with every problem, so a command that does need them explains itself.
    """

    def __init__(self, error: ConfigError) -> None:
        self._error = error

    def __getattr__(self, name: str) -> object:
        """Always the problems; special names keep Python's own answer."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise ConfigError(self._error.problems)


def load_provider(variables: Mapping[str, str], *, path: str | None = None) -> Loaded[ProviderConfig]:
    """The provider's tree from these variables and the YAML file. Raises ConfigError with all problems."""
    found = gather_provider(
        Environment(variables),
        path=path,
        keys=frozenset(ProviderConfig.model_fields),
        backend_keys=frozenset(BackendConfig.model_fields),
    )
    return _build(ProviderConfig, found, rules=PROVIDER_RULES, spelling=_provider_spelling)


def load_house(variables: Mapping[str, str], *, required: bool, production: bool = False) -> Loaded[HouseConfig]:
    """Our own tree. Raises ConfigError.

    `required`: services and the secret key must be there. `production`: nothing may be as loose as in development.
    """
    found = gather(Environment(variables), prefix="", keys=HouseConfig.model_fields, secrets=_secrets_of(HouseConfig))
    rules = [*(SERVICE_RULES if required else ()), *HOUSE_RULES, *(PRODUCTION_RULES if production else ())]
    known = {key.upper() for key in HouseConfig.model_fields} | {
        f"{key.upper()}_FILE" for key in _secrets_of(HouseConfig)
    }
    unknown = [name for name in Environment(variables).names("FRED_") if name not in known | NOT_SETTINGS]
    if unknown:
        found.warnings.append("unknown FRED_ variables are ignored: " + ", ".join(unknown))
    return _build(HouseConfig, found, rules=rules, spelling=str.upper)


def load_agent(variables: Mapping[str, str], *, path: str | None = None) -> Loaded[AgentConfig]:
    """The mock agent's tree from these variables and, below them, the YAML file of this path. Raises ConfigError."""
    prefix = "MOCK_BACKEND_"
    found = gather(
        Environment(variables), prefix=prefix, keys=AgentConfig.model_fields, secrets=_secrets_of(AgentConfig)
    )
    for key, value in (read_yaml(Path(path)) if path else {}).items():
        if key not in AgentConfig.model_fields:
            found.problems.append(Problem(f"unknown key: {key}", where=f"in {path}", fix="remove it"))
        elif key not in found.values:
            found.values[key], found.sources[key] = value, "file"
    return _build(AgentConfig, found, rules=AGENT_RULES, spelling=lambda key: prefix + key.upper())


@dataclass(frozen=True)
class Configuration:
    """All trees of a process: the house's always, the provider's or the agent's as its role asks."""

    house: Loaded[HouseConfig]
    provider: Loaded[ProviderConfig]
    agent: Loaded[AgentConfig] | None


def load(variables: Mapping[str, str], *, role: Role, path: str | None = None) -> Configuration:
    """Everything a process of this role needs. Raises one ConfigError with the problems of all trees."""
    problems: list[Problem] = []
    warnings: list[str] = []
    provider: Loaded[ProviderConfig] | None = None
    house: Loaded[HouseConfig] | None = None
    agent: Loaded[AgentConfig] | None = None
    try:
        provider = load_provider(variables, path=path)
    except ConfigError as error:
        if role is Role.PROVIDER:
            problems.extend(error.problems)
            warnings.extend(error.warnings)
        readable = error.readable
        provider = Loaded(cast("ProviderConfig", Unconfigured(error)), {})
    else:
        readable = provider.tree
        warnings.extend(provider.warnings)
    needed = role is Role.PROVIDER
    try:
        production = needed and isinstance(readable, ProviderConfig) and readable.production_mode
        house = load_house(variables, required=needed, production=production)
        warnings.extend(house.warnings)
    except ConfigError as error:
        problems.extend(error.problems)
        warnings.extend(error.warnings)
    try:
        agent = load_agent(variables, path=path) if role is Role.AGENT else None
    except ConfigError as error:
        problems.extend(error.problems)
    if problems or house is None:
        raise ConfigError(problems, readable=readable, warnings=warnings)
    return Configuration(house, provider, agent)


def _secrets_of(tree: type[BaseModel]) -> frozenset[str]:
    return frozenset(key for key, field in tree.model_fields.items() if field.annotation is SecretStr)


def _provider_spelling(key: str) -> str:
    return f"{PREFIX}{key.upper()} or {key}: in the YAML file"


def _build(
    kind: type[Tree], found: Found, *, rules: Iterable[Rule[Tree]], spelling: Callable[[str], str]
) -> Loaded[Tree]:
    """Parse every value, then check every rule whose values could be read; complain of all at once."""
    rules = list(rules)
    order = {key: index for index, rule in reversed(list(enumerate(rules))) for key in rule.keys}
    ordered: list[tuple[int, Problem]] = []
    unread = set(found.unread)
    try:
        tree = kind.model_validate(found.values)
    except ValidationError as error:
        readable = copy.deepcopy(found.values)
        for detail in error.errors(include_url=False, include_input=False):
            location = detail["loc"]
            unread.add(_path(location))
            _remove(readable, location)
            ordered.append((order.get(str(location[0]), len(rules)), _unreadable(detail, spelling)))
        tree = kind.model_validate(readable)
    for index, rule in enumerate(rules):
        if unread.isdisjoint(rule.keys):
            ordered.extend(
                (index, Problem(text, where=spelling(rule.keys[0]), fix=rule.fix))
                for text in rule.broken(tree)
                if not any(_is_about(text, path) for path in unread)
            )
    problems = [problem for _, problem in sorted(ordered, key=lambda pair: pair[0])]
    if found.problems or problems:
        raise ConfigError([*problems, *found.problems], readable=tree, warnings=found.warnings)
    return Loaded(tree, found.sources, tuple(found.warnings))


def _remove(values: dict[str, Any], location: Sequence[int | str]) -> None:
    """Take out what could not be read, so that the rest can be looked at."""
    *parents, last = location
    holder: Any = values
    for part in parents:
        holder = holder[part]
    if isinstance(holder, dict):
        holder.pop(last, None)


def _is_about(text: str, path: str) -> bool:
    """Whether a complaint is about what could not be read, or about all entries of a list of which one could not be."""
    own = text.removeprefix("production_mode: ")
    if own.startswith(path) and not re.match(r"\w", own[len(path) :]):
        return True
    listed, dot, key = path.rpartition("].")
    name = listed.partition("[")[0]
    return bool(dot) and own.startswith((f"{name}: ", f"every {name}")) and key in own


def _unreadable(detail: ErrorDetails, spelling: Callable[[str], str]) -> Problem:
    location = detail["loc"]
    path = _path(location)
    where = spelling(str(location[0]))
    if detail["type"] == "literal_error":
        return Problem(f"{path} must be {detail['ctx']['expected']}", where=where)
    text = detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "string_type":
        text = "is not text; put it in quotes"
    if path == "log_level":
        return Problem(f"invalid log_level: {text}", where=where, prefix="")
    joint = " " if text.startswith(("must ", "is ")) else ": "
    return Problem(f"{path}{joint}{text}", where=where)


def _path(location: Sequence[int | str]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
