"""Between the mock and its outbox: callbacks that the rules drop, double, hold back, reorder or falsify."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from backends.agent_eager import run
from backends.contract import Callback, CallbackStatus
from backends.mock.faults import Report, RuleBook
from backends.outbox import Outbox, Row, body_of, target_of
from fred import signing
from fred.http import Request, Response

MAX_RECORDS = 10_000
_OVERSIZE = 2 * 1024 * 1024
_FALSE = frozenset({"wrong_key", "old", "future", "unsigned", "tampered", "wrong_query", "retained", "oversize"})
_Sending = tuple[Callback, str, str]


@dataclass(frozen=True, slots=True)
class Sent:
    """One delivery as it was tried; `status` is None where there was no answer."""

    at: float
    lease: str
    body: bytes
    mark: str
    status: int | None


@dataclass
class Courier:
    """A `contract.Reporter` in front of the outbox. What it holds back is in memory only, whatever the store."""

    outbox: Outbox
    book: RuleBook
    records: deque[Sent] = field(default_factory=lambda: deque(maxlen=MAX_RECORDS))
    end_process: Callable[[int], object] = os._exit

    def __post_init__(self) -> None:
        """Take the outbox's deliveries in hand."""
        self._swapped: dict[str, list[_Sending]] = {}
        # By URL and body of what they go behind: other leases' deliveries overtake each other.
        self._behind: dict[tuple[str, bytes], list[_Sending]] = {}
        self._late: dict[str, list[_Sending]] = {}
        self.outbox.alter = self._alter
        self.outbox.on_tried = self._tried

    async def report(self, callback: Callback, *, url: str, state: Callable[[Any], object] | None = None) -> None:
        """See `contract.Reporter`."""
        lease = str(callback.lease_uuid)
        rules = self.book.reports(callback.status.value, lease) if self.book else ()
        kinds: dict[str, Report] = {rule.kind: rule for rule in rules}
        mark = next((rule.kind for rule in rules if rule.kind in _FALSE), "")
        sending = (callback, url, mark)
        if kinds.keys() & {"drop", "delay", "reorder", "late", "crash"}:
            await self._only_state(state)
            if "crash" in kinds:
                self.end_process(1)
            self._hold(kinds, lease, sending)
            return
        copies = kinds["duplicate"].copies if "duplicate" in kinds else 1
        if "" in self._swapped:
            there = url, body_of(callback, backend=self.outbox.name)
            self._behind.setdefault(there, []).extend(self._swapped.pop(""))
        await self.outbox.report(callback, url=url, state=state, mark=mark)
        for _ in range(copies - 1):
            await self.outbox.report(callback, url=url, mark=mark)
        for held in self._swapped.pop(lease, ()):
            await self._send(held)
        if callback.status is CallbackStatus.DEPROVISIONED:
            for held in self._late.pop(lease, ()):
                await self._send(held)

    def _hold(self, kinds: dict[str, Report], lease: str, sending: _Sending) -> None:
        if "drop" in kinds:
            return
        if "delay" in kinds:
            asyncio.get_running_loop().call_later(kinds["delay"].seconds, lambda: run(self._send(sending)))
        elif "reorder" in kinds:
            # With a lease named it waits for the next of that lease, else for the next of any.
            self._swapped.setdefault(lease if kinds["reorder"].match.lease else "", []).append(sending)
        elif "late" in kinds:
            self._late.setdefault(lease, []).append(sending)

    async def _send(self, sending: _Sending) -> None:
        callback, url, mark = sending
        await self.outbox.report(callback, url=url, mark=mark)

    async def _only_state(self, state: Callable[[Any], object] | None) -> None:
        if self.outbox.store is not None and state is not None:
            await self.outbox.store.commit(state)

    def _tried(self, row: Row, response: Response) -> None:
        self.records.append(Sent(time.time(), row.lease_uuid, row.body[:4096], row.mark, response.status))
        for held in self._behind.pop((row.url, row.body), ()):
            run(self._send(held))

    def _alter(self, row: Row, request: Request) -> Request:
        body, url, moment, secret = row.body, row.url, int(time.time()), self.outbox.secret
        match row.mark:
            case "wrong_key":
                secret = secret[::-1] + "x"
            case "old":
                moment -= 3600
            case "future":
                moment += 3600
            case "wrong_query":
                url = url.partition("?")[0] + "?operation_id=not-an-id"
            case "retained":
                body = body[:-1] + b',"retained":true}'
            case "oversize":
                body = body[:-1] + b',"padding":"' + b"x" * _OVERSIZE + b'"}'
            case _:
                moment = int(time.time())
        header = signing.sign(secret, timestamp=moment, method="POST", target=target_of(url), body=body)
        headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)
        if row.mark != "unsigned":
            headers += ((signing.HEADER, header),)
        if row.mark == "tampered":
            body = body.replace(b'"status":', b'"status": ')
        return replace(request, url=url, headers=headers, body=body)
