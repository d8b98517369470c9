"""The floor of a burst: the calls that every control plane has to make, made by a script without database or framework.

`python -m fred.bench.bare_burst` reads its settings from standard input, then for each line with a number creates that
many leases in one block and brings them to ACTIVE: list them over gRPC, POST each to the agent, wait for its callback,
acknowledge in transactions of at most 1,000, wait until they are included. It answers each line with the uuids.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import msgspec

from backends.contract import LeaseItem, ProvisionSpec
from backends.requests import BackendTarget, provision_request
from fred.dev.chain_admin import ChainAdmin
from fred.http import Multi
from leases.chain import messages
from leases.chain.client import Account, ChainLease, TxResult
from leases.chain.cosmos import CosmosClient
from leases.chain.gas import GasPolicy
from leases.chain.keys import SigningKey
from leases.chain.signer import Signer
from leases.status import LeaseState

MOST_PER_TX = 1000
ON_WIRE = 64
"""Calls to the agent at a time: what two processes of ours have."""
GAS_PER_LEASE = 150_000
LIMIT_S = 300.0
_POLL_S = 0.002


class Settings(msgspec.Struct, frozen=True):
    """Where everything is, and whose keys to use."""

    grpc: str
    admin_port: int
    chain_id: str
    provider_uuid: UUID
    provider_key: str
    sku: str
    agent_url: str
    agent_secret: str
    callback_url: str
    pipe: str


class FloorError(RuntimeError):
    """A call that must succeed did not."""


@dataclass(slots=True)
class Script:
    """One script with its connections, as a bare program would hold them."""

    settings: Settings
    chain: CosmosClient = field(init=False)
    signer: Signer = field(init=False)
    agent: BackendTarget = field(init=False)
    http: Multi = field(default_factory=Multi)
    account: Account | None = None
    _pipe: int = -1
    _rest: bytes = b""

    def __post_init__(self) -> None:
        """Connect lazily."""
        given = self.settings
        key = SigningKey.from_hex(given.provider_key)
        self.chain = CosmosClient(given.grpc, provider_uuid=given.provider_uuid, page_limit=1000)
        self.signer = Signer(key=key, chain_id=given.chain_id, provider_address=key.address(), gas=GasPolicy())
        self.agent = BackendTarget(name="bench", url=given.agent_url, secret=given.agent_secret)
        self._pipe = os.open(given.pipe, os.O_RDONLY | os.O_NONBLOCK)

    def run(self, count: int) -> list[str]:
        """Bring so many leases from their creation to ACTIVE; return their uuids."""
        made = ChainAdmin(self.settings.admin_port).spread_leases(self.settings.sku, count=count)
        pages = self.chain.list_leases(self.settings.provider_uuid, LeaseState.PENDING)
        mine = {UUID(uuid) for uuid in made}
        leases = [lease for page in pages for lease in page.leases if lease.uuid in mine]
        if len(leases) != count:
            raise FloorError(f"{len(leases)} of {count} leases are listed")
        self._provision(leases)
        return made

    def _provision(self, leases: Sequence[ChainLease]) -> None:
        unsent, on_wire = deque(leases), 0
        ready: deque[UUID] = deque()
        open_tx, open_leases, done = "", 0, 0
        until = time.monotonic() + LIMIT_S
        while done < len(leases):
            if time.monotonic() > until:
                raise FloorError(f"{done} of {len(leases)} leases after {LIMIT_S:g} s")
            while unsent and on_wire < ON_WIRE:
                self.http.submit(provision_request(self.agent, self._spec(unsent.popleft())))
                on_wire += 1
            for response in self.http.poll(_POLL_S):
                on_wire -= 1
                if response.status != 202:
                    raise FloorError(f"the agent answered {response.status or response.error}")
            ready.extend(self._reported())
            if open_tx and self._is_included(open_tx):
                done, open_tx = done + open_leases, ""
            if ready and not open_tx:
                taken = [ready.popleft() for _ in range(min(MOST_PER_TX, len(ready)))]
                open_tx, open_leases = self._acknowledge(taken), len(taken)

    def _spec(self, lease: ChainLease) -> ProvisionSpec:
        return ProvisionSpec(
            lease_uuid=lease.uuid,
            tenant=lease.tenant,
            provider_uuid=lease.provider_uuid,
            items=tuple(LeaseItem(sku=str(item.sku_uuid), quantity=item.quantity) for item in lease.items),
            callback_url=f"{self.settings.callback_url}/callbacks/provision?operation_id={uuid4()}",
        )

    def _reported(self) -> Iterable[UUID]:
        """Leases whose callback came since the last call."""
        try:
            found = self._rest + os.read(self._pipe, 65_536)
        except BlockingIOError:
            return []
        whole = len(found) - len(found) % 16
        self._rest = found[whole:]
        return [UUID(bytes=found[start : start + 16]) for start in range(0, whole, 16)]

    def _acknowledge(self, leases: Sequence[UUID]) -> str:
        account = self.account or self.chain.account(self.signer.address)
        head = self.chain.latest_height().height
        signed = self.signer.sign(
            messages.acknowledge(self.signer.address, leases),
            account=account,
            gas_limit=GAS_PER_LEASE * len(leases) + 200_000,
            timeout_height=head + 50,
        )
        answer = self.chain.broadcast(signed.tx_bytes)
        if answer.code:
            raise FloorError(f"the chain refused the transaction: {answer.raw_log}")
        self.account = Account(account.address, account.number, account.sequence + 1)
        return signed.tx_hash

    def _is_included(self, tx_hash: str) -> bool:
        found = self.chain.tx(tx_hash)
        if not isinstance(found, TxResult):
            return False
        if not found.is_success:
            raise FloorError(f"the transaction failed: {found.raw_log}")
        return True


def main() -> None:
    """Serve until standard input ends."""
    script = Script(msgspec.json.decode(sys.stdin.readline(), type=Settings))
    for line in sys.stdin:
        answer: dict[str, list[str] | str]
        try:
            answer = {"leases": script.run(int(line))}
        except FloorError as error:
            answer = {"error": str(error)}
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
