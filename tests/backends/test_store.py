"""The agents' file: what was promised is there after a kill."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import wait

import pytest

from backends.store import SCHEMA, Store, StoreError

INSERT = "INSERT INTO provision (lease_uuid, document) VALUES (?, ?)"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent.sqlite"


@pytest.fixture
def store(path):
    opened = Store(path)
    yield opened
    opened.close()


def insert(name):
    return lambda connection: connection.execute(INSERT, (name, b"{}"))


def names(store):
    return [name for (name,) in store.rows("SELECT lease_uuid FROM provision ORDER BY 1")]


def test_a_write_returns_its_result(store):
    assert store.write(lambda connection: connection.execute("SELECT 41 + 1").fetchone()).result() == (42,)


def test_a_write_that_fails_takes_nothing_else_with_it(store):
    held = threading.Event()
    blocker = store.write(lambda _connection: held.wait(5))  # what comes now is one group

    def half(connection):
        insert("half")(connection)
        raise ValueError("no")

    futures = [store.write(insert("a")), store.write(half), store.write(insert("b")), store.write(insert("a"))]
    held.set()
    wait([blocker, *futures])
    assert isinstance(futures[1].exception(), ValueError)
    assert isinstance(futures[3].exception(), sqlite3.IntegrityError)
    assert names(store) == ["a", "b"]


def test_what_was_handed_over_is_written_before_a_close(path):
    first = Store(path)
    futures = [first.write(insert(f"{n:04}")) for n in range(2000)]
    first.close()
    first.close()
    assert all(future.done() for future in futures)
    second = Store(path)
    assert len(names(second)) == 2000
    second.close()


def test_nothing_is_taken_after_a_close(path):
    store = Store(path)
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.write(insert("x"))


def test_an_older_file_is_upgraded_and_a_newer_one_refused(path):
    Store(path, schema=SCHEMA).close()
    longer = (*SCHEMA, "CREATE TABLE extra (id INTEGER) STRICT")
    store = Store(path, schema=longer)
    assert store.rows("SELECT count(*) FROM extra") == [(0,)]
    store.close()
    with pytest.raises(StoreError, match="schema version 3"):
        Store(path, schema=SCHEMA)


def test_a_file_that_is_no_database_is_refused(path):
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(StoreError):
        Store(path)


def test_a_second_agent_on_the_same_file_is_refused(path):
    script = "import sys; from backends.store import Store; Store(sys.argv[1]); print('open')"
    first = Store(path)
    first.write(insert("a")).result()
    other = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
    assert "locked" in other.stderr
    first.close()


WRITER = """
import sys
from backends.store import Store
store = Store(sys.argv[1])
for n in range(1_000_000):
    store.write(lambda c, n=n: c.execute("INSERT INTO provision VALUES (?, x'00')", (f"{n:07}",))).result()
    print(n, flush=True)
"""


def test_what_was_promised_survives_a_kill(path):
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    promised = [int(line) for _, line in zip(range(50), writer.stdout, strict=False)]
    os.kill(writer.pid, signal.SIGKILL)
    promised.extend(int(line) for line in writer.stdout if line.endswith("\n"))
    writer.wait()
    writer.stdout.close()
    store = Store(path)
    assert len(promised) >= 50
    assert names(store)[: len(promised)] == [f"{n:07}" for n in promised]
    store.close()
