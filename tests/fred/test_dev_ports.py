"""Ports of a house: whoever else has one is named, also when it was taken after the choice."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from fred.dev import ports
from fred.dev.environment import Environments
from fred.dev.house import House
from fred.dev.options import Options
from fred.dev.ports import Claims, PortTakenError
from fred.dev.servers import PostgresServer, ValkeyServer
from fred.dev.supervisor import Child, Supervisor
from fred.dev.teller import Teller
from fred.dev.vault import Vault
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
STRANGER = """
import os, signal, socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
if (child := os.fork()):
    print(child, flush=True)
    os._exit(0)
os.close(1)
signal.pause()
"""
CLAIM = """
import sys
from fred.dev.ports import Claims
claims = Claims()
print(all([claims.take(int(port)) for port in sys.argv[1:]]), flush=True)
sys.stdin.read()
"""


@contextmanager
def stranger(port: int) -> Iterator[int]:
    """Somebody who is no child of ours listens on this port; its process id."""
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, str(port)], stdout=subprocess.PIPE, text=True, check=True, timeout=30
    )
    pid = int(done.stdout)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)


@contextmanager
def other_house(*claimed: int) -> Iterator[int]:
    """Another process has the claims of these ports; its process id."""
    with subprocess.Popen(
        [sys.executable, "-c", CLAIM, *map(str, claimed)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        yield process.pid


@contextmanager
def house(tmp_path: Path, **options) -> Iterator[House]:
    """A house with its ports, whose services are never started."""
    teller = Teller(Console(force_terminal=False))
    with House(Options(folder=tmp_path, free_ports=True, plain=True, **options), teller) as made:
        made.environments = Environments(
            tmp_path, made.ports, made.vault, "postgres://nobody@127.0.0.1:1/x", "redis://b"
        )
        yield made


def test_taken_ports_are_named_with_their_options_and_holders():
    with socket.socket() as first, socket.socket() as second:
        for one in (first, second):
            one.bind(("127.0.0.1", 0))
            one.listen()
        api, chain = first.getsockname()[1], second.getsockname()[1]
        with pytest.raises(ports.PortTakenError) as told:
            ports.choose({"api": api, "chain-rpc": chain}, free=True)
    assert f"{api} (tenant API) is taken" in str(told.value)
    assert "--api-port PORT" in str(told.value)
    assert f"(process {os.getpid()})" in str(told.value)
    assert f"{chain} (simulated chain, RPC and WebSocket) is taken" in str(told.value)


def test_free_ports_are_all_different():
    chosen = ports.choose({}, free=True)
    assert set(chosen) == {listener.name for listener in ports.LISTENERS}
    assert len(set(chosen.values())) == len(chosen)


def test_a_free_port_is_never_one_that_was_named():
    wanted = ports.choose({}, free=True)["admin"]
    assert ports.choose({"admin": wanted}, free=True)["admin"] == wanted


def test_one_port_for_two_is_refused():
    port = ports.choose({}, free=True)["api"]
    with pytest.raises(
        PortTakenError, match=rf"{port} \(admin site\) is also that of the tenant API.*--admin-port PORT"
    ):
        ports.choose({"api": port, "admin": port}, free=True)


def test_a_port_of_another_house_is_taken_before_anybody_listens_there():
    port = ports.choose({}, free=True)["api"]
    with Claims() as ours:
        with other_house(port) as pid, pytest.raises(PortTakenError) as told:
            ports.choose({"api": port}, free=True, claims=ours)
        assert f"  {port} (tenant API) is taken by another `dev` (process {pid}); choose another: --api-port" in str(
            told.value
        )
        assert "or let --free-ports choose all of them" in str(told.value)
        assert ports.choose({"api": port}, free=True, claims=ours)["api"] == port, "the other has ended"


def test_all_ports_that_another_house_has_claimed_are_named_also_those_where_nobody_listens_yet():
    wanted = ports.choose({}, free=True)
    with Claims() as ours, other_house(*wanted.values()), pytest.raises(PortTakenError) as told:
        ports.choose(wanted, free=False, claims=ours)
    for listener in ports.LISTENERS:
        assert f"  {wanted[listener.name]} ({listener.meaning}) is taken by another `dev`" in str(told.value)
    with Claims() as ours, Claims() as third, other_house(first := wanted[ports.LISTENERS[0].name]):
        with pytest.raises(PortTakenError):
            ports.choose(wanted, free=False, claims=ours)
        assert all(third.take(port) for port in wanted.values() if port != first), "who is refused claims nothing"


def test_of_three_that_choose_the_same_ports_at_once_one_gets_them(run_in_threads):
    wanted = ports.choose({}, free=True)
    claims = [Claims(), Claims(), Claims()]

    def choose() -> bool:
        try:
            ports.choose(wanted, free=False, claims=(mine := claims.pop()))
        except PortTakenError:
            mine.close()
            return False
        held.append(mine)
        return True

    held: list[Claims] = []
    assert sum(run_in_threads(3, choose)) == 1
    for one in held:
        one.close()


def refuse(*_: object) -> None:
    """Stand for a step of the host that fails."""
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("owner", "step"),
    [
        pytest.param(ports, "_bind_error", id="the choice of ports"),
        pytest.param(House, "_wipe", id="the wiping of the folder"),
        pytest.param(Vault, "open", id="the secrets"),
        pytest.param(Supervisor, "__enter__", id="the supervisor"),
    ],
)
def test_a_house_that_cannot_be_prepared_gives_its_ports_back(tmp_path, monkeypatch, owner, step):
    wanted = ports.choose({}, free=True)
    unmade = House(Options(folder=tmp_path, wanted=wanted, fresh=True), Teller(Console(force_terminal=False)))
    with monkeypatch.context() as broken:
        broken.setattr(owner, step, refuse)
        with pytest.raises(OSError, match="No space left"):
            unmade.__enter__()
    with Claims() as others:
        assert [others.take(port) for port in wanted.values()] == [True] * len(wanted)


def start_chain(ours: House) -> None:
    """Start the simulated chain and look after it until it ends."""
    ours.spawn_chain()
    ours.wait_for(lambda: False, "waiting for the chain", seconds=240)


def test_the_chain_whose_port_was_taken_after_the_choice_is_told_by_that(tmp_path):
    with house(tmp_path) as ours:
        port = ours.ports["chain-grpc"]
        with stranger(port) as pid, pytest.raises(PortTakenError) as told:
            start_chain(ours)
    assert f"  {port} (simulated chain, gRPC) is taken by python" in str(told.value)
    assert f"(process {pid}); choose another: --chain-grpc-port PORT" in str(told.value)
    assert "devchain ended" not in str(told.value)
    log = (tmp_path / "logs" / "devchain.log").read_text()
    assert log == f"CommandError: devchain cannot start: cannot listen on 127.0.0.1:{port}: Address already in use\n"


@pytest.mark.parametrize("listener", ["chain-grpc", "chain-admin"])
def test_a_port_that_was_taken_for_a_moment_only_is_told_too(tmp_path, listener):
    with house(tmp_path) as ours, socket.socket() as holder:
        holder.bind(("127.0.0.1", ours.ports[listener]))  # it does not listen: nobody is found there
        with pytest.raises(PortTakenError, match="was taken by another program while it started"):
            start_chain(ours)


def test_a_server_whose_port_was_taken_after_the_choice_is_not_started_again_and_again(tmp_path):
    def start(agent: Child) -> None:
        ours.supervisor.start(agent)
        ours.wait_for(lambda: False, "waiting", seconds=240)

    with house(tmp_path) as ours:
        port = ours.ports["agent"]
        agent = ours._manage("agent", "backend_agent", "mock", environment=ours.environments.agent())
        with stranger(port) as pid, pytest.raises(PortTakenError) as told:
            start(agent)
        assert f"{port} (mock agent) is taken by python" in str(told.value)
        assert f"(process {pid})" in str(told.value)
        assert agent.restarts == 0


def test_what_listens_below_this_process_is_no_stranger(tmp_path):
    chosen = ports.choose({}, free=True)
    with socket.create_server(("127.0.0.1", chosen["api"])):
        ports.refuse_taken(chosen)


def test_of_two_houses_that_start_at_once_on_the_same_ports_one_is_told_so(tmp_path):
    chosen = ports.choose({}, free=True)
    words = [f"{one.option}={chosen[one.name]}" for one in ports.LISTENERS]
    houses = [
        subprocess.Popen(
            [sys.executable, "manage.py", "dev", "--plain", f"--folder={tmp_path / name}", *words],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in ("one", "two")
    ]
    first = wait_until(lambda: next((one for one in houses if one.poll() is not None), None), timeout=120)
    [other] = [one for one in houses if one is not first]
    other.terminate()
    told, stopped = first.communicate(timeout=120)[0], other.communicate(timeout=120)[0]
    assert told.startswith("dev: these ports are needed:\n")
    assert f"  {chosen['api']} (tenant API) is taken by another `dev` (process {other.pid}); choose another:" in told
    assert "Traceback" not in told + stopped
    assert (first.returncode, other.returncode) == (1, 0)
    for name in ("one", "two"):
        PostgresServer(tmp_path / name / "postgres", durable=True).wipe()
        ValkeyServer(tmp_path / name / "valkey").wipe()
