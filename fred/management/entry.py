"""`manage.py`: Django's commands, with one line instead of a trace where an operator can put it right."""

import sys
from collections.abc import Sequence
from typing import NoReturn

import psycopg
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.db.utils import OperationalError

from fred.conf import ConfigError, command_of

_NO_DATABASE = (
    "DATABASE_URL is required: this command works on the database (for example postgres://fred@localhost:5432/fred)"
)
_DUMMY = "django.db.backends.dummy"
_CHECKED_FIRST = frozenset({"migrate"})
"""Commands whose checks of the models make no sense without a database, and fail before anything names it."""
_MAX_REASON = 400


def run(argv: Sequence[str]) -> None:
    """Run the command. Without settings it needs, or without its database, say so on standard error and exit with 1."""
    try:
        if command_of(argv) in _CHECKED_FIRST and not {"-h", "--help"} & set(argv) and _has_no_database():
            _end(_NO_DATABASE)
        execute_from_command_line(list(argv))
    except ConfigError as error:
        _end(str(error))
    except ImproperlyConfigured:
        if not settings.configured or not _has_no_database():
            raise
        _end(_NO_DATABASE)
    except OperationalError as error:
        cause = error.__cause__
        # A server that refuses a statement sends a code; one that is not there cannot.
        if not isinstance(cause, psycopg.Error) or cause.sqlstate is not None:
            raise
        _end(_unreachable(cause))


def _has_no_database() -> bool:
    return bool(settings.DATABASES["default"]["ENGINE"] == _DUMMY)


def _unreachable(cause: psycopg.Error) -> str:
    database = settings.DATABASES["default"]
    reason = " ".join(str(cause).removeprefix("connection failed: ").split())[:_MAX_REASON]
    return f"no connection to the database at {database['HOST']}:{database['PORT'] or 5432} (DATABASE_URL): {reason}"


def _end(text: str) -> NoReturn:
    sys.stderr.write(f"{text}\n")
    raise SystemExit(1)
