"""The two embedded servers: PostgreSQL and Valkey, on loopback ports of their own."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from pathlib import Path

import psycopg
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fred.dev import binaries
from fred.dev.foreground import ForegroundServer, ServerStartError

DATABASE = "fred"
"""Name of the database and of its owner."""
INITDB_SECONDS = 120.0

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "jit": "off",
}
_FORGETFUL = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "max_wal_size": "4GB"}
"""For tests, whose data dies with them: nothing is forced to disk."""


class PostgresServer(ForegroundServer):
    """PostgreSQL 18 with one database `fred` whose owner needs a password.

    `durable` False trades the survival of a machine's crash for speed. The server listens on 127.0.0.1 only; as root
    it runs as `nobody`, because PostgreSQL refuses uid 0.
    """

    name = "postgres"
    # Fast shutdown, then immediate; SIGQUIT also on the parent's death: the whole server is gone at once, and the
    # next start recovers from the log of what was committed.
    stop_signals = ((signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))
    death_signal = signal.SIGQUIT

    def __init__(self, folder: Path, durable: bool, *, port: int | None = None) -> None:
        """Name the folder that keeps data, password and log; None as port means a free one at each start."""
        super().__init__(folder, port=port)
        self.durable = durable
        self._password = ""

    @property
    def url(self) -> str:
        """The DATABASE_URL of the database `fred`."""
        return f"postgres://{DATABASE}:{self._password}@127.0.0.1:{self.port}/{DATABASE}"

    def empty(self) -> None:
        """Drop the database with all that is in it and make it anew; the server must run."""
        with self._connect("postgres") as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
            connection.execute(f"CREATE DATABASE {DATABASE}")

    def _prepare(self) -> Path:
        private = self._private_folder()
        self._programs = binaries.reachable_postgres(self.account, private) / "bin"
        secret = self.folder / "password"
        if not (private / "data" / "PG_VERSION").exists():
            self._password = secrets.token_urlsafe(24)
            _write_private(secret, self._password)
            self._initialise(private)
        self._password = secret.read_text().strip()
        return private

    def _initialise(self, private: Path) -> None:
        """Make the cluster beside its final place and move it there whole: a cut start leaves no half of one."""
        partial, password = private / "data.partial", private / "password"
        _write_private(password, self._password)
        binaries.give(password, self.account)
        try:
            made = subprocess.run(
                [
                    self._programs / "initdb",
                    f"--pgdata={partial}",
                    f"--username={DATABASE}",
                    f"--pwfile={password}",
                    "--auth=scram-sha-256",
                    "--encoding=UTF8",
                    "--locale-provider=builtin",
                    "--builtin-locale=C.UTF-8",
                    "--locale=C",
                    *([] if self.durable else ["--no-sync", "--set=scram_iterations=1"]),
                ],
                user=None if self.account is None else self.account.uid,
                group=None if self.account is None else self.account.gid,
                extra_groups=None if self.account is None else [],
                cwd=private,
                env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=INITDB_SECONDS,
                check=False,
            )
        finally:
            password.unlink()
        if made.returncode != 0:
            message = f"initdb failed:\n{(made.stdout + made.stderr).decode(errors='replace')}"
            raise ServerStartError(message)
        partial.rename(private / "data")

    def _command(self, private: Path) -> list[str | Path]:
        settings = _SETTINGS | {"port": str(self.port)} | ({} if self.durable else _FORGETFUL)
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [self._programs / "postgres", "-D", private / "data", *options]

    def _answers(self) -> bool:
        try:
            self._connect("postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def _after_start(self) -> None:
        with self._connect("postgres") as connection:
            found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
            if found is None:
                connection.execute(f"CREATE DATABASE {DATABASE}")

    def _connect(self, database: str) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=DATABASE,
            password=self._password,
            dbname=database,
            connect_timeout=5,
            autocommit=True,
        )


class ValkeyServer(ForegroundServer):
    """Valkey 9 without persistence: it carries hints, gates and limits, never the only copy of a fact."""

    name = "valkey"
    stop_signals = ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0))
    death_signal = signal.SIGKILL

    @property
    def url(self) -> str:
        """The REDIS_URL of database 0."""
        return f"redis://:{self._password}@127.0.0.1:{self.port}/0"

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        """Name the folder that keeps password and log; None as port means a free one at each start."""
        super().__init__(folder, port=port)
        self._password = ""

    def _prepare(self) -> Path:
        private = self._private_folder()
        self._program = binaries.reachable_valkey(self.account, private)
        secret = self.folder / "password"
        if not secret.exists():
            _write_private(secret, secrets.token_urlsafe(24))
        self._password = secret.read_text().strip()
        return private

    def _command(self, private: Path) -> list[str | Path]:
        configuration = private / "valkey.conf"
        _write_private(
            configuration,
            "\n".join(
                [
                    "bind 127.0.0.1",
                    f"port {self.port}",
                    f"requirepass {self._password}",  # in a file: the command line is public
                    f'dir "{private}"',
                    'save ""',
                    "appendonly no",
                    "daemonize no",
                    "databases 64",
                    "maxmemory-policy noeviction",
                    "",
                ]
            ),
        )
        binaries.give(configuration, self.account)
        return [self._program, configuration]

    def _answers(self) -> bool:
        client = redis.Redis(
            host="127.0.0.1",
            port=self.port,
            password=self._password,
            socket_connect_timeout=2,
            socket_timeout=2,
            retry=Retry(NoBackoff(), 0),
        )
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
        finally:
            client.close()

    def _after_start(self) -> None:
        """Nothing: it keeps no data."""


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner reads; a secret never is readable in between."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
