"""Gather, parse, check: the three steps from an environment to a settings tree."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar, cast

from pydantic import BaseModel, SecretStr, ValidationError

from fred.conf.agent import AgentConfig
from fred.conf.backends import BackendConfig
from fred.conf.house import HouseConfig
from fred.conf.problems import ConfigError, Problem
from fred.conf.provider import ProviderConfig
from fred.conf.rule import Rule
from fred.conf.rules import PROVIDER_RULES
from fred.conf.small_rules import AGENT_RULES, HOUSE_RULES
from fred.conf.sources import PREFIX, Environment, Found, gather, gather_provider
from fred.conf.yamlfile import read_yaml

Tree = TypeVar("Tree", bound=BaseModel)


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


def load_house(variables: Mapping[str, str], *, required: bool) -> Loaded[HouseConfig]:
    """Our own tree. `required`: services and the secret key must be there. Raises ConfigError."""
    found = gather(Environment(variables), prefix="", keys=HouseConfig.model_fields, secrets=_secrets_of(HouseConfig))
    rules = HOUSE_RULES if required else [rule for rule in HOUSE_RULES if not rule.for_services]
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


def load_provider_if_possible(variables: Mapping[str, str]) -> Loaded[ProviderConfig]:
    """The provider's tree, or something that explains its absence at the first use."""
    try:
        return load_provider(variables)
    except ConfigError as error:
        return Loaded(cast("ProviderConfig", Unconfigured(error)), {})


def _secrets_of(tree: type[BaseModel]) -> frozenset[str]:
    return frozenset(key for key, field in tree.model_fields.items() if field.annotation is SecretStr)


def _provider_spelling(key: str) -> str:
    return f"{PREFIX}{key.upper()} or {key}: in the YAML file"


def _build(
    kind: type[Tree], found: Found, *, rules: Iterable[Rule[Tree]], spelling: Callable[[str], str]
) -> Loaded[Tree]:
    """Parse every value, then check every rule whose values could be read; complain of all at once."""
    ordered: list[tuple[int, Problem]] = []
    rules = list(rules)
    order = {key: index for index, rule in reversed(list(enumerate(rules))) for key in rule.keys}
    values = dict(found.values)
    bad: set[str] = set()
    try:
        tree = kind.model_validate(values)
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_input=False):
            key = str(detail["loc"][0])
            bad.add(key)
            problem = Problem(_message(detail["loc"], detail["msg"]), where=spelling(key))
            ordered.append((order.get(key, len(rules)), problem))
        tree = kind.model_validate({key: value for key, value in values.items() if key not in bad})
    for index, rule in enumerate(rules):
        if bad.isdisjoint(rule.keys):
            where = spelling(rule.keys[0])
            ordered.extend((index, Problem(text, where=where, fix=rule.fix)) for text in rule.broken(tree))
    problems = [problem for _, problem in sorted(ordered, key=lambda pair: pair[0])]
    if found.problems or problems:
        raise ConfigError([*problems, *found.problems])
    return Loaded(tree, found.sources, tuple(found.warnings))


def _message(location: Sequence[int | str], text: str) -> str:
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    if key == "log_level":
        return "invalid log_level: unknown log level (valid: debug, info, warn, error)"
    clean = text.removeprefix("Value error, ")
    return f"{key} {clean}" if clean.startswith(("must ", "is ")) else f"{key}: {clean}"
