"""Telling an error of a database that is away from one of ours."""

from collections.abc import Iterator
from typing import Final

import psycopg
from django.db import InterfaceError, OperationalError

_OF_THE_SERVER: Final = ("08", "53", "57P")
"""Classes of SQLSTATE: connections, lack of resources, a server that stops or does not start yet."""


def is_away(error: BaseException) -> bool:
    """Whether this was raised, or raised from what was, because the database did not answer or gave no connection.

    A lock that took too long, a statement over its limit and a deadlock are answers.
    """
    return any(_is_away(one) for one in _with_causes(error))


def _is_away(error: BaseException) -> bool:
    if isinstance(error, OperationalError | InterfaceError):
        error_of_driver = error.__cause__
    elif isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        error_of_driver = error
    else:
        return False
    state: str | None = getattr(error_of_driver, "sqlstate", None)
    return state is None or state.startswith(_OF_THE_SERVER)


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    for _ in range(8):
        if current is None:
            return
        yield current
        current = current.__cause__
