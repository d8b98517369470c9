"""The whole house for tests: a simulated chain in this process, all else in processes of their own that can be killed.

PostgreSQL, Valkey, the chain and the agents live as long as the stack. The control plane's processes come either from
the nursery (forks, up in milliseconds, workers without a broker) or as the commands that `fred.serve` starts.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import psycopg

from fred import http, serve
from fred.curl import Request
from fred.dev import children
from fred.dev.foreground import free_port
from fred.dev.servers import PostgresServer, ValkeyServer
from leases.chain.devchain import running
from tests.e2e.forks import ROOT, UP_S, Nursery
from tests.services import OURS
from tests.waiting import wait_until

BLOCK_S = 0.4
GOOD, FAILING, REFUSING, SLOW = "docker-micro", "docker-small", "docker-medium", "docker-large"
"""What becomes of a lease is chosen by its SKU: the backend that has it does well, fails, refuses, or takes an hour."""
AGENTS: Sequence[dict[str, Any]] = (
    {"name": "good-1", "sku": GOOD},
    {"name": "good-2", "sku": GOOD},
    {"name": "failing", "sku": FAILING, "fail_ratio": 1.0},
    {"name": "refusing", "sku": REFUSING, "refuse": True},
    {"name": "slow", "sku": SLOW, "delay_s": 3600},
)
PENDING, ACTIVE, CLOSED, REJECTED = 1, 2, 3, 4


class Stack:
    """Everything, started by `start`, ended by `stop`."""

    def __init__(self, agents: Sequence[dict[str, Any]] = AGENTS) -> None:
        self.agents = agents
        self.folder = Path(tempfile.mkdtemp(prefix="fred-e2e-"))
        # Durable: a restart in the middle must keep what was committed.
        self.postgres = PostgresServer(self.folder / "postgres", durable=True)
        self.valkey = ValkeyServer(self.folder / "valkey")
        self.secret = secrets.token_urlsafe(40)
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self._connection: psycopg.Connection[Any] | None = None

    def start(self) -> None:
        self.postgres.start()
        self.valkey.start()
        self.chain = running.start(block_mode="interval", block_interval=BLOCK_S)
        self.skus = self.chain.skus()
        self.tenant = self.chain.keys["tenant"].address
        self.ports = {name: free_port() for name in ("api", *(agent["name"] for agent in self.agents))}
        for name in ("metrics", "agents"):
            (self.folder / name).mkdir()
        self._write_environments()
        self.run("migrate", "--no-input", "--skip-checks")
        self.start_agents()
        self.run("backends", "sync")
        self.nursery = Nursery(self.folder / "nursery.log", self.signing)

    def stop(self) -> None:
        nursery = getattr(self, "nursery", None)
        if nursery is not None:
            nursery.stop()
        for name in list(self.children):
            self.kill(name)
        if self._connection is not None:
            self._connection.close()
        if hasattr(self, "chain"):
            running.stop(self.chain)
        self.valkey.stop()
        self.postgres.stop()
        self.valkey.wipe()
        self.postgres.wipe()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write_environments(self) -> None:
        plain = {name: value for name, value in os.environ.items() if not name.startswith((*OURS, "DATABASE", "REDIS"))}
        plain |= {"DJANGO_SETTINGS_MODULE": "fred.settings", "PYTHONUNBUFFERED": "1", "FRED_LOG_FORMAT": "text"}
        self.notes = self.folder / "notes"
        self.agents_environment = plain | {
            "AGENT_SECRET": self.secret, "AGENT_FOLDER": str(self.folder / "agents"), "AGENT_NOTES": str(self.notes),
        }  # fmt: skip
        keys = self.chain.keys
        self.provider = plain | {
            "DATABASE_URL": self.postgres.url,
            "REDIS_URL": self.valkey.url,
            "CELERY_BROKER_URL": self.valkey.url,
            "DJANGO_SECRET_KEY": secrets.token_urlsafe(50),
            "PROMETHEUS_MULTIPROC_DIR": str(self.folder / "metrics"),
            "PROVIDER_PROVIDER_UUID": self.chain.provider_uuid,
            "PROVIDER_PROVIDER_ADDRESS": keys["provider"].address,
            "PROVIDER_CHAIN_ID": self.chain.chain_id,
            "PROVIDER_GRPC_ENDPOINT": self.chain.grpc,
            "PROVIDER_WEBSOCKET_URL": self.chain.websocket,
            "PROVIDER_WEBSOCKET_RECONNECT_MAX": "2s",
            "PROVIDER_KEYRING_BACKEND": "env",
            "PROVIDER_KEYRING_DIR": str(self.folder),
            "PROVIDER_KEY_NAME": "provider",
            "PROVIDER_API_LISTEN_ADDR": f"127.0.0.1:{self.ports['api']}",
            "PROVIDER_CALLBACK_BASE_URL": f"http://127.0.0.1:{self.ports['api']}",
            "PROVIDER_CALLBACK_SECRET": self.secret,
            "PROVIDER_SHUTDOWN_TIMEOUT": "5s",
            "PROVIDER_RATE_LIMIT_RPS": "10000",
            "PROVIDER_RATE_LIMIT_BURST": "10000",
            "PROVIDER_BACKENDS": json.dumps(self.backends()),
        }
        self.signing = self.provider | {"FRED_SIGNER_PRIVATE_KEY": keys["provider"].private_key_hex}

    def backends(self) -> list[dict[str, Any]]:
        """The list of backends of the configuration. A short limit for calls: tests of silence wait for it."""
        return [
            {"name": agent["name"], "url": f"http://127.0.0.1:{self.ports[agent['name']]}", "contract": "v0_13",
             "skus": [self.skus[agent["sku"]]], "timeout": "10s"} for agent in self.agents
        ]  # fmt: skip

    # --- processes -------------------------------------------------------------

    def spawn(self, name: str, command: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        """Start a process under a name that is free."""
        assert name not in self.children, f"{name} runs"
        log = self.folder / f"{name}.log"
        log.unlink(missing_ok=True)
        self.children[name] = children.spawn(command, log, environment=environment, folder=ROOT)
        return self.children[name]

    def run(self, *words: str) -> None:
        """Run a command of manage.py to its end."""
        done = subprocess.run(
            [sys.executable, "manage.py", *words], cwd=ROOT, env=self.provider, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def kill(self, *names: str) -> None:
        """SIGKILL to the whole process group of each."""
        killed = [self.children.pop(name) for name in names if name in self.children]
        for process in killed:
            children.kill_group(process.pid)
        for process in killed:
            process.wait(10)

    def died(self, name: str) -> bool:
        """Whether the process met its point."""
        return self.children[name].poll() is not None

    def start_agents(self) -> None:
        specs = [{**agent, "port": self.ports[agent["name"]]} for agent in self.agents]
        self.spawn("agents", [sys.executable, "-m", "tests.e2e.agent", json.dumps(specs)], self.agents_environment)
        self.wait_for_port(self.agents[0]["name"], "/health")

    def fork_web(self, points: str = "-") -> int:
        """A web process of the nursery; returns when it answers.

        One that dies at its point of what an agent still had to say of an earlier lease is started again.
        """
        pid = self.nursery.start("web", points)

        def is_up_or_dead() -> bool:
            return self.nursery.died(pid) or self.get("api", "/health").status == 200

        wait_until(is_up_or_dead, timeout=UP_S, message="api to answer")
        return self.fork_web(points) if self.nursery.died(pid) else pid

    def start_web(self) -> None:
        """The web process as it is served; returns when it answers."""
        self.spawn("web", serve.command_of("web", self.provider), self.provider)
        self.wait_for_port("api", "/health")

    def wait_for_port(self, name: str, path: str) -> None:
        wait_until(lambda: self.get(name, path).status == 200, timeout=UP_S, message=f"{name} to answer")

    def start_celery(
        self, *, workers: Iterable[tuple[str, Sequence[str]]], points: str = "", beat: bool = True
    ) -> None:
        """Workers of these names and queues and the clock, as `fred.serve` starts them; returns once they answer."""
        names = []
        for name, queues in workers:
            environment = (self.signing if "chain" in queues else self.provider) | {"FRED_CRASH_AT": points}
            command = serve.worker_command(queues)
            command[command.index("--hostname") + 1] = f"{name}@%h"
            self.spawn(name, [*command, "--concurrency=1", "--loglevel=INFO"], environment)
            names.append(name)
        if beat and "beat" not in self.children:
            self.spawn("beat", serve.command_of("beat", self.provider), self.provider)
        for name in names:
            log = self.folder / f"{name}.log"
            wait_until(lambda log=log: b" ready." in log.read_bytes(), timeout=UP_S, message=f"{name} to be ready")

    def once(self, kind: str) -> None:
        """Run a `probe` of everybody's health, or the `sweep`s that are due, to the end."""
        pid = self.nursery.start(kind)
        wait_until(lambda: pid in self.nursery.ended, timeout=60, message=f"the end of a {kind}")
        assert self.nursery.ended[pid] == 0, f"the {kind} failed: see nursery.log"

    # --- questions -------------------------------------------------------------

    def get(self, name: str, path: str, **how: Any) -> Any:
        url = f"http://127.0.0.1:{self.ports[name]}{path}"
        return http.fetch(Request(url, timeout=20.0, connect_timeout=5.0, **how))

    def hold(self, order: str, *, held: bool) -> None:
        """Hold the answers of all agents to this order, or let them go."""
        for agent in self.agents:
            verb = "hold" if held else "release"
            assert self.get(agent["name"], f"/test/{verb}{order}").status == 200

    def complaints(self) -> dict[str, str]:
        """What `/readyz` finds wrong; raises when nobody answers."""
        body = json.loads(self.get("api", "/readyz").body)
        return {name: one.get("message", "") for name, one in body["checks"].items() if one["status"] != "healthy"}

    def sql(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Rows of a statement; a broken connection is made anew once."""
        for _ in range(2):
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(self.postgres.url, autocommit=True, connect_timeout=5)
            try:
                cursor = self._connection.execute(statement, parameters or None)
                return cursor.fetchall() if cursor.description else []
            except psycopg.OperationalError:
                self._connection.close()
        raise AssertionError("the database does not answer")

    def one(self, statement: str, *parameters: object) -> Any:
        return self.sql(statement, *parameters)[0][0]

    def orders(self, path: str | None, leases: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """What the agents were asked, in order; without a path all of it."""
        wanted = None if leases is None else set(leases)
        notes = [json.loads(line) for line in self.notes.read_bytes().splitlines()] if self.notes.exists() else []
        return [one for one in notes if path in (None, one["path"]) and (wanted is None or one["lease"] in wanted)]

    def verbs(self, lease: str) -> list[str]:
        """What the provider got included on chain for this lease: `acknowledge`, `reject`, `close`."""
        names = {"MsgAcknowledgeLease": "acknowledge", "MsgRejectLease": "reject", "MsgCloseLease": "close"}
        found = []
        for result in self.chain.txs():
            if result.code or result.tx.trusted:
                continue
            for url, message in result.tx.messages:
                if lease in getattr(message, "lease_uuids", ()):
                    found.append(names[url.rsplit(".", 1)[-1]])
        return found

    # --- leases ----------------------------------------------------------------

    def create(self, sku: str, number: int = 1, **how: Any) -> list[str]:
        """New leases of one tenant, all in one block."""
        return self.chain.create_leases(number, tenant=self.tenant, sku=self.skus[sku], **how)

    def close(self, leases: Sequence[str]) -> None:
        """Their tenant closes them, all in one block."""
        self.chain.close_leases(leases, sender=self.tenant)

    def unsettled(self, leases: Sequence[str]) -> list[tuple[Any, ...]]:
        """Those of these leases for which something is still to do, or which nobody knows yet."""
        return self.sql(
            """
            SELECT u.uuid, l.phase, l.reason, l.chain_state, l.due_at - now() FROM unnest(%s::uuid[]) AS u(uuid)
              LEFT JOIN leases_lease AS l ON l.uuid = u.uuid
             WHERE l.due_at IS NOT NULL OR l.looked_at IS NULL
                OR EXISTS (SELECT FROM placements_operation AS o WHERE o.lease_uuid = u.uuid AND o.settled_at IS NULL)
                OR EXISTS (SELECT FROM leases_chainaction AS a
                            WHERE a.lease_uuid = u.uuid AND a.state IN ('queued', 'in_tx'))
                OR EXISTS (SELECT FROM placements_teardown AS t WHERE t.lease_uuid = u.uuid AND t.state <> 'done')
            """,
            list(leases),
        )

    def phases(self, leases: Sequence[str]) -> set[str]:
        return {row[0] for row in self.sql("SELECT phase FROM leases_lease WHERE uuid = ANY(%s::uuid[])", list(leases))}

    def wait_until_settled(self, leases: Sequence[str], phase: str, *, timeout: float) -> float:
        """Wait until nothing is left to do for these leases and all are in this phase; return the seconds it took."""
        began = time.monotonic()
        try:
            wait_until(lambda: not self.unsettled(leases) and self.phases(leases) == {phase}, timeout=timeout)
        except AssertionError:
            left = [self.story(lease) for lease in leases if self.unsettled([lease]) or self.phases([lease]) != {phase}]
            raise AssertionError(
                f"{len(left)} of {len(leases)} leases not {phase} within {timeout} s:\n" + "\n".join(left[:3])
            ) from None
        return time.monotonic() - began

    def story(self, lease: str) -> str:
        """All that is known of a lease, for the message of a failed test."""
        tables = {
            "leases_lease": "uuid", "placements_operation": "lease_uuid", "leases_chainaction": "lease_uuid",
            "placements_teardown": "lease_uuid", "placements_callback": "lease_uuid",
            "leases_statusevent": "lease_uuid", "reconciliation_decisionrecord": "lease_uuid",
        }  # fmt: skip
        lines = [f"lease {lease}"]
        for table, key in tables.items():
            found = self.sql(f"SELECT to_jsonb(t) FROM {table} AS t WHERE {key} = %s ORDER BY t", lease)
            lines += [f"  {table} {json.dumps(row[0], default=str)}" for row in found]
        lines += [f"  agent {one}" for one in self.orders(None, [lease])]
        return "\n".join([*lines, f"  chain {self.chain.lease(lease)} {self.verbs(lease)}"])

    def ending(self, lease: str) -> dict[str, Any]:
        """Where a lease stands: the same for all that had the same fate, however they came there."""

        def all_of(statement: str) -> list[tuple[Any, ...]]:
            return sorted(self.sql(statement, lease))

        return {
            "chain": self.chain.state_of(lease),
            "lease": all_of("SELECT phase, reason, chain_state FROM leases_lease WHERE uuid = %s"),
            "operations": all_of(
                "SELECT state, refusal, error, settled_at IS NOT NULL FROM placements_operation WHERE lease_uuid = %s"
            ),
            "placement": all_of("SELECT status, lifecycle_id IS NULL FROM placements_placement WHERE lease_uuid = %s"),
            "actions": all_of("SELECT verb, state, reason FROM leases_chainaction WHERE lease_uuid = %s"),
            "teardowns": all_of("SELECT state, cause FROM placements_teardown WHERE lease_uuid = %s"),
            "events": all_of("SELECT status, error FROM leases_statusevent WHERE lease_uuid = %s"),
            "verbs": self.verbs(lease),
            "accepted": sum(one["status"] == 202 for one in self.orders("/provision", [lease])),
        }

    def assert_nothing_twice(self, leases: Iterable[str]) -> None:
        """Accepted provisions per operation at most one; one backend per lease; never both ack and reject on chain."""
        for lease in leases:
            accepted = [one for one in self.orders("/provision", [lease]) if one["status"] == 202]
            operations = [one["operation"] for one in accepted]
            assert len(set(operations)) == len(operations), self.story(lease)
            assert len({one["backend"] for one in accepted}) <= 1, self.story(lease)
            verbs = self.verbs(lease)
            assert len(set(verbs)) == len(verbs), self.story(lease)
            assert not {"acknowledge", "reject"} <= set(verbs), self.story(lease)

    def tail(self) -> str:
        """The ends of all logs."""
        return "\n".join(f"== {log.name}\n{children.tail(log, lines=12)}" for log in sorted(self.folder.glob("*.log")))
