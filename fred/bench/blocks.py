"""When each block was seen, by one clock for all who are measured: the clock of this process."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Self
from uuid import UUID

from leases.chain.client import ChainLease
from leases.chain.events import Header
from leases.chain.stream import HEADER_QUERY, ChainStream, Connected


class UnseenBlockError(RuntimeError):
    """A lease names a block whose header never came; the run measured nothing."""


@dataclass(frozen=True, slots=True)
class Burst:
    """How leases went from their creation to ACTIVE: seconds each took as seen from here, and the blocks it took."""

    seconds: tuple[float, ...]
    blocks: int


class BlockClock:
    """Listens to the headers of a chain in a thread of its own and notes when each one came."""

    def __init__(self, url: str, provider_uuid: UUID) -> None:
        """Name the node's WebSocket; nothing connects before `__enter__`."""
        self._stream = ChainStream(url, queries=(HEADER_QUERY,), provider_uuid=provider_uuid)
        self._seen: dict[datetime, tuple[float, int]] = {}
        self._connected = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="blocks", daemon=True)

    def __enter__(self) -> Self:
        """Connect; raises UnseenBlockError when the node does not answer within 10 s."""
        self._thread.start()
        if not self._connected.wait(10):
            raise UnseenBlockError("the chain's WebSocket does not answer")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect."""
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(5)

    def of(self, leases: list[ChainLease]) -> Burst:
        """What became of these leases, all of which are ACTIVE."""
        created, height = self._when(min(_known(lease, lease.created_at) for lease in leases))
        ends = [self._when(_known(lease, lease.acknowledged_at)) for lease in leases]
        return Burst(tuple(at - created for at, _ in ends), max(number for _, number in ends) - height)

    def _when(self, block_time: datetime) -> tuple[float, int]:
        try:
            return self._seen[block_time]
        except KeyError:
            raise UnseenBlockError(f"the block of {block_time.isoformat()} was not seen") from None

    def _run(self) -> None:
        self._task = self._loop.create_task(self._listen())
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.close()

    async def _listen(self) -> None:
        async for item in self._stream.items():
            if isinstance(item, Header):
                self._seen[item.time] = (time.monotonic(), item.height)
            elif isinstance(item, Connected):
                self._connected.set()


def _known(lease: ChainLease, at: datetime | None) -> datetime:
    if at is None:
        raise UnseenBlockError(f"lease {lease.uuid} was read without its times")
    return at
