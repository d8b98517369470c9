"""A pool of connections that does not keep requests waiting for a server that is back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import psycopg
from psycopg_pool import ConnectionPool

RETRY_S: Final = 1.0
"""Pause between two attempts to connect while the server is away, however long it is."""


class Pool(ConnectionPool[psycopg.Connection[Any]]):
    """The library's pool, for servers that are started again.

    The library's own, too, looks at a connection before it gives it away, but it pauses after each dead one, for 1, 2
    and 4 s: after a restart of the server four idle connections cost a request all of its time. And it lets the pause
    between attempts to connect grow up to minutes.
    """

    def __init__(
        self, parameters: dict[str, Any], configure: Callable[[psycopg.Connection[Any]], Any], **options: Any
    ) -> None:
        """Not open yet. `parameters` to connect with; `configure` prepares a connection; the library's `options`."""
        super().__init__(
            kwargs=parameters,
            configure=configure,
            check=self._look_at,
            open=False,
            reconnect_timeout=RETRY_S,
            # Giving up ends one attempt only: a look at the pool begins another, for those who wait.
            reconnect_failed=ConnectionPool.check,
            **options,
        )

    def _look_at(self, connection: psycopg.Connection[Any]) -> None:
        """Raise if this connection is dead; the idle others, most likely dead as well, are made anew at once."""
        try:
            self.check_connection(connection)
        except psycopg.Error:
            self.drain()
            raise
