"""One running chain: its servers, its block maker, and what the admin API and tests ask of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc.aio
from google.protobuf.message import Message

from leases.chain.devchain import grpc_server, profiles, snapshot
from leases.chain.devchain.admin import Admin
from leases.chain.devchain.blocks import Block
from leases.chain.devchain.chain import KEPT_BLOCKS, MEMPOOL_SIZE, Chain
from leases.chain.devchain.encoding import time_text
from leases.chain.devchain.genesis import PROVIDER_API, SKU_PRICES, TENANTS, Genesis
from leases.chain.devchain.grpc_server import Calls, ChainService
from leases.chain.devchain.http_server import HttpServer
from leases.chain.devchain.keys import PWR
from leases.chain.devchain.responses import decode_responses
from leases.chain.devchain.rest import Rest
from leases.chain.devchain.rpc import Rpc
from leases.chain.devchain.services import all_handlers
from leases.chain.devchain.state_file import StateFile
from leases.chain.devchain.transactions import DecodedTx, TxResult
from leases.chain.devchain.websocket import Hub
from leases.chain.proto import billing_pb2, coin_pb2, sku_pb2

MODES = ("interval", "instant", "manual")
GOODBYE = 0.02
"""Seconds that the last frames get on their way."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where to listen; 0 takes a free port."""

    grpc: int = 0
    rpc: int = 0
    rest: int = 0
    admin: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """What this node allows.

    Blocks kept, gas in a block (-1: any), transactions waiting, reads of the past by the request header, and whether
    gRPC clients that ping too often are sent away.
    """

    keep_blocks: int = KEPT_BLOCKS
    block_gas_limit: int = -1
    mempool_size: int = MEMPOOL_SIZE
    history: bool = False
    keepalive_policy: bool = True

    def apply(self, chain: Chain) -> None:
        """Set them; raises ValueError for a size that is not positive."""
        if min(self.keep_blocks, self.mempool_size) < 1:
            raise ValueError("keep_blocks and mempool_size must be positive")
        chain.kept_blocks, chain.mempool_size = self.keep_blocks, self.mempool_size
        chain.block_gas_limit, chain.reads_history = self.block_gas_limit, self.history


