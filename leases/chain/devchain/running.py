"""A chain inside a program: started on a thread of its own, used from any thread.

All chains of a process share one event loop thread, because gRPC's asyncio server wants one loop per process.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from leases.chain.devchain import actions, profiles, snapshot
from leases.chain.devchain.genesis import build
from leases.chain.devchain.keys import PWR, Key
from leases.chain.devchain.node import Limits, Node, Ports
from leases.chain.devchain.records import Lease
from leases.chain.devchain.state_file import StateFile
from leases.chain.devchain.transactions import CheckResult, TxResult

T = TypeVar("T")
CALL_LIMIT = 60.0


class _LoopThread:
    """The event loop of all chains of this process, started when the first one is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="devchain", daemon=True).start()
            return self._loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop()).result(CALL_LIMIT)


_THREAD = _LoopThread()


class RunningDevchain:
    """A started chain. Every method waits until what it did is in a block (in `manual` mode it makes that block)."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.grpc = node.addresses["grpc"]
        self.rpc = node.addresses["rpc"]
        self.websocket = node.addresses["websocket"]
        self.rest = node.addresses["rest"]
        self.admin = node.addresses["admin"]
        self.chain_id = node.chain.chain_id
        self.keys: dict[str, Key] = node.chain.genesis.keys

    def call(self, work: Callable[[], T]) -> T:
        """Run a function on the chain's thread: nothing else happens on the chain meanwhile."""

        async def run() -> T:
            return work()

        return _THREAD.run(run())

    # --- what is there ----------------------------------------------------------

    @property
    def height(self) -> int:
        """The last committed height."""
        return self.node.chain.height

    @property
    def time_ns(self) -> int:
        """The time of the last block, in nanoseconds."""
        return self.node.chain.time

    @property
    def provider_uuid(self) -> str:
        """The first provider; empty without one."""
        return next(iter(self.node.chain.state.providers), "")

    @property
    def sku_uuid(self) -> str:
        """The first SKU; empty without one."""
        return next(iter(self.node.chain.state.skus), "")

    def skus(self) -> dict[str, str]:
        """SKU names and their uuids."""
        return self.call(lambda: {sku.name: sku.uuid for sku in self.node.chain.state.skus.values()})

    def lease(self, uuid: str) -> Lease:
        """A lease as stored; raises KeyError."""
        return self.call(lambda: self.node.chain.state.leases[uuid])

    def state_of(self, uuid: str) -> int:
        """The state number of a lease."""
        return self.lease(uuid).state

    def counts(self) -> dict[str, int]:
        """How many gRPC calls of each method came."""
        return self.call(lambda: dict(self.node.calls.counts))

    def txs(self) -> list[TxResult]:
        """All included transactions, oldest first."""
        return self.call(lambda: list(self.node.chain.txs.values()))

    # --- making and moving --------------------------------------------------------

    def create_provider(self, address: str, *, api_url: str = "https://other.example", payout_address: str = "") -> str:
        """A further provider; its uuid."""
        payout = payout_address or address
        return _THREAD.run(actions.create_provider(self.node, address, payout_address=payout, api_url=api_url))

    def create_sku(self, provider_uuid: str, *, name: str, price: int = 3600, denom: str = PWR, unit: int = 1) -> str:
        """A further SKU; its uuid."""
        return _THREAD.run(actions.create_sku(self.node, provider_uuid, name=name, price=price, denom=denom, unit=unit))

    def fund_credit(self, tenant: str, coins: Mapping[str, int]) -> str:
        """Credit from the tenant's own money; the credit address."""
        return _THREAD.run(actions.fund_credit(self.node, tenant, coins, sender=tenant))

    def drain_credit(self, tenant: str, coins: Mapping[str, int] | None = None) -> None:
        """Take credit away; all of it by default."""
        self.call(lambda: actions.drain_credit(self.node.chain, tenant, coins))

    def mint(self, address: str, coins: Mapping[str, int]) -> None:
        """New money at an address."""
        self.call(lambda: actions.mint(self.node.chain, address, coins))

    def create_leases(
        self,
        count: int = 1,
        *,
        tenant: str = "",
        sku: str = "",
        items: Sequence[Mapping[str, Any]] | None = None,
        meta_hash: bytes = b"",
    ) -> list[str]:
        """Leases in one block; without a tenant shared out over `t0` … `t19`."""
        tenants = [tenant] if tenant else None
        work = actions.create_leases(self.node, count, tenants=tenants, items=items, sku=sku, meta_hash=meta_hash)
        return _THREAD.run(work)

    def create_lease(self, **how: Any) -> str:
        """One lease; arguments of `create_leases`."""
        return self.create_leases(1, **how)[0]

    def ack_leases(self, uuids: Sequence[str], *, sender: str = "") -> list[TxResult]:
        """Acknowledge as the provider."""
        return _THREAD.run(actions.move_leases(self.node, "ack", uuids, sender=sender))

    def reject_leases(self, uuids: Sequence[str], *, reason: str = "", sender: str = "") -> list[TxResult]:
        """Reject as the provider."""
        return _THREAD.run(actions.move_leases(self.node, "reject", uuids, sender=sender, reason=reason))

    def cancel_leases(self, uuids: Sequence[str]) -> list[TxResult]:
        """Cancel as the tenant."""
        return _THREAD.run(actions.move_leases(self.node, "cancel", uuids))

    def cancel_lease(self, uuid: str) -> None:
        """Cancel one lease as its tenant."""
        self.cancel_leases([uuid])

    def close_leases(self, uuids: Sequence[str], *, reason: str = "", sender: str = "") -> list[TxResult]:
        """Close; as the provider unless a sender is given."""
        return _THREAD.run(actions.move_leases(self.node, "close", uuids, sender=sender, reason=reason))

    def close_lease(self, uuid: str, *, reason: str = "") -> None:
        """Close one lease as its tenant."""
        self.close_leases([uuid], reason=reason, sender=self.lease(uuid).tenant)

    def withdraw_leases(self, uuids: Sequence[str], *, sender: str = "") -> list[TxResult]:
        """Settle leases by their uuids, as the provider."""
        return _THREAD.run(actions.move_leases(self.node, "withdraw", uuids, sender=sender))

    def make_overdue(self, uuids: Sequence[str]) -> None:
        """Move the creation of PENDING leases back: the next blocks expire them, 100 each."""
        self.call(lambda: actions.overdue(self.node.chain, uuids))

    def expire_leases(self, uuids: Sequence[str]) -> None:
        """Make PENDING leases overdue and the blocks that expire them."""

        def work() -> None:
            actions.overdue(self.node.chain, uuids)
            for _ in range(0, len(uuids), 100):
                self.node.chain.produce()

        self.call(work)

    def expire_lease(self, uuid: str) -> None:
        """Expire one PENDING lease."""
        self.expire_leases([uuid])

    def write_lease_state(self, uuid: str, state: int) -> None:
        """Write any number as the state of a lease."""
        self.call(lambda: actions.write_state(self.node.chain, uuid, state))

    def change_params(self, **changes: Any) -> None:
        """Change parameters of the billing module."""
        self.call(lambda: actions.change_params(self.node.chain, changes))

    # --- blocks and time --------------------------------------------------------------

    def produce_block(self, *, count: int = 1, step: float = 0) -> int:
        """Make blocks now, each `step` seconds after the last (0: the clock's time); the new height."""

        def work() -> int:
            for _ in range(count):
                self.node.chain.produce(step=int(step * 10**9))
            return self.node.chain.height

        return self.call(work)

    def wait_for_frames(self) -> None:
        """Until every block so far was published: its frames wait in the connections, before any later answer."""
        _THREAD.run(self.node.hub.published())

    def set_block_mode(self, mode: str, *, interval: float | None = None) -> None:
        """`interval` (seconds), `instant` or `manual`."""
        self.call(lambda: self.node.set_mode(mode, interval))

    def advance(self, seconds: float) -> None:
        """Move the block clock forward; the next block shows it."""

        def work() -> None:
            self.node.chain.offset += int(seconds * 10**9)

        self.call(work)

    def freeze_clock(self, step: float) -> None:
        """Every block comes exactly `step` seconds after the last; 0 lets the clock run again."""

        def work() -> None:
            self.node.chain.frozen_step = int(step * 10**9)

        self.call(work)

    def snapshot(self) -> dict[str, Any]:
        """The whole chain as one JSON value."""
        return self.call(lambda: snapshot.take(self.node.chain))

    def restore(self, value: dict[str, Any]) -> None:
        """Put a snapshot of this chain in its place."""
        self.call(lambda: self.node.restore(value))

    def set_profile(self, name: str) -> None:
        """Answer and judge as the generation A, B or C of the ledger from now on."""

        def work() -> None:
            self.node.chain.profile = profiles.profile(name)

        self.call(work)

    def reset(self) -> None:
        """Start the chain again, empty, with the same id."""
        self.call(self.node.reset)

    # --- faults ----------------------------------------------------------------------

    def add_fault(self, effect: str, *, where: str = "*", times: int | None = None, **parameters: Any) -> int:
        """Make a rule (see `leases.chain.devchain.faults`); its number."""

        def work() -> int:
            return self.node.chain.faults.add(effect, where=where, times=times, **parameters).id

        return self.call(work)

    def remove_fault(self, number: int) -> bool:
        """End a rule."""
        return self.call(lambda: self.node.chain.faults.remove(number))

    def clear_faults(self) -> None:
        """End all rules."""
        self.call(self.node.chain.faults.clear)

    @contextlib.contextmanager
    def fault(self, effect: str, **rule: Any) -> Iterator[int]:
        """A rule for the time of a block of code."""
        number = self.add_fault(effect, **rule)
        try:
            yield number
        finally:
            self.remove_fault(number)

    # --- transactions -------------------------------------------------------------------

    def broadcast(self, raw: bytes) -> CheckResult:
        """CheckTx of a signed transaction, as over RPC."""

        def work() -> CheckResult:
            checked = self.node.chain.broadcast(raw)
            self.node.poke()
            return checked

        return self.call(work)


