"""A task whose connection the database has left fails once; the next one works. Connections outlive their tasks."""

import pytest
from celery import Celery
from django.db import OperationalError, connection

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
