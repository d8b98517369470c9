"""The house as it is measured: everything in a folder of its own on free ports, gone afterwards."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fred import serve
from fred.bench.usage import Meter
from fred.conf.arguments import parse_seconds
from fred.dev.folder import FolderLock
from fred.dev.house import WORKERS, House
from fred.dev.options import Options
from fred.dev.ports import HOST
from fred.dev.supervisor import Child
from fred.dev.teller import Teller

CONTROL_PLANE = ("beat", "watcher", *WORKERS, "web")
"""What the floor does without."""
_REAL_APP = "fred.asgi:application"
_BARE_APP = "fred.bench.bare_receiver:app"


@dataclass(frozen=True, slots=True)
class Stage:
    """A running house and what a bench does with it."""

    house: House

    def meter(self, **more: int) -> Meter:
        """Counts what each process of the house costs, and `more` (name to process id) with them."""
        supervisor = self.house.supervisor
        roots = {child.name: child.pid for child in supervisor.children}
        roots |= {server.name: server.pid for server in supervisor.servers}
        return Meter(roots | {"bench": os.getpid()} | more)

    def set_blocks(self, blocks: str) -> None:
        """Let the chain make its blocks at once (`instant`) or at an interval such as `1s`."""
        body = {"mode": "instant"} if blocks == "instant" else {"mode": "interval", "interval": parse_seconds(blocks)}
        self.house.chain.call("/mode", body)

    def end_control_plane(self) -> None:
        """Stop everything of ours but the agent."""
        self.house.supervisor.end(*CONTROL_PLANE)

    def start_bare_receiver(self, environment: Mapping[str, str]) -> Child:
        """The bare application where the web process was, on its port, served in the same way."""
        return self.start_web("bare web", self.house.ports["api"], environment, app=_BARE_APP)

    def start_web(self, name: str, port: int, environment: Mapping[str, str], *, app: str = _REAL_APP) -> Child:
        """A web process more, with more settings, or another application served in its way."""
        provider = self.house.environments.provider(self.house.inhabitants)
        variables = {**provider, **environment, "PROVIDER_API_LISTEN_ADDR": f"{HOST}:{port}"}
        command = [app if word == _REAL_APP else word for word in serve.command_of("web", variables)]
        return self.start(name, command, variables)

    def start(self, name: str, command: list[str], environment: Mapping[str, str]) -> Child:
        """Start a program beside the house; it ends with it."""
        log = self.house.options.folder / "logs" / f"{name}.log"
        return self.house.supervisor.start(Child(name, command, environment, log))

    @property
    def callback_base(self) -> str:
        """Where the house listens for callbacks."""
        return self.house.url("api")


@contextmanager
def opened(teller: Teller, *, wait_s: float, environment: Mapping[str, str] = os.environ) -> Iterator[Stage]:
    """Start a house in a temporary folder; stop everything and delete it at the end.

    A `DATABASE_URL` and a `REDIS_URL` in `environment` are used instead of servers of its own; the database must hold
    no leases. Raises what `fred.dev.run.PROBLEMS` lists.
    """
    with tempfile.TemporaryDirectory(prefix="fred-bench-", ignore_cleanup_errors=True) as name:
        options = Options(
            folder=Path(name),
            plain=True,
            free_ports=True,
            wait_s=wait_s,
            database_url=environment.get("DATABASE_URL", ""),
            redis_url=environment.get("REDIS_URL", ""),
        )
        options.folder.chmod(0o711)  # the servers' account has to reach its data
        with FolderLock(options.folder), House(options, teller) as house:
            house.start()
            yield Stage(house)


def grpc_endpoint(house: House) -> str:
    """Where the chain answers queries."""
    return f"{HOST}:{house.ports['chain-grpc']}"


def websocket_url(house: House) -> str:
    """Where the chain tells what happens."""
    return f"ws://{HOST}:{house.ports['chain-rpc']}/websocket"