class Node:
    """A chain with its servers. Everything runs on the event loop that starts it."""

    def __init__(
        self,
        genesis: Genesis,
        *,
        profile: str = "",
        mode: str = "interval",
        interval: float = 1.0,
        file: StateFile | None = None,
        saved: dict[str, Any] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.chain = Chain(genesis, profile_name=profile or "B")
        self._limits = limits or Limits()
        self._limits.apply(self.chain)
        self.chain.listeners.append(self._on_block)
        self.calls = Calls()
        self.mode = ""
        self.interval = interval
        self.addresses: dict[str, str] = {}
        self._waiting: dict[str, asyncio.Future[TxResult]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._maker: asyncio.Task[None] | None = None
        self._due = False
        self._first_mode = mode
        handlers = all_handlers()
        self._service_names = tuple(sorted({path.split("/")[1] for path in handlers}))
        self._service = ChainService(self.chain, handlers, self.calls, after_broadcast=self.poke)
        self.rpc = Rpc(self.chain, handlers, after_broadcast=self.poke, wait_for=self.wait_for)
        self.hub = Hub(self.chain, self.rpc)
        self._http = {
            "rpc": HttpServer(self.rpc.answer, upgrade=self.hub.upgrade, cors=True),
            "rest": HttpServer(Rest(self.chain, handlers, self.poke).answer, cors=True),
            "admin": HttpServer(Admin(self).answer),
        }
        self._grpc: grpc.aio.Server | None = None
        if saved is not None:
            snapshot.put_back(self.chain, saved)
            if profile:
                self.chain.profile = profiles.profile(profile)
        elif genesis.market:
            self.open_market()
        self._file = file
        if file is not None:
            file.open(self.chain)

    # --- life --------------------------------------------------------------

    async def start(self, host: str, ports: Ports) -> None:
        """Listen on all ports, then make blocks. Raises OSError when a port is taken."""
        try:
            strikes = 2 if self._limits.keepalive_policy else 0
            self._grpc, port = await grpc_server.start(
                host, ports.grpc, self._service, services=self._service_names, strikes=strikes
            )
            self.addresses["grpc"] = f"{host}:{port}"
            for name, wanted in (("rpc", ports.rpc), ("rest", ports.rest), ("admin", ports.admin)):
                listen = "127.0.0.1" if name == "admin" else host
                taken = await self._http[name].start(listen, wanted)
                self.addresses[name] = f"http://{listen}:{taken}"
        except BaseException:
            await self.stop()
            raise
        self.addresses["websocket"] = self.addresses["rpc"].replace("http", "ws") + "/websocket"
        self._spawn(self.hub.run())
        self.set_mode(self._first_mode)

    async def stop(self) -> None:
        """Tell the subscribers, close every connection, end every task, save."""
        self.chain.faults.clear()
        if self.hub.connections:
            self.hub.say_goodbye()
            await asyncio.sleep(GOODBYE)
        for task in (*self._tasks, *([self._maker] if self._maker else [])):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for server in self._http.values():
            await server.close()
        if self._grpc is not None:
            await self._grpc.stop(0)
        if self._file is not None:
            self._file.close(self.chain)

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- blocks --------------------------------------------------------------

    def set_mode(self, mode: str, interval: float | None = None) -> None:
        """How blocks are made from now on; raises ValueError for an unknown mode or a bad interval."""
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}")
        if interval is not None:
            if interval <= 0:
                raise ValueError("interval must be positive")
            self.interval = interval
        self.mode = mode
        self.chain.minimum_gap = int(self.interval * 10**9) if mode == "interval" else 10**6
        if self._maker is not None:
            self._maker.cancel()
            self._maker = None
        if mode == "interval":
            self._maker = asyncio.ensure_future(self._make_blocks())
        else:
            self.poke()

    async def _make_blocks(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + self.interval, loop.time())
            await asyncio.sleep(due - loop.time())
            self.chain.produce()

    def poke(self) -> None:
        """A transaction may have come: in instant mode its block follows as soon as the answer is out."""
        if self.mode == "instant" and self.chain.mempool and not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._instant)

    def _instant(self) -> None:
        self._due = False
        if self.mode == "instant" and self.chain.mempool:
            self.chain.produce()

    def _on_block(self, block: Block) -> None:
        self.hub.on_block(block)
        for result in block.txs:
            waiting = self._waiting.pop(result.tx.hash, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(result)

    async def wait_for(self, tx_hash: str) -> TxResult:
        """The result of a transaction, as soon as it is in a block."""
        done = self.chain.txs.get(tx_hash)
        if done is not None:
            return done
        future = self._waiting.setdefault(tx_hash, asyncio.get_running_loop().create_future())
        return await asyncio.shield(future)

    # --- acting without a key ---------------------------------------------------

    async def act(self, transactions: Iterable[Sequence[Message]]) -> list[TxResult]:
        """Put transactions of unsigned messages into one block and wait for it."""
        sent = [self.chain.submit_trusted(messages) for messages in transactions]
        if self.mode != "interval":
            self.chain.produce()
        return list(await asyncio.gather(*(self.wait_for(tx.hash) for tx in sent)))

    def act_at_once(self, transactions: Iterable[Sequence[Message]]) -> list[TxResult]:
        """The same with a block of its own, made now."""
        sent: list[DecodedTx] = [self.chain.submit_trusted(messages) for messages in transactions]
        self.chain.produce()
        return [self.chain.txs[tx.hash] for tx in sent]

    def open_market(self) -> None:
        """The provider, its offers and the tenants' credit of the development fixture."""
        keys, credit = self.chain.genesis.keys, self.chain.genesis.credit
        admin, provider = keys["admin"].address, keys["provider"].address
        made = sku_pb2.MsgCreateProvider(
            authority=admin, address=provider, payout_address=provider, api_url=PROVIDER_API
        )
        uuid = response_field(self.act_at_once([[made]])[0], "uuid")[0]
        skus = [
            sku_pb2.MsgCreateSKU(
                authority=admin,
                provider_uuid=uuid,
                name=name,
                unit=sku_pb2.UNIT_PER_HOUR,
                base_price=coin_pb2.Coin(denom=PWR, amount=str(price)),
            )
            for name, price in SKU_PRICES.items()
        ]
        funds = [
            [billing_pb2.MsgFundCredit(sender=key.address, tenant=key.address, amount=_coin(credit))]
            for name, key in keys.items()
            if name == "tenant" or name in TENANTS
        ]
        self.act_at_once([skus, *funds])

    def info(self) -> dict[str, Any]:
        """What a program needs to know to use this chain."""
        chain = self.chain
        providers = list(chain.state.providers)
        return {
            **self.addresses,
            "chain_id": chain.chain_id,
            "profile": chain.profile.name,
            "genesis": chain.genesis.name,
            "height": chain.height,
            "time": time_text(chain.time),
            "mode": self.mode,
            "interval": self.interval,
            "provider_uuid": providers[0] if providers else "",
            "providers": providers,
            "skus": {sku.name: sku.uuid for sku in chain.state.skus.values()},
        }

    def keys(self) -> dict[str, dict[str, Any]]:
        """All known keys by name."""
        shown: dict[str, dict[str, Any]] = {}
        for name, key in self.chain.genesis.keys.items():
            shown[name] = {"address": key.address, "private_key_hex": key.private_key_hex}
            if key.mnemonic:
                shown[name] |= {"mnemonic": key.mnemonic, "account_index": key.account_index}
        return shown

    def reset(self) -> None:
        """Start the chain again: height 1, nothing on it, the same id."""
        for waiting in self._waiting.values():
            waiting.cancel()
        self._waiting.clear()
        self.chain.start()
        self._save()

    def restore(self, value: dict[str, Any]) -> None:
        """Put a snapshot in the chain's place; raises ValueError for one of another chain."""
        snapshot.put_back(self.chain, value)
        self._save()
        self.poke()

    def _save(self) -> None:
        if self._file is not None:
            self._file.save(self.chain)


def _coin(amount: int) -> coin_pb2.Coin:
    return coin_pb2.Coin(denom=PWR, amount=str(amount))


def response_field(result: TxResult, name: str) -> list[Any]:
    """One field of every message's response of a successful transaction."""
    return [getattr(response, name) for response in decode_responses(result.data)]
