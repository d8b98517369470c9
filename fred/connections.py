"""This thread's database connection, for code that waits for something else."""

from __future__ import annotations

from django.db import connection


def let_go() -> None:
    """Give the connection back while this thread only waits; its next statement gets one again.

    A web process has fewer connections than threads. Inside a transaction nothing happens.
    """
    if not connection.in_atomic_block:
        connection.close()
