"""Fixtures of all tests. Real services; nothing here is a stand-in."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import django
import hypothesis
import pytest
import redis

from fred.dev.servers import ValkeyServer
from tests import database, leftovers, patient, quiet
from tests.services import Services, use_valkey, valkey_of_worker

# Chains of tests serve gRPC in this process. Its fork handlers can hang a child between fork and exec; read at import.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# A machine that is busy elsewhere makes no example wrong.
hypothesis.settings.register_profile("fred", deadline=None)
hypothesis.settings.load_profile("fred")

_services = pytest.StashKey[Services]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Start the services before Django reads its settings; workers of pytest-xdist use those of their controller."""
    if config.option.help or config.option.version:
        return
    worker: str | None = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None:
        use_valkey(valkey_of_worker(os.environ["REDIS_URL"], 1 + int(worker.removeprefix("gw"))))
        os.environ["DJANGO_SETTINGS_MODULE"] = "fred.settings"
    else:
        config.stash[_services] = services = Services()
        services.start()
    patient.wait_for_valkey()
    django.setup()
    database.lift_limits()
    quiet.between_tests(config)
    config.pluginmanager.register(leftovers)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Keep the settings' name from workers: pytest-django would read them before their own Valkey database is named."""
    os.environ.pop("DJANGO_SETTINGS_MODULE", None)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop what this process started."""
    services = config.stash.get(_services, None)
    if services is not None:
        services.stop()


@pytest.fixture
def valkey() -> Iterator[redis.Redis]:
    """A client of this worker's Valkey database, emptied before the test."""
    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    client.flushdb()
    yield client
    client.close()


@dataclass
class OwnValkey:
    """A Valkey of one test, which stands still for nobody else."""

    url: str
    client: redis.Redis

    @contextmanager
    def stands_still(self) -> Iterator[None]:
        """Inside it takes connections and commands, and answers none of them before the end."""
        pid = int(self.client.info("server")["process_id"])
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[OwnValkey]:
    with ValkeyServer(tmp_path / "valkey") as server, redis.Redis.from_url(server.url) as client:
        yield OwnValkey(server.url, client)


@pytest.fixture
def run_in_threads() -> Callable[..., list[Any]]:
    """`run_in_threads(n, function)`: call it in n threads that start at one moment; return their results in order.

    Each thread has its own database connections, closed at its end: the test needs
    `@pytest.mark.django_db(transaction=True)`. One error is raised as it is, several as an ExceptionGroup.
    """

    def run(number: int, function: Callable[[], Any], *, timeout: float = 60.0) -> list[Any]:
        from django.db import connections

        barrier = threading.Barrier(number)
        results: list[Any] = [None] * number
        errors: list[Exception] = []

        def call(index: int) -> None:
            try:
                barrier.wait(10)
                results[index] = function()
            except Exception as error:  # noqa: BLE001 - raised again by the test's own thread
                errors.append(error)
            finally:
                connections.close_all()

        threads = [threading.Thread(target=call, args=(index,), daemon=True) for index in range(number)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout)
        assert not any(thread.is_alive() for thread in threads), f"a thread still runs after {timeout} s"
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ExceptionGroup("several threads failed", errors)
        return results

    return run


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The test database; at the end, threads of the process that still hold a connection to it lose it."""
    from django.db import connection
    from django.test import TransactionTestCase

    from tests.database import empty_tables

    TransactionTestCase._fixture_teardown = empty_tables
    yield
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()
            """
        )
