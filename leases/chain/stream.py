"""The node's event stream: a WebSocket subscription that comes back by itself.

    stream = ChainStream(url, queries=event_queries(provider_uuid), provider_uuid=provider_uuid)
    async for item in stream.items():
        match item:
            case Connected(): ...        # all subscriptions are confirmed; fill the gap now
            case LeaseEvents(): ...      # store at once; the connection waits meanwhile
            case Header(): ...
            case Lost(): ...             # it reconnects after `delay` seconds

A stream that is only half subscribed is worse than none: an error frame, a missing confirmation or a cancelled
subscription ends the connection. A node cancels a subscription with more than 200 unread messages.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import msgspec
import structlog
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from leases.chain import events, noticed
from leases.chain.errors import ChainError, StreamBroken
from leases.chain.events import AbciEvent, Header, LeaseEvent, Occurrence

log = structlog.get_logger(__name__)

HEADER_QUERY = "tm.event='NewBlockHeader'"
_MEBIBYTE = 1024 * 1024
_MAX_FRAME_BYTES = 16 * _MEBIBYTE
_WAITING_FRAMES = 256
_HANDSHAKE_SECONDS = 10.0
_CONFIRM_SECONDS = 10.0
_HEALTHY_SECONDS = 60.0
_BAD_FRAMES_BEFORE_WARNING = 10


@dataclass(frozen=True, slots=True)
class Connected:
    """Every subscription is confirmed: from here on nothing is missed. What came before has to be read otherwise."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection ended, or none came about. The next try follows after `delay` seconds.

    `reason` is one word for a label: `connect`, `closed`, `ping`, `unconfirmed`, `error_frame`, or what the caller of
    `break_off` said.
    """

    reason: str
    detail: str
    delay: float


@dataclass(frozen=True, slots=True)
class LeaseEvents:
    """The lease events of one frame: one transaction, or the end of one block."""

    events: tuple[LeaseEvent, ...]
    height: int
    tx_hash: str = ""


StreamItem = Connected | Lost | LeaseEvents | Header


class _FrameResult(msgspec.Struct):
    data: msgspec.Raw = msgspec.Raw(b"")
    events: dict[str, list[str]] | None = None


class _FrameError(msgspec.Struct):
    code: int = 0
    message: str = ""
    data: str | None = ""


class _Frame(msgspec.Struct):
    id: int | str | None = None
    result: _FrameResult | None = None
    error: _FrameError | None = None


class _ListedEvents(msgspec.Struct):
    events: list[AbciEvent] | None = None


class _TxResult(msgspec.Struct):
    height: str = "0"
    result: _ListedEvents = msgspec.field(default_factory=_ListedEvents)


class _BlockId(msgspec.Struct):
    hash: str = ""


class _HeaderFields(msgspec.Struct):
    height: str
    time: str
    chain_id: str = ""
    last_block_id: _BlockId = msgspec.field(default_factory=_BlockId)


class _DataValue(msgspec.Struct):
    TxResult: _TxResult | None = None
    header: _HeaderFields | None = None
    height: str = "0"
    events: list[AbciEvent] | None = None


class _Data(msgspec.Struct):
    value: _DataValue = msgspec.field(default_factory=_DataValue)


class Backoff:
    """Delays between connection attempts: doubled from `initial` to `maximum` seconds, a quarter of it random."""

    def __init__(self, initial: float, maximum: float, *, draw: Callable[[], float] = random.random) -> None:
        self._initial = initial
        self._maximum = maximum
        self._draw = draw
        self._next = initial

    def next_delay(self) -> float:
        """Return the seconds to wait now; the next answer is about twice that."""
        base = min(self._next, self._maximum)
        self._next = min(base * 2, self._maximum)
        return base * (0.75 + 0.5 * self._draw())

    def reset(self) -> None:
        """Begin again with the initial delay."""
        self._next = self._initial


class ChainStream:
    """One WebSocket connection with up to five subscriptions (the server's limit), for one provider.

    Times are in seconds. `ping_interval` is also how long a pong may take. `url` is asked for before each connection,
    so that the next one can be to another node. `ca_file` (PEM) is for `wss`; empty means the system's roots; raises
    `ChainError` when it cannot be used.
    """

    def __init__(
        self,
        url: str | Callable[[], str],
        *,
        queries: Sequence[str],
        provider_uuid: UUID,
        ping_interval: float = 30.0,
        reconnect_initial: float = 1.0,
        reconnect_max: float = 60.0,
        confirm_timeout: float = _CONFIRM_SECONDS,
        ca_file: str = "",
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._url: Callable[[], str] = (lambda: url) if isinstance(url, str) else url
        self._trust = trusting(ca_file) if ca_file else None
        self._socket: ClientConnection | None = None
        self._break_reason = ""
        self._closing: set[asyncio.Task[None]] = set()
        self._order = FrameOrder()
        self._queries = tuple(queries)
        self._provider_uuid = str(provider_uuid)
        self._ping_interval = ping_interval
        self._confirm_timeout = confirm_timeout
        self._backoff = Backoff(reconnect_initial, reconnect_max)
        self._sleep = sleep

    async def items(self) -> AsyncGenerator[StreamItem, None]:
        """Yield what arrives, for ever; leaving the loop closes the connection."""
        loop = asyncio.get_running_loop()
        while True:
            connected_at: float | None = None
            try:
                async with aclosing(self._connection()) as connection:
                    async for item in connection:
                        if isinstance(item, Connected):
                            connected_at = loop.time()
                        yield item
            except StreamBroken as broken:
                if connected_at is not None and loop.time() - connected_at >= _HEALTHY_SECONDS:
                    self._backoff.reset()
                delay = self._backoff.next_delay()
                yield Lost(reason=broken.reason, detail=str(broken), delay=delay)
                await self._sleep(delay)

    def break_off(self, reason: str) -> None:
        """End the present connection, with `reason` for its `Lost`; without one nothing happens. On the loop only."""
        if self._socket is not None and not self._break_reason:
            self._break_reason = reason
            task = asyncio.get_running_loop().create_task(self._socket.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _connection(self) -> AsyncGenerator[StreamItem, None]:
        """One connection from its handshake to its end, which is always `StreamBroken`."""
        url = self._url()
        self._break_reason = ""
        self._order = FrameOrder()
        try:
            socket = await connect(
                url,
                ssl=(self._trust or True) if url.startswith("wss:") else None,
                open_timeout=_HANDSHAKE_SECONDS,
                ping_interval=self._ping_interval,
                ping_timeout=self._ping_interval,
                close_timeout=min(1.0, self._ping_interval),
                max_size=_MAX_FRAME_BYTES,
                max_queue=_WAITING_FRAMES,
                compression=None,
                proxy=None,
            )
        except (OSError, TimeoutError, InvalidHandshake, InvalidURI, EOFError) as error:
            raise StreamBroken("connect", detail=str(error) or type(error).__name__) from error
        self._socket = socket
        try:
            if url != self._url():
                raise StreamBroken("switched", detail="another node is asked now")
            for early in await self._subscribe(socket):
                yield early
            bad_frames = 0
            while True:
                text = await socket.recv()
                try:
                    item = self.read(text)
                except (msgspec.MsgspecError, ValueError, UnicodeDecodeError):
                    bad_frames += 1
                    noticed.fault("frame_unreadable", repr(text[:100]))
                    if bad_frames == _BAD_FRAMES_BEFORE_WARNING:
                        log.warning("stream.unreadable", frames=bad_frames)
                    continue
                if item is not None:
                    bad_frames = 0
                    yield item
        except ConnectionClosed as closed:
            raise StreamBroken(self._break_reason or _reason(closed), detail=str(closed)) from closed
        finally:
            self._socket = None
            await socket.close()

    async def _subscribe(self, socket: ClientConnection) -> list[StreamItem]:
        """Subscribe to all queries; return `Connected` and what already arrived."""
        for number, query in enumerate(self._queries, start=1):
            frame = {"jsonrpc": "2.0", "method": "subscribe", "id": number, "params": {"query": query}}
            await socket.send(msgspec.json.encode(frame).decode())
        waiting = set(range(1, len(self._queries) + 1))
        early: list[StreamItem] = [Connected()]
        try:
            async with asyncio.timeout(self._confirm_timeout):
                while waiting:
                    text = await socket.recv()
                    try:
                        item = self.read(text)
                        confirmed = _confirmed(text)
                    except (msgspec.MsgspecError, ValueError, UnicodeDecodeError):
                        continue
                    if confirmed is not None:
                        waiting.discard(confirmed)
                    if item is not None:
                        early.append(item)
        except TimeoutError as error:
            raise StreamBroken("unconfirmed", detail=f"subscriptions {sorted(waiting)}") from error
        return early

    def read(self, text: str | bytes) -> LeaseEvents | Header | None:
        """Read one frame; None when it holds nothing for us.

        Raises `StreamBroken` for an error frame, ValueError (of msgspec too) for what is no frame.
        """
        frame = msgspec.json.decode(text, type=_Frame)
        if frame.error is not None:
            raise StreamBroken("error_frame", detail=f"{frame.error.code} {frame.error.message}: {frame.error.data}")
        if frame.result is None or frame.result.events is None:
            return None
        value = msgspec.json.decode(frame.result.data, type=_Data).value if frame.result.data else _DataValue()
        if value.header is not None:
            header = value.header
            self._order.note(frame.id, int(header.height))
            return Header(
                height=int(header.height),
                time=events.moment(header.time),
                chain_id=header.chain_id,
                last_hash=header.last_block_id.hash.upper(),
            )
        flat = frame.result.events
        height = int(value.TxResult.height if value.TxResult is not None else value.height)
        tx_hash = (flat.get("tx.hash") or [""])[0]
        self._order.note(frame.id, height, tx_hash)
        found = events.typed(self._occurrences(flat, value), height=height, tx_hash=tx_hash)
        return LeaseEvents(found, height, tx_hash) if found else None

    def _occurrences(self, flat: dict[str, list[str]], value: _DataValue) -> Iterator[Occurrence]:
        listed = value.TxResult.result.events if value.TxResult is not None else value.events
        if listed:
            return events.from_list(listed, self._provider_uuid)
        return events.from_map(flat, self._provider_uuid)


class FrameOrder:
    """The order of one connection's frames, which the node keeps inside each subscription and not between them."""

    def __init__(self) -> None:
        self._last: dict[int | str | None, tuple[int, set[str]]] = {}

    def note(self, subscription: int | str | None, height: int, tx_hash: str = "") -> None:
        """A frame came: count it as a fault when it came before, or after one of a later block."""
        last, seen = self._last.get(subscription, (-1, set()))
        if height > last:
            self._last[subscription] = height, {tx_hash}
        elif height < last:
            noticed.fault("frame_disordered", f"block {height} after {last}")
        elif tx_hash in seen:
            noticed.fault("frame_doubled", f"block {height} {tx_hash}")
        else:
            seen.add(tx_hash)


def event_queries(provider_uuid: UUID) -> tuple[str, ...]:
    """Return the queries for what changes leases without us: five, as many as one connection may have.

    The uuid stands in the query as it is (the language has no quoting), which is why it is a UUID and no text.
    """
    return (
        f"tm.event='Tx' AND lease_created.provider_uuid='{provider_uuid}'",
        "tm.event='Tx' AND lease_auto_closed.reason='credit_exhausted'",
        f"tm.event='Tx' AND lease_closed.provider_uuid='{provider_uuid}'",
        f"tm.event='NewBlockEvents' AND lease_expired.provider_uuid='{provider_uuid}'",
        f"tm.event='Tx' AND lease_cancelled.provider_uuid='{provider_uuid}'",
    )


def echo_queries(provider_uuid: UUID) -> tuple[str, ...]:
    """Return the queries of a second connection: new blocks, and what our own transactions and domains cause."""
    return (
        HEADER_QUERY,
        *(
            f"tm.event='Tx' AND {kind.value}.provider_uuid='{provider_uuid}'"
            for kind in (
                events.EventType.ACKNOWLEDGED,
                events.EventType.REJECTED,
                events.EventType.DOMAIN_SET,
                events.EventType.DOMAIN_CLEARED,
            )
        ),
    )


def trusting(ca_file: str) -> ssl.SSLContext:
    """Return a client's TLS that trusts this bundle only. Raises `ChainError` when it cannot be used."""
    try:
        text = Path(ca_file).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ChainError(f"failed to read CA file: {error}") from error
    try:
        return ssl.create_default_context(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise ChainError("failed to parse CA certificate") from error


def _confirmed(text: str | bytes) -> int | None:
    frame = msgspec.json.decode(text, type=_Frame)
    if frame.result is None or frame.result.events is not None or not isinstance(frame.id, int):
        return None
    return frame.id


def _reason(closed: ConnectionClosed) -> str:
    is_ours = closed.rcvd is None and closed.sent is not None
    return "ping" if is_ours and closed.sent is not None and "keepalive" in closed.sent.reason else "closed"
