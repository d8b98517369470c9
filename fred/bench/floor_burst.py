"""Running the bare script of a burst beside the house it is compared with."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

import msgspec

from fred.bench import bare_burst
from fred.bench.bare_burst import FloorError
from fred.bench.stage import Stage, grpc_endpoint
from fred.dev.options import ROOT
from fred.dev.supervisor import Child


@dataclass(frozen=True, slots=True)
class BareScript:
    """The script, waiting for a number of leases."""

    process: subprocess.Popen[bytes]
    receiver: Child

    def run(self, count: int) -> list[str]:
        """Bring so many leases from their creation to ACTIVE; return their uuids. Raises FloorError."""
        assert self.process.stdin is not None  # noqa: S101 - opened with pipes
        assert self.process.stdout is not None  # noqa: S101
        self.process.stdin.write(b"%d\n" % count)
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise FloorError("the bare script ended")
        answer = msgspec.json.decode(line, type=dict[str, list[str] | str])
        leases = answer.get("leases")
        if not isinstance(leases, list):
            raise FloorError(str(answer.get("error", "the bare script said nothing")))
        return leases


@contextmanager
def bare_script(stage: Stage) -> Iterator[BareScript]:
    """Start the script and its receiver where the control plane was; both are gone afterwards."""
    house = stage.house
    pipe = house.options.folder / "callbacks.pipe"
    os.mkfifo(pipe, 0o600)
    secret = house.vault.callback_secret
    settings = bare_burst.Settings(
        grpc=grpc_endpoint(house),
        admin_port=house.ports["chain-admin"],
        chain_id=house.inhabitants.chain_id,
        provider_uuid=UUID(house.inhabitants.provider_uuid),
        provider_key=house.inhabitants.provider.private_key,
        sku=house.inhabitants.smallest_sku,
        agent_url=house.url("agent"),
        agent_secret=secret,
        callback_url=stage.callback_base,
        pipe=str(pipe),
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "fred.bench.bare_burst"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=house.environments.plain(),
    )
    assert process.stdin is not None  # noqa: S101 - opened with pipes
    try:
        process.stdin.write(msgspec.json.encode(settings) + b"\n")
        process.stdin.flush()
        receiver = stage.start_bare_receiver({"FRED_BENCH_SECRET": secret, "FRED_BENCH_PIPE": str(pipe)})
        yield BareScript(process, receiver)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        house.supervisor.end("bare web")
        pipe.unlink()
