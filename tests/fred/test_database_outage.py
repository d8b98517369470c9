"""A task whose connection the database has left fails once; the next one works. Connections outlive their tasks."""

import asyncio

import pytest
from celery import Celery
from django.db import OperationalError, connection

from fred import loop_database
from fred.tasks import FredTask


@pytest.mark.django_db(transaction=True)
def test_a_broken_connection_is_given_up_after_the_first_failure():
    with Celery("outage", set_as_current=False) as app:

        @app.task(base=FredTask, name="tests.ask")
        def ask():
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                return cursor.fetchone()[0]

        before = ask()
        with connection.copy().cursor() as other:
            other.execute("SELECT pg_terminate_backend(%s)", [before])
            other.connection.close()
        with pytest.raises(OperationalError):
            ask()
        assert ask() != before


@pytest.mark.django_db
@pytest.mark.parametrize("whose", ["a task's or a request's", "the event loop's"])
def test_no_connection_waits_for_ever_for_a_server_that_vanished(whose):
    async def opened():
        other = await loop_database.connect()
        try:
            return other.info.get_parameters()
        finally:
            await other.close()

    connection.ensure_connection()
    found = asyncio.run(opened()) if whose.endswith("loop's") else connection.connection.info.get_parameters()
    silent_s = int(found["keepalives_idle"]) + int(found["keepalives_interval"]) * int(found["keepalives_count"])
    assert silent_s == int(found["tcp_user_timeout"]) / 1000 == 25
