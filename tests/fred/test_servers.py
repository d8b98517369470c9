"""The embedded servers live exactly as long as they are wanted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import psycopg
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fred.dev import binaries
from fred.dev.folder import FolderInUseError, FolderLock
from fred.dev.foreground import ServerStartError
from fred.dev.servers import PostgresServer, ValkeyServer
from tests.waiting import wait_until

PARENT = """
import signal, sys
from pathlib import Path
from fred.dev.servers import PostgresServer, ValkeyServer
folder = Path(sys.argv[1])
with PostgresServer(folder / "postgres", durable=False) as postgres, ValkeyServer(folder / "valkey") as valkey:
    print(postgres.pid, valkey.pid, flush=True)
    signal.pause()
"""


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped doesn't."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_postgres_keeps_its_data_and_password_over_a_restart(tmp_path: Path):
    server = PostgresServer(tmp_path / "postgres", durable=True)
    with server:
        first = server.url
        with psycopg.connect(first, autocommit=True) as connection:
            connection.execute("CREATE TABLE kept (id int)")
            assert connection.execute("SHOW fsync").fetchone() == ("on",)
    with server, psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
        assert server.url.split("@")[0] == first.split("@")[0]
    server.wipe()
    assert not (tmp_path / "postgres").exists()


def test_postgres_refuses_a_caller_without_the_password(tmp_path: Path):
    with PostgresServer(tmp_path / "postgres", durable=False) as server:
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(host="127.0.0.1", port=server.port, user="fred", password="wrong", dbname="fred")
        with psycopg.connect(server.url) as connection:
            assert connection.execute("SHOW fsync").fetchone() == ("off",)
    server.wipe()


def test_valkey_answers_its_password_only(tmp_path: Path):
    with ValkeyServer(tmp_path / "valkey") as server:
        client = redis.Redis.from_url(server.url)
        assert client.ping()
        client.close()
        stranger = redis.Redis(host="127.0.0.1", port=server.port, retry=Retry(NoBackoff(), 0))
        with pytest.raises(redis.AuthenticationError):
            stranger.ping()
        stranger.close()
    server.wipe()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_a_killed_parent_leaves_no_server_behind(tmp_path: Path, number: signal.Signals):
    parent = subprocess.Popen([sys.executable, "-c", PARENT, tmp_path], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        servers = [psutil.Process(pid) for pid in pids]
        family = [*servers, *(child for server in servers for child in server.children(recursive=True))]
        assert len(family) > 4  # PostgreSQL's own processes too
        parent.send_signal(number)
        parent.wait()
    wait_until(lambda: not any(alive(process.pid) for process in family), message="servers end with their parent")
    PostgresServer(tmp_path / "postgres", durable=False).wipe()
    ValkeyServer(tmp_path / "valkey").wipe()


def test_a_folder_has_one_user_at_a_time(tmp_path: Path):
    with FolderLock(tmp_path / ".dev"), pytest.raises(FolderInUseError, match=str(os.getpid())):
        FolderLock(tmp_path / ".dev").__enter__()
    with FolderLock(tmp_path / ".dev"):
        pass


def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path):
    with ValkeyServer(tmp_path / "first") as taken:
        second = ValkeyServer(tmp_path / "second", port=taken.port)
        with pytest.raises(ServerStartError, match="Address already in use"):
            second.start()
    taken.wipe()
    second.wipe()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs servers as somebody else")
def test_as_root_below_a_closed_folder_programs_are_copied_to_where_nobody_can_run_them(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(binaries, "can_enter", lambda *_: False)
    postgres = PostgresServer(tmp_path / "postgres", durable=False)
    valkey = ValkeyServer(tmp_path / "valkey")
    with postgres, valkey:
        for server in (postgres, valkey):
            process = psutil.Process(server.pid)
            assert process.username() == "nobody"
            assert Path(process.exe()).is_relative_to(tempfile.gettempdir())
        private = [Path((server.folder / "elsewhere").read_text()) for server in (postgres, valkey)]
        assert [folder.stat().st_mode & 0o777 for folder in private] == [0o700, 0o700]
        with psycopg.connect(postgres.url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    postgres.wipe()
    valkey.wipe()
    assert not any(folder.exists() for folder in private)
