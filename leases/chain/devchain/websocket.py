"""The WebSocket of the RPC port: subscriptions with the limits and the frames of CometBFT.

Every subscription keeps its order. A client that does not read loses a subscription when more than 200 of its frames
wait. The server pings every 27 s and drops a connection it has read nothing from for 30 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson
from websockets.frames import Frame, Opcode
from websockets.http11 import Request as Handshake
from websockets.server import ServerProtocol

from leases.chain.devchain.blocks import Block
from leases.chain.devchain.chain import Chain
from leases.chain.devchain.faults import Fault
from leases.chain.devchain.frames import Publication, publications
from leases.chain.devchain.http_server import Request
from leases.chain.devchain.query_language import MAX_LENGTH, Query, parse
from leases.chain.devchain.rpc import Rpc, RpcError, dumps
from leases.chain.devchain.stream_faults import Disturber, garbage, named

_LOG = logging.getLogger(__name__)
_LOG.setLevel(logging.ERROR)
MAX_SUBSCRIPTIONS, MAX_CLIENTS, MAX_WAITING = 5, 100, 200
PING_EVERY, READ_LIMIT, SLOW_AFTER = 27.0, 30.0, 1.0


@dataclass(slots=True)
class Subscription:
    """A query of one client under the id of its request."""

    id: Any
    text: str
    query: Query
    waiting: int = 0
    disturber: Disturber = field(default_factory=Disturber)


class Connection:
    """One WebSocket client."""

    def __init__(self, hub: Hub, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._hub = hub
        self._reader = reader
        self._writer = writer
        self._protocol = ServerProtocol(max_size=16 * 1024 * 1024, logger=_LOG)
        self._outbox: deque[tuple[Subscription | None, bytes, float]] = deque()
        self._ready = asyncio.Event()
        self._sent = asyncio.Event()
        self._partial = b""
        self._is_mute = False
        self.subscriptions: dict[str, Subscription] = {}

    async def serve(self, request: Request) -> None:
        """Shake hands and talk until one side goes."""
        self._protocol.receive_data(request.head)
        for event in self._protocol.events_received():
            if isinstance(event, Handshake):
                self._protocol.send_response(self._protocol.accept(event))
        self._flush()
        if self._hub.faults.find("ws_half_open", "ws") is not None:
            self.mute()
        sender = asyncio.create_task(self._send_forever())
        pinger = asyncio.create_task(self._ping_forever())
        try:
            await self._read_forever()
        finally:
            sender.cancel()
            pinger.cancel()
            await asyncio.gather(sender, pinger, return_exceptions=True)

    async def _read_forever(self) -> None:
        while True:
            try:
                limit = None if self._is_mute else READ_LIMIT
                data = await asyncio.wait_for(self._reader.read(65536), limit)
            except (TimeoutError, ConnectionError):
                return
            if not data:
                return
            if self._is_mute:
                continue
            self._protocol.receive_data(data)
            for event in self._protocol.events_received():
                if isinstance(event, Frame):
                    await self._on_frame(event)
            self._flush()
            if self._protocol.close_expected():
                return

    async def _on_frame(self, frame: Frame) -> None:
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return
        self._partial += frame.data
        if frame.fin:
            text, self._partial = self._partial, b""
            await self._on_text(text)

    async def _on_text(self, text: bytes) -> None:
        try:
            call = orjson.loads(text)
        except ValueError:
            error = {"code": -32700, "message": "Parse error. Invalid JSON", "data": "error unmarshaling request"}
            self.send(dumps({"jsonrpc": "2.0", "id": None, "error": error}))
            return
        envelope = {"jsonrpc": "2.0", "id": call.get("id")}
        try:
            method, params = call.get("method"), call.get("params") or {}
            if method == "subscribe":
                self.subscribe(call.get("id"), str(params.get("query", "")))
                result: Any = {}
            elif method == "unsubscribe":
                self._unsubscribe(str(params.get("query", "")))
                result = {}
            elif method == "unsubscribe_all":
                self.subscriptions.clear()
                result = {}
            else:
                result = await self._hub.rpc.run(str(method), params)
        except RpcError as error:
            self.send(dumps({**envelope, "error": error.error}))
            return
        self.send(dumps({**envelope, "result": result}))

    def subscribe(self, number: Any, text: str) -> None:
        """Add a subscription; raises `RpcError` beyond the limits of a node."""
        if len(self._hub.subscribed()) >= MAX_CLIENTS and not self.subscriptions:
            raise RpcError(f"max_subscription_clients {MAX_CLIENTS} reached")
        if len(self.subscriptions) >= MAX_SUBSCRIPTIONS:
            raise RpcError(f"max_subscriptions_per_client {MAX_SUBSCRIPTIONS} reached")
        if len(text) > MAX_LENGTH:
            raise RpcError("maximum query length exceeded")
        try:
            query = parse(text)
        except ValueError as error:
            raise RpcError(str(error)) from None
        rule = self._hub.faults.find("ws_error", "ws", text.encode(), only=lambda rule: named(rule, number))
        if rule is not None:
            raise RpcError(str(rule.parameters.get("text", "fault")))
        if text in self.subscriptions:
            raise RpcError("already subscribed")
        self.subscriptions[text] = Subscription(number, text, query)

    def _unsubscribe(self, text: str) -> None:
        if self.subscriptions.pop(text, None) is None:
            raise RpcError("subscription not found")

    def send(self, data: bytes, subscription: Subscription | None = None, *, late: float = 0.0) -> None:
        """Queue a text frame; one that comes `late` (seconds) holds up those behind it, as on any connection."""
        if self._is_mute:
            return
        if subscription is not None:
            subscription.waiting += 1
        self._outbox.append((subscription, data, asyncio.get_running_loop().time() + late if late else 0.0))
        self._ready.set()

    def mute(self) -> None:
        """Say nothing any more and hear nothing; the connection itself stays until the client ends it."""
        self._is_mute = True
        self._outbox.clear()

    def let_go(self) -> None:
        """Send what a rule that is over held back."""
        for subscription in self.subscriptions.values():
            for frame, _ in subscription.disturber.let_go():
                self.send(frame, subscription)

    async def publish(self, publication: Publication) -> None:
        """Queue a frame for every subscription that wants it; one that is full for too long is cancelled."""
        for subscription in list(self.subscriptions.values()):
            if not subscription.query.matches(publication.values):
                continue
            if subscription.waiting >= MAX_WAITING and not await self._drained(subscription):
                self.cancel(subscription, "client is not pulling messages fast enough")
                continue
            frame = publication.frame(subscription.id, subscription.text)
            for data, late in subscription.disturber.pass_on(self._hub.faults, frame):
                self.send(data, subscription, late=late)

    async def _drained(self, subscription: Subscription) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SLOW_AFTER):
                while subscription.waiting >= MAX_WAITING:
                    self._sent.clear()
                    await self._sent.wait()
        return subscription.waiting < MAX_WAITING

    def cancel(self, subscription: Subscription, reason: str) -> None:
        """End a subscription with the node's error frame; the connection stays."""
        self.subscriptions.pop(subscription.text, None)
        error = {"code": -32000, "message": "Server error"}
        error["data"] = f"subscription was canceled (reason: {reason})"
        self.send(dumps({"jsonrpc": "2.0", "id": subscription.id, "error": error}))

    def close(self, code: int) -> None:
        """Send a close frame and let the connection end; code 0 resets it without a word."""
        if code == 0:
            self._writer.transport.abort()
            return
        with contextlib.suppress(Exception):
            self._protocol.send_close(code)
            self._flush()
        self._writer.close()

    async def _send_forever(self) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                await self._ready.wait()
                self._ready.clear()
                while self._outbox:
                    subscription, data, due = self._outbox.popleft()
                    if due:
                        await asyncio.sleep(due - asyncio.get_running_loop().time())
                    self._protocol.send_text(data)
                    self._flush()
                    await self._writer.drain()
                    if subscription is not None:
                        subscription.waiting -= 1
                        self._sent.set()

    async def _ping_forever(self) -> None:
        while True:
            await asyncio.sleep(PING_EVERY)
            self._protocol.send_ping(b"")
            self._flush()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if self._is_mute:
                continue
            if data:
                self._writer.write(data)
            elif self._writer.can_write_eof():
                with contextlib.suppress(OSError):
                    self._writer.write_eof()


