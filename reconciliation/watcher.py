"""The watcher: what the chain tells becomes rows and wakes, and nothing else.

Two connections. One brings lease events, stored as they come; they never move the cursor. The other brings headers
and what our own transactions cause: each header makes our open transactions due for a look-up, and has every block up
to it read and stored, which alone moves the cursor. So a lost, broken or doubled frame costs nothing, and two watchers
do each other no harm.

A node behind what was seen before, of another chain or of one that began anew, is refused: its events are old or
foreign. The cursor never goes back; looks learn from the age of the head that nothing fresh is known, and from the
suspicion of `reconciliation.suspicion` that nothing of this chain is to be believed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
import structlog
from django.db import Error as DatabaseFailure
from django.db import connection

from fred import metrics
from fred.conf import ProviderConfig
from leases.chain import configured, noticed
from leases.chain.errors import ChainError
from leases.chain.events import Header, LeaseEvent
from leases.chain.rpc import NodeRpc
from leases.chain.stream import ChainStream, Connected, LeaseEvents, Lost, echo_queries, event_queries
from reconciliation import waiting_sql, watch_sql, watch_store
from reconciliation.suspicion import Judge
from reconciliation.watch_blocks import Blocks
from reconciliation.watch_owed import DEAF_SECONDS, Owed

log = structlog.get_logger("reconciliation.watcher")

BEAT_SECONDS = 10.0
"""How often it is written that somebody watches, also while the chain is silent."""
SILENT_SECONDS = 30.0
"""Without a new head for so long the chain counts as silent."""
RETRY_SECONDS = 1.0
MIND_SECONDS = 1.0
AGAIN_S = (0.15, 0.25, 0.4)
"""Pauses after a header at which our open transactions are made due once more: a node indexes its block in between."""
LATE_BLOCKS = 3
"""A frame whose block lies so far behind the newest header is late."""
STREAM_TOPIC = "events.chain"
NO_ANSWER, NO_STREAM = "the chain does not answer", "the event stream is not connected"
RECONNECT_LABELS = {
    "error_frame": "error_frame", "unconfirmed": "no_confirmation", "ping": "silent", "silent": "silent",
}  # fmt: skip
LOST_FAULTS = {
    "connect": "stream_connect", "error_frame": "stream_error", "unconfirmed": "stream_unconfirmed",
    "ping": "stream_half_open", "closed": "stream_closed",
}  # fmt: skip

T = TypeVar("T")


class Watcher:
    """One watcher process. `run` returns when `stop` is set; a kill at any moment loses nothing."""

    def __init__(self, config: ProviderConfig) -> None:
        self._config = config
        self._nodes = configured.endpoints(config)
        self._rpcs = configured.node_rpcs(config, self._nodes)
        self._stopping = threading.Event()
        self._owed = Owed()
        self._blocks = Blocks(lambda: self._rpc, pause=self._stopping.wait, told=self._owed.told_by_block)
        self._judge = Judge()
        # A thread for each kind, with a connection of its own: a large block must not hold a frame up.
        self._threads = {
            name: ThreadPoolExecutor(1, f"watch-{name}")
            for name in ("frames", "heads", "blocks", "status", "beat", "nudges")
        }
        self._frames: asyncio.Queue[LeaseEvents] = asyncio.Queue()
        self._newest: Header | None = None
        self._has_newest = asyncio.Event()
        self._has_block = asyncio.Event()
        self._wants_blocks = asyncio.Event()
        self._begun = asyncio.Event()
        self._cursor = 0
        self._target = 0
        self._fresh_at = 0.0
        self._heard_header_at = 0.0
        self._complaint = "the chain has not answered yet"
        self._refused = False
        self._away: set[str] = set()
        self._events = self._stream(event_queries(config.provider_uuid))
        self._headers = self._stream(echo_queries(config.provider_uuid))
        self._connected_to = self._nodes.index

    @property
    def _rpc(self) -> NodeRpc:
        """The RPC of the node that is asked now."""
        return self._rpcs[self._nodes.index]

    async def run(self, stop: asyncio.Event) -> None:
        """Watch until `stop` is set."""
        work: list[Coroutine[Any, Any, None]] = [
            self._hear_events(),
            self._hear_headers(),
            self._store_frames(),
            self._note_heads(),
            self._nudge_again(),
            self._read_blocks(),
            self._mind_streams(),
            self._beat(),
        ]
        tasks = [asyncio.create_task(one) for one in work]
        ended = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait([ended, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {ended}:
                task.result()
        finally:
            self._stopping.set()
            for task in (ended, *tasks):
                task.cancel()
            await asyncio.gather(ended, *tasks, return_exceptions=True)
            for thread in self._threads.values():
                thread.submit(_close_connection)
                thread.shutdown(wait=False)

    # What the connections bring

    async def _hear_events(self) -> None:
        async for item in self._events.items():
            match item:
                case LeaseEvents():
                    self._take(item)
                case Connected():
                    log.info("watcher.connected")
                    self._connected("events")
                    await self._ask_node()
                    self._owed.connected(above=max(self._target, self._newest.height if self._newest else 0))
                case Lost():
                    self._owed.lost()
                    self._lost("events", item)
                case _:
                    pass

    async def _hear_headers(self) -> None:
        async for item in self._headers.items():
            match item:
                case Header():
                    self._newest = item
                    self._heard_header_at = time.monotonic()
                    self._has_newest.set()
                    self._has_block.set()
                case LeaseEvents():
                    self._take(item)
                case Connected():
                    self._heard_header_at = time.monotonic()
                    self._connected("headers")
                    await self._ask_node()
                case Lost():
                    self._lost("headers", item)
                case _:
                    pass

    def _take(self, frame: LeaseEvents) -> None:
        self._owed.told_by_frame(frame.height)
        if self._newest is not None and frame.height <= self._newest.height - LATE_BLOCKS:
            noticed.fault("frame_late", f"block {frame.height} at {self._newest.height}")
        self._frames.put_nowait(frame)

    def _stream(self, queries: tuple[str, ...]) -> ChainStream:
        return _CountedStream(
            lambda: self._nodes.current.websocket,
            queries=queries,
            provider_uuid=self._config.provider_uuid,
            ping_interval=self._config.websocket_ping_interval.total_seconds(),
            reconnect_initial=self._config.websocket_reconnect_initial.total_seconds(),
            reconnect_max=self._config.websocket_reconnect_max.total_seconds(),
            ca_file=self._config.grpc_tls_ca_file,
        )

    def _connected(self, stream: str) -> None:
        self._away.discard(stream)
        self._connected_to = self._nodes.index
        self._nodes.note(self._nodes.index, answered=True)

    def _lost(self, stream: str, lost: Lost) -> None:
        self._away.add(stream)
        metrics.CHAIN_RECONNECTS.labels(RECONNECT_LABELS.get(lost.reason, "closed")).inc()
        if lost.reason in LOST_FAULTS:
            noticed.fault(LOST_FAULTS[lost.reason], lost.detail)
        if lost.reason == "connect":
            self._nodes.note(self._nodes.index, answered=False)
        self._complaint = NO_STREAM
        log.warning("watcher.lost", reason=lost.reason, detail=lost.detail, delay=lost.delay)

    async def _mind_streams(self) -> None:
        """Give connections up that pings say nothing against: to a node that was left, and those that tell nothing.

        While one is lost the node is asked instead: the next try to connect may be a minute away.
        """
        while True:
            await asyncio.sleep(MIND_SECONDS)
            if self._away:
                await self._ask_node()
            if self._nodes.index != self._connected_to:
                self._connected_to = self._nodes.index
                for stream in (self._events, self._headers):
                    stream.break_off("switched")
            if self._owed.is_deaf():
                log.warning("watcher.stream_tells_nothing", stream="events")
                self._events.break_off("silent")
            if "headers" not in self._away and self._fresh_at > self._heard_header_at + DEAF_SECONDS:
                log.warning("watcher.stream_tells_nothing", stream="headers")
                self._heard_header_at = time.monotonic()
                self._headers.break_off("silent")

    async def _ask_node(self) -> None:
        """After a connection: where does the node stand? Its blocks since the cursor are read at once."""
        try:
            status = await self._in_thread("status", self._rpc.status)
        except ChainError as error:
            if self._complaint != NO_ANSWER:
                log.info("watcher.no_status", error=str(error))
            self._refuse(NO_ANSWER)
            return
        if status.is_catching_up:
            noticed.fault("catching_up", f"height {status.height}")
            self._refuse("the node is catching up")
            return
        self._newest = Header(
            height=status.height, time=status.time, chain_id=status.chain_id, block_hash=status.block_hash
        )
        self._has_newest.set()

    # What becomes of it

    async def _store_frames(self) -> None:
        await self._begun.wait()
        while True:
            frames = [await self._frames.get()]
            while not self._frames.empty():
                frames.append(self._frames.get_nowait())
            # Up to the cursor every block was read and stored: this is a replay, or a chain that began anew.
            events = [event for frame in frames if frame.height > self._cursor for event in frame.events]
            if not events or self._refused:
                continue  # what a refused node told stands in no block that is read
            try:
                await self._in_thread("frames", watch_store.store_events, events)
            except DatabaseFailure as error:
                # Not lost: the cursor stands below, and their blocks are read.
                log.warning("watcher.frames_not_stored", events=len(events), error=str(error))
                _count_dropped(events)

    async def _note_heads(self) -> None:
        while True:
            await self._has_newest.wait()
            self._has_newest.clear()
            header = self._newest
            if header is None:
                continue
            try:
                complaint = await self._in_thread("heads", self._judge.complaint, header, self._rpc)
                if complaint:
                    self._refuse(complaint)
                    continue
                if not self._begun.is_set():
                    await self._begin(header)
                is_fresh = await self._in_thread("heads", _see, header)
            except DatabaseFailure as error:
                log.warning("watcher.head_not_stored", height=header.height, error=str(error))
            except ChainError as error:
                self._refuse(NO_ANSWER)
                log.info("watcher.no_status", error=str(error))
            else:
                if is_fresh:
                    self._fresh_at = time.monotonic()
                    self._complaint = ""
                    self._refused = False
                    self._target = max(self._target, header.height)
                    self._wants_blocks.set()
                    await self._send_scouts()
                continue  # if not, another watcher saw a higher one just now
            await asyncio.sleep(RETRY_SECONDS)
            self._has_newest.set()

    async def _send_scouts(self) -> None:
        """Have some of what waits for the chain looked at; the block itself is read and counts in any case."""
        try:
            await self._in_thread("heads", waiting_sql.scout)
        except DatabaseFailure as error:
            log.warning("watcher.scouts_not_sent", error=str(error))

    async def _nudge_again(self) -> None:
        """A look-up at the moment of a block may come before its index, and would then wait for the next block."""
        while True:
            await self._has_block.wait()
            self._has_block.clear()
            for pause in AGAIN_S:
                await asyncio.sleep(pause)
                if self._has_block.is_set():
                    break
                try:
                    if not await self._in_thread("nudges", watch_store.nudge_lanes):
                        break
                except DatabaseFailure:
                    break  # the next header comes to the same, and says so

    def _refuse(self, complaint: str) -> None:
        if self._complaint != complaint:
            log.warning("watcher.refuses", reason=complaint)
        self._complaint = complaint
        self._refused = True

    async def _begin(self, header: Header) -> None:
        cursor = await self._in_thread("beat", _begin, header)
        self._cursor = cursor.last_height
        self._begun.set()

    async def _read_blocks(self) -> None:
        await self._begun.wait()
        while True:
            await self._wants_blocks.wait()
            self._wants_blocks.clear()
            try:
                reached = await self._in_thread("blocks", self._blocks.follow, self._target)
                self._cursor = max(self._cursor, reached)
            except (ChainError, DatabaseFailure) as error:
                log.warning("watcher.blocks_not_read", target=self._target, error=str(error))
            except Exception:
                # Frames go on being stored; the cursor waits for whoever mends this.
                metrics.THREAD_CRASHES.labels("watcher").inc()
                log.exception("watcher.blocks_not_read", target=self._target)
            else:
                continue
            await asyncio.sleep(RETRY_SECONDS)
            self._wants_blocks.set()

    async def _beat(self) -> None:
        while True:
            if time.monotonic() - self._fresh_at > BEAT_SECONDS - 1:
                await self._ask_node()
            try:
                await self._in_thread("beat", self._write_beat)
            except DatabaseFailure as error:
                log.warning("watcher.beat_not_written", error=str(error))
            await asyncio.sleep(BEAT_SECONDS)

    def _write_beat(self) -> None:
        watch_store.stay_trusted()
        silent = time.monotonic() - self._fresh_at > SILENT_SECONDS
        complaint = self._complaint or (NO_STREAM if self._away else "the chain is silent" if silent else "")
        watch_sql.write_health(healthy=not complaint, detail=complaint)

    async def _in_thread(self, name: str, call: Callable[..., T], *args: object) -> T:
        """Run blocking work in the thread of its kind; a broken database connection is given up."""

        def work() -> T:
            try:
                return call(*args)
            except DatabaseFailure:
                connection.close()
                raise

        return await asyncio.get_running_loop().run_in_executor(self._threads[name], work)


def _close_connection() -> None:
    connection.close()  # looked up here: each thread has its own


def _begin(header: Header) -> watch_sql.Cursor:
    return watch_store.begin(height=header.height, block_time=header.time)


def _see(header: Header) -> bool:
    return watch_store.see_block(height=header.height, block_time=header.time)


def _count_dropped(events: list[LeaseEvent]) -> None:
    for event in events:
        metrics.EVENTS_DROPPED.labels(event.type.value).inc()


class _CountedStream(ChainStream):
    """A stream that counts the frames it could not read. It goes on; what they told is found in their block."""

    def read(self, text: str | bytes) -> LeaseEvents | Header | None:
        try:
            return super().read(text)
        except (msgspec.MsgspecError, ValueError):
            metrics.MALFORMED_MESSAGES.labels(STREAM_TOPIC).inc()
            raise
