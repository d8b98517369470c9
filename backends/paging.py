"""Cutting a sorted inventory into pages, as a backend serves it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from backends.contract import ValidationRefused

MAX_LIMIT = 5000
_INT64 = range(-(2**63), 2**63)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page:
    """What was asked for: at most `limit` rows (None: all) after `after`."""

    limit: int | None = None
    after: UUID | None = None

    @property
    def wanted(self) -> int | None:
        """How many rows to read: the one over the limit shows whether more exist."""
        return None if self.limit is None else self.limit + 1


def parse(query: Mapping[str, Sequence[str]]) -> Page:
    """Read `limit` and `continue`. Raises `ValidationRefused` with the contract's texts; `limit` is checked first."""
    raw = query.get("limit", [""])[0]
    limit = 0
    if raw:
        sign, digits = (raw[0], raw[1:]) if raw[0] in "+-" else ("", raw)
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 40 or int(sign + digits) not in _INT64:
            raise ValidationRefused(f'invalid limit "{raw}": must be a non-negative integer')
        limit = int(sign + digits)
        if limit < 0:
            raise ValidationRefused(f'invalid limit "{raw}": must be a non-negative integer')
    token = query.get("continue", [""])[0]
    if not token:
        return Page(limit=min(limit, MAX_LIMIT) or None)
    try:
        after = UUID(token)
    except ValueError:
        raise ValidationRefused(f'invalid continue token "{token}": must be a UUID') from None
    if limit == 0:
        raise ValidationRefused("continue requires a positive limit")
    return Page(limit=min(limit, MAX_LIMIT), after=after)


def cut(rows: Sequence[T], page: Page, *, key: Callable[[T], UUID]) -> tuple[Sequence[T], str]:
    """The rows of this page and the token of the next one, empty when there is none.

    `rows` are those after the cursor, one more than the limit where there are so many: it tells that the list goes on.
    """
    if page.limit is None or len(rows) <= page.limit:
        return rows, ""
    chosen = rows[: page.limit]
    return chosen, str(key(chosen[-1]))
