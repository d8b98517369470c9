"""The query language of CometBFT, as far as it is used: conditions on event attributes joined by AND.

A condition is `type.attribute OPERATOR value`; operators are =, <, <=, >, >=, CONTAINS and EXISTS (without a value).
It holds if any value of that attribute satisfies it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from leases.chain.devchain.records import Event
from leases.chain.devchain.transactions import TxResult

MAX_LENGTH = 512
_TOKEN = re.compile(r"\s*(?:(?P<op><=|>=|<|>|=)|'(?P<text>[^']*)'|(?P<word>[^\s'<>=]+))")
_OPERATORS = {"=", "<", "<=", ">", ">=", "CONTAINS", "EXISTS"}


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition; `number` is set when the value is a number."""

    key: str
    operator: str
    value: str = ""
    number: Decimal | None = None

    def holds(self, values: Sequence[str]) -> bool:
        """Whether any of the values satisfies it."""
        if self.operator == "EXISTS":
            return bool(values)
        return any(self._one(value) for value in values)

    def _one(self, value: str) -> bool:
        if self.operator == "CONTAINS":
            return self.value in value
        if self.number is None:
            return self.operator == "=" and value == self.value
        try:
            found = Decimal(value)
        except InvalidOperation:
            return False
        return {
            "=": found == self.number,
            "<": found < self.number,
            "<=": found <= self.number,
            ">": found > self.number,
            ">=": found >= self.number,
        }[self.operator]


@dataclass(frozen=True, slots=True)
class Query:
    """All conditions must hold."""

    conditions: tuple[Condition, ...]

    def matches(self, values: Mapping[str, Sequence[str]]) -> bool:
        """Whether a map of attribute lists satisfies all conditions."""
        return all(condition.holds(values.get(condition.key, ())) for condition in self.conditions)

    def matches_tx(self, result: TxResult) -> bool:
        """Whether an included transaction satisfies all conditions."""
        return self.matches(tx_values(result))


def event_values(events: Sequence[Event]) -> dict[str, list[str]]:
    """All values of each `type.attribute`, in the order of emission."""
    values: dict[str, list[str]] = {}
    for event_type, attributes in events:
        for key, value in attributes:
            values.setdefault(f"{event_type}.{key}", []).append(value)
    return values


def tx_values(result: TxResult) -> dict[str, list[str]]:
    """The attribute lists of a transaction, its hash and height included."""
    values = {"tm.event": ["Tx"], **event_values(result.events)}
    values["tx.hash"] = [result.tx.hash]
    values["tx.height"] = [str(result.height)]
    return values


@lru_cache(maxsize=1024)
def parse(text: str) -> Query:
    """Parse a query; raises ValueError with the text a node answers."""
    if len(text) > MAX_LENGTH:
        raise ValueError("maximum query length exceeded")
    tokens = _tokens(text)
    conditions: list[Condition] = []
    position = 0
    while True:
        condition, position = _condition(tokens, position, len(text))
        conditions.append(condition)
        if position == len(tokens):
            return Query(tuple(conditions))
        kind, word, offset = tokens[position]
        if (kind, word.upper()) != ("word", "AND"):
            raise ValueError(f"failed to parse query: offset {offset}: got {word!r}, wanted end of input")
        position += 1


def _tokens(text: str) -> list[tuple[str, str, int]]:
    tokens: list[tuple[str, str, int]] = []
    position = 0
    while text[position:].strip():
        found = _TOKEN.match(text, position)
        if found is None or found.lastgroup is None:
            raise ValueError(f"failed to parse query: offset {position}: unexpected character")
        tokens.append((found.lastgroup, found.group(found.lastgroup), found.start(found.lastgroup)))
        position = found.end()
    return tokens


def _condition(tokens: list[tuple[str, str, int]], position: int, end: int) -> tuple[Condition, int]:
    key = _take(tokens, position, end, "word")
    operator = _take(tokens, position + 1, end, None)
    if operator not in _OPERATORS:
        raise ValueError(f"failed to parse query: offset {tokens[position + 1][2]}: unknown operator {operator}")
    if operator == "EXISTS":
        return Condition(key, operator), position + 2
    value = _take(tokens, position + 2, end, None)
    number = None
    if tokens[position + 2][0] == "word":
        try:
            number = Decimal(value)
        except InvalidOperation:
            offset = tokens[position + 2][2]
            raise ValueError(f"failed to parse query: offset {offset}: invalid value {value}") from None
    return Condition(key, operator, value, number), position + 3


def _take(tokens: list[tuple[str, str, int]], position: int, end: int, kind: str | None) -> str:
    if position >= len(tokens):
        raise ValueError(f"failed to parse query: offset {end}: EOF")
    if kind is not None and tokens[position][0] != kind:
        raise ValueError(f"failed to parse query: offset {tokens[position][2]}: unexpected {tokens[position][1]}")
    return tokens[position][1]
