"""The mock's door: applies the rules to requests, keeps a record of them, and leads to the control API."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import orjson

from backends.agent import Agent
from backends.agent_metrics import AgentMetrics
from backends.agent_routes import Receive, Scope, Send, name_of
from backends.mock import spoil
from backends.mock.faults import Body, Crash, Hang, Latency, Listing, Lose, RequestRule, RuleBook, Status

MAX_RECORDS = 10_000
_KEPT_BODY = 64 * 1024
CONTROL = "/_mock/"


@dataclass(slots=True)
class Record:
    """One request as it came; `status` 0 was never answered."""

    at: float
    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    lease: str
    status: int = 0


@dataclass
class _Heard:
    """An answer of the agent that is not sent yet."""

    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""

    async def take(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message["headers"])
        else:
            self.body += message.get("body", b"")

    def replace(self, status: int, body: bytes, *, location: str = "") -> None:
        """Another answer in its place."""
        self.status, self.body = status, body
        kind = b"text/html" if body.startswith(b"<") else b"application/json"
        self.headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
        if location:
            self.headers.append((b"location", location.encode()))


@dataclass
class Door:
    """The ASGI application around an agent. `control` answers what is below `/_mock/`; None hides it."""

    agent: Agent
    book: RuleBook
    control: Callable[[Scope, bytes], Awaitable[tuple[int, Any]]] | None = None
    records: deque[Record] = field(default_factory=lambda: deque(maxlen=MAX_RECORDS))
    starts_eagerly: bool = True
    end_process: Callable[[int], object] = os._exit

    @property
    def metrics(self) -> AgentMetrics:
        """Those of the agent."""
        return self.agent.metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, as the rules have it."""
        if scope["type"] != "http":
            await self.agent(scope, receive, send)
            return
        if self.control is not None and scope["path"].startswith(CONTROL):
            status, content = await self.control(scope, await _whole(receive))
            said = _Heard()
            said.replace(status, orjson.dumps(content))
            await _say(send, said)
            return
        if self.control is None and not self.book:
            await self.agent(scope, receive, send)
            return
        await self._visit(scope, receive, send)

    async def _visit(self, scope: Scope, receive: Receive, send: Send) -> None:
        route, lease = name_of(scope["path"])
        messages, body = await _gather(receive)
        lease = lease or _lease_of(body)
        record = self._note(scope, body, lease)
        rules = self.book.requests(route, lease)

        async def noted(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
            await send(message)

        async def again() -> dict[str, Any]:
            return messages.popleft() if messages else dict(await receive())

        if not rules:
            await self.agent(scope, again, noted)
            return
        await self._wait(rules, "before")
        said = _Heard()
        if not any(isinstance(rule, Hang | Status | Lose | Crash) and not rule.effect for rule in rules):
            await self.agent(scope, again, said.take)
        await self._wait(rules, "answer")
        if not await self._end(rules, scope, receive):
            for rule in rules:
                self._spoil(rule, route, said, scope)
            await self._tell(rules, said, receive, noted)

    async def _end(self, rules: Sequence[RequestRule], scope: Scope, receive: Receive) -> bool:
        """Whether a rule has ended this request without any answer."""
        for rule in rules:
            if isinstance(rule, Crash):
                self.end_process(rule.status)
            elif isinstance(rule, Lose):
                _cut(scope)
                return True
            elif isinstance(rule, Hang) and rule.at == "answer":
                await _until_gone(receive)
                return True
        return False

    async def _tell(self, rules: Sequence[RequestRule], said: _Heard, receive: Receive, send: Send) -> None:
        pauses = [rule.seconds(self.book.chance) for rule in rules if isinstance(rule, Latency) and rule.at == "body"]
        stops = any(isinstance(rule, Hang) for rule in rules)
        if stops and not said.status:
            said.replace(200, b'{"provisions":[]}')
        if not stops and not pauses:
            await _say(send, said)
            return
        half = len(said.body) // 2
        await send({"type": "http.response.start", "status": said.status, "headers": said.headers})
        await send({"type": "http.response.body", "body": said.body[:half], "more_body": True})
        if stops:
            await _until_gone(receive)
            return
        await asyncio.sleep(sum(pauses))
        await send({"type": "http.response.body", "body": said.body[half:]})

    def _note(self, scope: Scope, body: bytes, lease: str) -> Record:
        query = scope["query_string"].decode("latin-1")
        target = scope["path"] + (f"?{query}" if query else "")
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        record = Record(time.time(), scope["method"], target, headers, body[:_KEPT_BODY], lease)
        self.records.append(record)
        return record

    async def _wait(self, rules: Sequence[RequestRule], at: str) -> None:
        waits = [rule.seconds(self.book.chance) for rule in rules if isinstance(rule, Latency) and rule.at == at]
        if waits:
            await asyncio.sleep(sum(waits))

    @staticmethod
    def _spoil(rule: object, route: str, said: _Heard, scope: Scope) -> None:
        if isinstance(rule, Status):
            location = "http://127.0.0.1:9/elsewhere" if rule.shape == "redirect" else ""
            said.replace(rule.status, spoil.error_body(rule), location=location)
        elif isinstance(rule, Listing) and said.status == 200 and route in {"provisions", "retentions"}:
            after = parse_qs(scope["query_string"].decode("latin-1")).get("continue", [""])[0]
            said.replace(*spoil.listing(rule, route, orjson.loads(said.body), after=after))
        elif isinstance(rule, Body) and said.status == 200 and route in {"logs", "stats"}:
            said.replace(200, spoil.body(rule, said.body))


async def _say(send: Send, said: _Heard) -> None:
    await send({"type": "http.response.start", "status": said.status, "headers": said.headers})
    await send({"type": "http.response.body", "body": said.body})


async def _gather(receive: Receive) -> tuple[deque[dict[str, Any]], bytes]:
    """The messages of a request's body, up to its end or 4 MiB, to be heard again; and the body."""
    messages: deque[dict[str, Any]] = deque()
    body = b""
    while len(body) <= 4 * 1024 * 1024:
        message = dict(await receive())
        messages.append(message)
        if message["type"] != "http.request":
            break
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    return messages, body


async def _whole(receive: Receive) -> bytes:
    return (await _gather(receive))[1]


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _lease_of(body: bytes) -> str:
    try:
        found = orjson.loads(body) if body else None
    except orjson.JSONDecodeError:
        return ""
    return str(found.get("lease_uuid", "")) if isinstance(found, dict) else ""


def _cut(scope: Scope) -> None:
    """Cut the connection; a server that can't is left to find out that nothing was answered."""
    cut = scope.get("extensions", {}).get("agent.cut")
    if cut is not None:
        cut()
