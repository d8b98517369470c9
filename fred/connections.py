"""This thread's database connection, for code that waits for something else."""

from __future__ import annotations

from django.db import connection

from fred import on_loop


def let_go() -> None:
    """Give the connection back while this thread only waits; its next statement gets one again.

    A web process has fewer connections than threads. Inside a transaction nothing happens, nor on the event loop, where
    there is none.
    """
    if not on_loop.is_here() and not connection.in_atomic_block:
        connection.close()
