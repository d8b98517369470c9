"""The broker connection, the clock table and the choices that keep tasks cheap."""

import contextlib
import subprocess
import sys

from django.conf import settings

from fred.celery import PatientConnection, app


def test_every_connection_of_the_app_is_patient():
    assert isinstance(app.connection_for_read(), PatientConnection)
    assert isinstance(app.connection_for_write(), PatientConnection)


def test_reconnecting_never_waits_longer_than_two_seconds():
    waits = []

    def note(_error, interval):
        waits.append(interval)
        if len(waits) == 15:
            raise StopIteration

    connection = PatientConnection("redis://127.0.0.1:1/0", transport_options={"socket_connect_timeout": 1})
    connection._establish_connection = fail
    with Sleepless(), contextlib.suppress(StopIteration):
        connection.ensure_connection(note)
    assert len(waits) == 15
    assert max(waits) == 2.0
    assert waits == sorted(waits)


def fail():
    raise OSError("refused")


class Sleepless:
    """Lets kombu's waiting pass at once."""

    def __enter__(self):
        from kombu.utils import functional

        self._module, self._sleep = functional, functional.sleep
        functional.sleep = lambda _seconds: None

    def __exit__(self, *_):
        self._module.sleep = self._sleep


def test_tasks_of_the_clock_are_registered():
    app.loader.import_default_modules()
    named = {entry["task"] for entry in app.conf.beat_schedule.values()}
    assert named <= set(app.tasks)


def test_the_clock_looks_for_what_nobody_took_every_two_seconds():
    assert app.conf.beat_schedule["due rows nobody took"]["schedule"] == 2.0


def test_tasks_are_cheap_json_taken_one_by_one_and_keep_their_database_connection():
    assert app.conf.accept_content == ["json"]
    assert app.conf.task_serializer == "json"
    assert app.conf.worker_prefetch_multiplier == 1
    assert not app.conf.task_acks_late
    assert app.conf.get("CELERY_DB_REUSE_MAX") > 10_000
    assert app.conf.broker_connection_max_retries is None


def test_every_session_gives_up_by_itself():
    options = settings.DATABASES["default"]["OPTIONS"]["options"]
    assert "lock_timeout=2000" in options
    assert "statement_timeout=15000" in options
    assert "idle_in_transaction_session_timeout=3000" in options


def test_the_package_itself_imports_nothing():
    done = subprocess.run(
        [sys.executable, "-c", "import fred, sys; print([m for m in ('celery', 'django') if m in sys.modules])"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
