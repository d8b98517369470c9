"""Telling an error of a database that is away from one of ours, or of its host."""

from collections.abc import Iterator
from typing import Final

import psycopg
from django.db import InterfaceError, OperationalError
from psycopg_pool import PoolTimeout

_OF_THE_SERVER: Final = ("08", "53300", "57P")
"""SQLSTATEs, or how they begin: connections, too many of them, a server that stops or does not start yet."""
_NOT_MADE: Final = ("failed to resolve host", "connection failed", "connection is bad")
_LOST: Final = (
    "the connection is closed",
    "the connection is lost",
    "connection socket closed",
    "closed the connection unexpectedly",
    "connection has been closed unexpectedly",
    "no connection to the server",
    "could not receive data from server",
    "could not send data to server",
    "ssl syscall error",
)
"""What the driver and its library say of a connection that could not be made or has ended: they give no SQLSTATE."""


def is_away(error: BaseException) -> bool:
    """Whether this was raised, or raised from what was, because the database did not answer or gave no connection.

    A lock that took too long, a statement over its limit and a deadlock are answers. A full disk is one, too, and
    nobody waits for the end of a wrong use of the driver: these errors are told in full each time.
    """
    return any(_is_away(one) for one in _with_causes(error))


def _is_away(error: BaseException) -> bool:
    if not isinstance(error, OperationalError | InterfaceError | psycopg.OperationalError | psycopg.InterfaceError):
        return False
    of_driver = error.__cause__ if isinstance(error.__cause__, psycopg.Error) else error
    state: str | None = getattr(of_driver, "sqlstate", None)
    if state is not None:
        return state.startswith(_OF_THE_SERVER)
    if isinstance(of_driver, PoolTimeout | psycopg.errors.ConnectionTimeout):
        return True
    said = str(of_driver).lower()
    return said.startswith(_NOT_MADE) or any(phrase in said for phrase in _LOST)


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    for _ in range(8):
        if current is None:
            return
        yield current
        current = current.__cause__
