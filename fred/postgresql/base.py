"""The module that Django looks for in a database backend: its wrapper of a connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import psycopg
from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.postgresql import base

from fred.postgresql.pools import Pool


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's own, whose pool is ours."""

    _connection_pools: ClassVar[dict[str, Pool]]
    _configure_connection: Callable[[psycopg.Connection[Any]], bool]

    @property
    def pool(self) -> Pool | None:
        """The pool of this process; None where the settings ask for none."""
        options = self.settings_dict["OPTIONS"].get("pool")
        if not options or self.alias == NO_DB_ALIAS:
            return None
        if self.alias not in self._connection_pools:
            made = Pool({**self.get_connection_params(), "autocommit": True}, self._configure_connection, **options)
            self._connection_pools.setdefault(self.alias, made)  # of threads that come at once, one wins
        return self._connection_pools[self.alias]
