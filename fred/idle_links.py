"""Database connections of threads that rest: one that the server ended meanwhile is seen before it is used."""

from __future__ import annotations

import select
from typing import Any

import psycopg
from django.db import connection
from psycopg.pq import ConnStatus


def renew() -> None:
    """Close this thread's connection if the server has ended it: the next statement opens another.

    For the beginning of a piece of work. Nothing is sent, so nothing can happen twice, and no answer is waited for; a
    server that vanished without a word is not found out. Does nothing inside a transaction.
    """
    opened = connection.connection
    if opened is not None and not connection.in_atomic_block and has_ended(opened):
        connection.close()


def has_ended(opened: psycopg.Connection[Any]) -> bool:
    """Whether the other side has closed this connection, which nobody uses at this moment."""
    libpq = opened.pgconn
    if libpq.status != ConnStatus.OK:
        return True
    waiting = select.poll()
    waiting.register(libpq.socket, select.POLLIN)
    try:
        # A last word may stand before the end, and each has to be read to get to the next.
        while libpq.status == ConnStatus.OK and waiting.poll(0):
            libpq.consume_input()
    except psycopg.Error:
        return True
    return libpq.status != ConnStatus.OK
