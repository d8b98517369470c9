"""The whole house on one machine: services, simulated chain, agent, control plane."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson
import psycopg
from celery import Celery
from kombu.exceptions import OperationalError

from fred import http, serve
from fred.curl import Request
from fred.dev import children, ports
from fred.dev.chain_admin import ChainAdmin, Inhabitants
from fred.dev.environment import Environments
from fred.dev.options import ROOT, Options
from fred.dev.ports import Claims
from fred.dev.servers import PostgresServer, ValkeyServer
from fred.dev.supervisor import Child, ChildDiedError, Supervisor
from fred.dev.teller import Teller
from fred.dev.vault import Vault, write_private

POLL_S = 0.05
MIGRATE_S = 120.0
WORKERS = {"worker-1": ("lifecycle", "dispatch"), "worker-2": ("chain", "sweep")}
"""Small hosts run two workers with two queues each; only the one that signs gets the key."""
WORKER_ANSWER_S = 0.5
TENANT_MNEMONIC = "tenant.mnemonic"
CHAIN = "devchain"


class HouseError(RuntimeError):
    """The house could not be brought where it was wanted; the message says where it stands."""


@dataclass(slots=True)
class House:
    """Starts everything in an order in which each part finds what it needs; stops it in the reverse order."""

    options: Options
    teller: Teller
    ports: Mapping[str, int] = field(init=False)
    supervisor: Supervisor = field(init=False)
    vault: Vault = field(init=False)
    environments: Environments = field(init=False)
    chain: ChainAdmin = field(init=False)
    inhabitants: Inhabitants = field(init=False)
    _pause: threading.Event = field(default_factory=threading.Event)
    _claims: Claims = field(default_factory=Claims)
    _is_up: bool = False

    def __enter__(self) -> Self:
        """Prepare the folder; nothing runs yet. The caller holds the folder's lock."""
        folder = self.options.folder
        try:
            self.ports = ports.choose(self.options.wanted, free=self.options.free_ports, claims=self._claims)
            if self.options.fresh:
                self._wipe()
            for name in ("logs", "metrics", "agent"):
                (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
            self.vault = Vault.open(folder / "secrets.json")
            self.supervisor = Supervisor(ROOT).__enter__()
        except BaseException:
            self._claims.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything that was started here; at once when whoever started this was killed, for nobody waits."""
        parent = self.options.parent
        if parent is not None and not children.descends_from(parent):
            self.supervisor.patience_s = 0.0
        try:
            self.teller.step("stopping")
        finally:  # whoever listened may be gone
            self.supervisor.__exit__(kind, error, trace)
            self._claims.close()

    def start(self) -> None:
        """Bring everything up; return when the control plane says that it is not unhealthy."""
        self._start_services()
        self._start_chain()
        self._start_control_plane()

    def wait_for(
        self, met: Callable[[], bool], what: str, *, seconds: float, where: Callable[[], str] = lambda: ""
    ) -> None:
        """Look after the children until `met`; raises HouseError with `where` it stands when that takes too long."""
        self.teller.step(what)
        until = time.monotonic() + seconds
        while not met():
            if time.monotonic() > until:
                raise HouseError(f"{what}: not within {seconds:g} s. {where()}".rstrip())
            self.look_after()
            self._pause.wait(POLL_S)

    def look_after(self) -> None:
        """Restart what ended and tell about it.

        While the house starts, an end may mean that somebody else took a port after it was found free: then no restart
        helps, and PortTakenError is raised.
        """
        try:
            self.supervisor.poll()
        except ChildDiedError:
            if not self._is_up:
                ports.refuse_taken(self.ports)
                self._refuse_unheld()
            raise
        if self.supervisor.notes and not self._is_up:
            ports.refuse_taken(self.ports)
        while self.supervisor.notes:
            self.teller.note(self.supervisor.notes.pop(0))

    def readiness(self) -> dict[str, Any]:
        """The body of `/readyz`; empty while nobody answers."""
        answer = http.fetch(Request(self.url("api", "/readyz"), timeout=5.0, connect_timeout=1.0))
        if answer.error is not None or not answer.body:
            return {}
        body: dict[str, Any] = orjson.loads(answer.body)
        return body

    def url(self, listener: str, path: str = "") -> str:
        """A URL of one of our own listeners."""
        return f"http://{ports.HOST}:{self.ports[listener]}{path}"

    def _start_services(self) -> None:
        folder, given = self.options.folder, self.options
        self.teller.step("starting the database and the broker")
        database_url, redis_url = given.database_url, given.redis_url
        if database_url:
            _refuse_foreign_data(database_url, fresh=given.fresh)
        else:
            postgres = PostgresServer(folder / "postgres", durable=True)
            self.supervisor.serve(postgres)
            # The simulated chain starts anew each time: rows about the last one would speak of leases that never were.
            postgres.empty()
            database_url = postgres.url
        if not redis_url:
            valkey = ValkeyServer(folder / "valkey")
            self.supervisor.serve(valkey)
            redis_url = valkey.url
        # Celery takes this variable before any address it is given: the caller's would win over this house's.
        os.environ["CELERY_BROKER_URL"] = redis_url
        shutil.rmtree(folder / "agent", ignore_errors=True)
        shutil.rmtree(folder / "metrics", ignore_errors=True)
        (folder / "agent").mkdir(mode=0o700)
        (folder / "metrics").mkdir(mode=0o700)
        self.environments = Environments(folder, self.ports, self.vault, database_url, redis_url)

    def _start_chain(self) -> None:
        self.teller.step("starting the simulated chain")
        ready = self.spawn_chain()
        migrate = self._manage(
            "migrate", "migrate", "--no-input", "--skip-checks", environment=self.environments.services()
        )
        self.teller.step("making the tables")
        self.supervisor.run(migrate, seconds=MIGRATE_S)
        self.wait_for(ready.exists, "waiting for the simulated chain", seconds=self.options.wait_s)
        self.chain = ChainAdmin(self.ports["chain-admin"])
        self.inhabitants = self.chain.inhabitants()
        write_private(self.options.folder / TENANT_MNEMONIC, self.inhabitants.tenant.mnemonic + "\n")

    def _start_control_plane(self) -> None:
        environments, who = self.environments, self.inhabitants
        provider, signing = environments.provider(who), environments.signing(who)
        self.teller.step("starting the control plane")
        # Whoever takes callbacks starts before whoever may call back.
        self.supervisor.start(self._serve("web", provider))
        self.supervisor.run(self._manage("backends", "backends", "sync", environment=provider), seconds=MIGRATE_S)
        agent = self._manage("agent", "backend_agent", "mock", environment=environments.agent())
        watcher = self._manage("watcher", "watch_chain", environment=provider)
        for child in (
            agent,
            watcher,
            *(
                self._worker(name, queues, signing if "chain" in queues else provider)
                for name, queues in WORKERS.items()
            ),
            self._serve("beat", provider, f"--schedule={self.options.folder / 'beat'}"),
        ):
            self.supervisor.start(child)
        self.wait_for(
            lambda: self.readiness().get("status") in {"healthy", "degraded"},
            "waiting for the control plane",
            seconds=self.options.wait_s,
            where=self.unhealthy,
        )
        self.wait_for(
            lambda: self.workers() >= len(WORKERS),
            "waiting for the workers",
            seconds=self.options.wait_s,
            where=lambda: f"logs are in {self.options.folder / 'logs'}",
        )

    def spawn_chain(self) -> Path:
        """Start the simulated chain; return the file that is there once it serves."""
        ready = self.options.folder / "devchain.json"
        ready.unlink(missing_ok=True)
        arguments = [f"--{name}-port={self.ports['chain-' + name]}" for name in ("grpc", "rpc", "rest", "admin")]
        chain = self._manage(
            CHAIN,
            "devchain",
            *arguments,
            f"--block-interval={self.options.block_interval_s:g}",
            f"--ready-file={ready}",
            environment=self.environments.plain(),
        )
        chain.vital = True  # its blocks live in its memory
        self.supervisor.start(chain)
        return ready

    def workers(self) -> int:
        """How many workers answer over the broker."""
        try:
            with Celery("dev", broker=self.environments.redis_url, set_as_current=False) as asking:
                return len(asking.control.ping(timeout=WORKER_ANSWER_S) or ())
        except OperationalError:
            return 0

    def open_admin(self) -> None:
        """Start the admin site and wait until it answers; last, because nobody else waits for it."""
        self.supervisor.start(self._serve("admin", self.environments.admin(self.inhabitants)))
        self.wait_for(
            lambda: http.fetch(Request(self.url("admin", "/admin/login/"), timeout=5.0)).status == 200,
            "waiting for the admin site",
            seconds=self.options.wait_s,
        )
        self._is_up = True

    def _refuse_unheld(self) -> None:
        """Raise PortTakenError when the chain said that a port was taken, though nobody listens there any more."""
        if any(child.name == CHAIN and child.exit_status == os.EX_UNAVAILABLE for child in self.supervisor.children):
            raise ports.PortTakenError(
                "a port of the simulated chain was taken by another program while it started, and is free again: "
                "start once more, or let --free-ports choose all of them"
            )

    def unhealthy(self) -> str:
        """What `/readyz` complains about, for a message."""
        checks = self.readiness().get("checks", {})
        bad = [f"{name}: {check.get('message', '?')}" for name, check in checks.items() if check["status"] != "healthy"]
        return f"/readyz says: {', '.join(bad) or 'nothing'}; logs are in {self.options.folder / 'logs'}"

    def _manage(self, name: str, *words: str, environment: Mapping[str, str]) -> Child:
        return self._child(name, [sys.executable, str(ROOT / "manage.py"), *words], environment)

    def _serve(self, process: str, environment: Mapping[str, str], *words: str) -> Child:
        return self._child(process, [*serve.command_of(process, environment), *words], environment)

    def _worker(self, name: str, queues: Sequence[str], environment: Mapping[str, str]) -> Child:
        return self._child(name, [*serve.worker_command(queues), "--concurrency=2", "--loglevel=INFO"], environment)

    def _child(self, name: str, command: list[str], environment: Mapping[str, str]) -> Child:
        log = self.options.folder / "logs" / f"{name}.log"
        if log.exists():
            log.replace(log.with_suffix(".log.1"))
        return Child(name, command, environment, log)

    def _wipe(self) -> None:
        folder = self.options.folder
        PostgresServer(folder / "postgres", durable=True).wipe()
        ValkeyServer(folder / "valkey").wipe()
        for entry in folder.iterdir():
            if entry.name == "lock":
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()


def _refuse_foreign_data(database_url: str, *, fresh: bool) -> None:
    """A database that was given must hold no leases of another chain; with `fresh` its schema `public` is made anew."""
    try:
        given = psycopg.connect(database_url, autocommit=True, connect_timeout=5)
    except psycopg.Error as error:
        raise HouseError(f"the database of DATABASE_URL does not answer: {error}") from error
    with given as connection:
        found = connection.execute("SELECT to_regclass('leases_lease') IS NOT NULL").fetchone()
        if not found or not found[0]:
            return
        if fresh:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
            return
        leases = connection.execute("SELECT 1 FROM leases_lease LIMIT 1").fetchone()
    if leases is not None:
        raise HouseError(
            "the database of DATABASE_URL holds leases of another chain; give an empty one, or let --fresh drop "
            "its schema `public`"
        )