class Hub:
    """All WebSocket clients of a chain; blocks are published in order by one task."""

    def __init__(self, chain: Chain, rpc: Rpc) -> None:
        self._chain = chain
        self.faults = chain.faults
        self.faults.listeners.append(self._on_fault)
        self.rpc = rpc
        self.connections: set[Connection] = set()
        self._blocks: asyncio.Queue[Block] = asyncio.Queue()

    def subscribed(self) -> list[Connection]:
        """Clients with at least one subscription."""
        return [connection for connection in self.connections if connection.subscriptions]

    def on_block(self, block: Block) -> None:
        """Queue a committed block."""
        if self.connections:
            self._blocks.put_nowait(block)

    async def run(self) -> None:
        """Publish blocks for ever."""
        while True:
            block = await self._blocks.get()
            for publication in self._publications(block):
                for connection in self.subscribed():
                    await connection.publish(publication)
            self._blocks.task_done()

    async def published(self) -> None:
        """Wait until every block so far was published."""
        await self._blocks.join()

    def _publications(self, block: Block) -> Iterator[Publication]:
        for publication in publications(block, self._chain.network):
            if self.faults.all():
                self._break()
            yield publication

    def _break(self) -> None:
        """What rules do to whole connections."""
        rule = self.faults.find("ws_close", "ws")
        if rule is not None:
            self.close_all(int(rule.parameters.get("code", 1001)))
        rule = self.faults.find("ws_garbage", "ws")
        if rule is not None:
            self._send_to_all(garbage(rule))
        for connection in list(self.connections):
            for subscription in list(connection.subscriptions.values()):
                told = functools.partial(named, number=subscription.id)
                if self.faults.find("ws_cancel", "ws", subscription.text.encode(), only=told) is not None:
                    connection.cancel(subscription, "client is not pulling messages fast enough")

    def _on_fault(self, rule: Fault, began: bool) -> None:
        """A rule that is new acts on the connections there are; one that is over lets go of what it held back."""
        if rule.effect == "ws_reorder" and not began:
            asyncio.get_running_loop().call_soon(self._let_go)
        if rule.effect == "ws_half_open" and began:
            for connection in list(self.connections):
                if self.faults.find("ws_half_open", "ws", only=lambda one: one is rule) is not None:
                    connection.mute()
        if rule.effect in ("ws_close", "ws_garbage", "ws_cancel") and began:
            self._break()

    def _let_go(self) -> None:
        for connection in self.connections:
            connection.let_go()

    def _send_to_all(self, data: bytes) -> None:
        for connection in self.connections:
            connection.send(data)

    def close_all(self, code: int) -> None:
        """Close every connection."""
        for connection in list(self.connections):
            connection.close(code)

    def say_goodbye(self) -> None:
        """The node goes down: every subscription ends with the node's reason."""
        for connection in list(self.connections):
            for subscription in list(connection.subscriptions.values()):
                connection.cancel(subscription, "CometBFT exited")

    async def upgrade(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        await self._chain.faults.hold("ws")
        connection = Connection(self, reader, writer)
        self.connections.add(connection)
        try:
            await connection.serve(request)
        finally:
            self.connections.discard(connection)