def start(
    *,
    fixture: str = "devnet",
    chain_id: str = "",
    block_mode: str = "instant",
    block_interval: float = 1.0,
    host: str = "127.0.0.1",
    ports: Ports | None = None,
    profile: str = "",
    min_gas_price: Fraction | int | None = None,
    state: Path | None = None,
    limits: Limits | None = None,
) -> RunningDevchain:
    """Start a chain, or go on with the one in the file `state`; the caller stops it with `stop`.

    A saved chain keeps its fixture, its price and, unless one is named here, its profile. Raises OSError when a port
    is taken or the file cannot be written, ValueError when the file holds another chain than `chain_id`.
    """
    price = None if min_gas_price is None else Fraction(min_gas_price)
    file = StateFile(state) if state is not None else None
    saved = file.read() if file is not None else None
    if saved is not None:
        if chain_id and chain_id != saved["chain_id"]:
            raise ValueError(f"{state} holds the chain {saved['chain_id']}, not {chain_id}")
        fixture, chain_id = saved["genesis"], saved["chain_id"]
        saved["gas_price"] = saved["gas_price"] if price is None else str(price)
    genesis = build(fixture, chain_id=chain_id, gas_price=price)

    async def make() -> Node:
        node = Node(
            genesis,
            profile=profile,
            mode=block_mode,
            interval=block_interval,
            file=file,
            saved=saved,
            limits=limits,
        )
        await node.start(host, ports or Ports())
        return node

    return RunningDevchain(_THREAD.run(make()))


def stop(chain: RunningDevchain) -> None:
    """Close its ports and end its tasks."""
    _THREAD.run(chain.node.stop())


@contextlib.contextmanager
def run(**options: Any) -> Iterator[RunningDevchain]:
    """A chain on free ports for the time of a block of code; options of `start`."""
    chain = start(**options)
    try:
        yield chain
    finally:
        stop(chain)
