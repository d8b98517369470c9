"""An agent's own memory: one SQLite file, one writer thread that groups commits.

What `write` promised is on disk (WAL, `synchronous=FULL`) when its future is done. Many writes that arrive together
share one commit; each stands in a savepoint of its own, so one that fails takes nothing else with it.
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

_GROUP = 512

SCHEMA: tuple[str, ...] = (
    """
    CREATE TABLE outbox (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        lease_uuid TEXT NOT NULL,
        url TEXT NOT NULL,
        body BLOB NOT NULL,
        created_at REAL NOT NULL
    ) STRICT;
    CREATE TABLE provision (
        lease_uuid TEXT PRIMARY KEY,
        document BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE retention (
        lease_uuid TEXT PRIMARY KEY,
        document BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    """,
    """
    CREATE TABLE diagnosis (
        lease_uuid TEXT PRIMARY KEY,
        document BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    """,
)
"""One script for each version of the file, in order. A released one is never edited."""


class StoreError(Exception):
    """The file can't be used, and why."""


@dataclass(frozen=True, slots=True)
class _Job:
    work: Work[Any]
    future: Future[Any]


class Store:
    """The SQLite file of one agent. `write` from any thread; `close` once."""

    def __init__(self, path: str | Path, *, schema: Sequence[str] = SCHEMA) -> None:
        """Open or make the file and bring its schema up to date. Raises `StoreError`, also for one newer than us."""
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._closed = False
        self._lock = threading.Lock()
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0.5)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")
            # Two agents on one file would each believe to be the only one.
            self._connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._upgrade(schema)
        except sqlite3.Error as error:
            raise StoreError(f"{path}: {error}") from error
        self._thread = threading.Thread(target=self._run, name="agent-store", daemon=True)
        self._thread.start()

    def write(self, work: Work[T]) -> Future[T]:
        """Run this on the writer's connection; the future holds its result once that is committed, or its exception."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise StoreError("the store is closed")
            self._jobs.put(_Job(work, future))
        return future

    async def commit(self, work: Work[T]) -> T:
        """`write`, awaited."""
        return await asyncio.wrap_future(self.write(work))

    def rows(self, statement: str, parameters: Iterable[object] = ()) -> list[tuple[Any, ...]]:
        """Read, after everything that was written before. For start-up; the agent serves from memory."""
        values = tuple(parameters)
        return self.write(lambda connection: connection.execute(statement, values).fetchall()).result()

    def close(self) -> None:
        """Commit what was handed over, then close. A second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._jobs.put(None)
        self._thread.join()
        self._connection.close()

    def _upgrade(self, schema: Sequence[str]) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version > len(schema):
            raise StoreError(f"the file has schema version {version}; this program knows {len(schema)}")
        for number, script in enumerate(schema[version:], start=version + 1):
            self._connection.executescript(f"BEGIN IMMEDIATE; {script}; PRAGMA user_version={number}; COMMIT;")

    def _run(self) -> None:
        job: _Job | None
        while True:
            jobs: list[_Job] = []
            job = self._jobs.get()
            while job is not None:
                jobs.append(job)
                if len(jobs) == _GROUP or self._jobs.empty():
                    break
                job = self._jobs.get()
            if jobs:
                self._commit(jobs)
            if job is None:
                return

    def _commit(self, jobs: Sequence[_Job]) -> None:
        results: list[tuple[_Job, Any, BaseException | None]] = []
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            results.extend(self._one(job) for job in jobs)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            results = [(job, None, error) for job in jobs]
        for job, result, failure in results:
            if not job.future.set_running_or_notify_cancel():
                continue  # nobody waits any more; it is committed all the same
            if failure is None:
                job.future.set_result(result)
            else:
                job.future.set_exception(failure)

    def _one(self, job: _Job) -> tuple[_Job, Any, BaseException | None]:
        self._connection.execute("SAVEPOINT job")
        try:
            result = job.work(self._connection)
        except Exception as error:  # noqa: BLE001 (whatever it is belongs to the one who asked)
            self._connection.execute("ROLLBACK TO job")
            self._connection.execute("RELEASE job")
            return job, None, error
        self._connection.execute("RELEASE job")
        return job, result, None
