"""The mock's control API under `/_mock/`: faults, records, time, deaths, room. For tests; guarded by a token."""

from __future__ import annotations

import hmac
import os
from base64 import b64encode
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from backends.contract import BackendError, NotProvisioned
from backends.mock import faults
from backends.mock.driver import MockBackend
from backends.mock.faults import FaultError, RuleBook

if TYPE_CHECKING:
    from backends.agent_routes import Scope
    from backends.mock.courier import Courier
    from backends.mock.door import Door

_MAX_ADVANCE = 366 * 86_400
_SHOWN = 1000


class _Wish(msgspec.Struct, forbid_unknown_fields=True):
    """The body of every POST but that of faults."""

    lease_uuid: UUID | None = None
    advance_s: float = 0.0
    status: int = 1
    every_s: float = 0.0
    state: bool = False
    hold: bool | None = None
    total_cpu_cores: float | None = None
    total_memory_mb: float | None = None
    total_disk_mb: float | None = None


@dataclass
class Control:
    """Answers the control API of one mock."""

    token: str
    backend: MockBackend
    book: RuleBook
    door: Door
    courier: Courier
    end_process: Callable[[int], object] = os._exit

    async def __call__(self, scope: Scope, body: bytes) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        given = dict(scope["headers"]).get(b"authorization", b"")
        if not hmac.compare_digest(given, b"Bearer " + self.token.encode()):
            return 401, {"error": "a bearer token is required"}
        _, _, verb, *rest = scope["path"].split("/")
        try:
            if scope["method"] == "GET":
                return self._show(verb, rest)
            if verb == "faults":
                rules = faults.parse(body)
                self.book.add(rules)
                return 200, {"rules": len(self.book.rules)}
            return await self._do(verb, msgspec.json.decode(body or b"{}", type=_Wish))
        except (FaultError, msgspec.DecodeError, UnicodeDecodeError) as error:
            return 400, {"error": str(error)}
        except BackendError as error:
            return error.http_status, {"error": str(error)}

    def _show(self, verb: str, rest: list[str]) -> tuple[int, Any]:
        if verb == "state":
            return 200, {
                "rules": [{**msgspec.to_builtins(rule), "applied": applied} for rule, applied in self.book.rules],
                "applied": dict(self.book.counts),
                "provisions": len(self.backend.shelf.held),
                "retentions": len(self.backend.shelf.kept),
                "outbox": asdict(self.courier.outbox.counts),
                "now": self.backend.clock.now().isoformat(),
            }
        if verb == "requests":
            found = list(self.door.records)[-_SHOWN:]
            return 200, {"requests": [{**asdict(one), "body": one.body.decode(errors="replace")} for one in found]}
        if verb == "callbacks":
            sent = list(self.courier.records)[-_SHOWN:]
            return 200, {"callbacks": [{**asdict(one), "body": one.body.decode(errors="replace")} for one in sent]}
        if verb == "payload" and rest:
            held = next((one for lease, one in self.backend.shelf.held.items() if str(lease) == rest[0]), None)
            if held is None:
                raise NotProvisioned
            return 200, {"payload": b64encode(held.payload).decode()}
        return 404, {"error": "not found"}

    async def _do(self, verb: str, wish: _Wish) -> tuple[int, Any]:
        match verb:
            case "reset":
                self.book.clear()
                self.door.records.clear()
                self.courier.records.clear()
                if wish.state:
                    await self.backend.forget()
            case "clock":
                if not 0 <= wish.advance_s <= _MAX_ADVANCE:
                    raise FaultError("advance_s is 0 to a year")
                self.backend.clock.advance(timedelta(seconds=wish.advance_s))
            case "kill":
                await self.backend.kill(_lease(wish))
            case "flap":
                if wish.every_s < 1:
                    raise FaultError("every_s is at least 1")
                self.backend.flap(_lease(wish), seconds=wish.every_s)
            case "capacity":
                self._resize(wish)
            case "crash":
                self.end_process(wish.status)
            case _:
                return 404, {"error": "not found"}
        return 200, {"done": verb}

    def _resize(self, wish: _Wish) -> None:
        room = self.backend.room
        room.cpu = room.cpu if wish.total_cpu_cores is None else max(0.0, wish.total_cpu_cores)
        room.memory_mb = room.memory_mb if wish.total_memory_mb is None else max(0.0, wish.total_memory_mb)
        room.disk_mb = room.disk_mb if wish.total_disk_mb is None else max(0.0, wish.total_disk_mb)
        room.is_held = room.is_held if wish.hold is None else wish.hold


def _lease(wish: _Wish) -> UUID:
    if wish.lease_uuid is None:
        raise FaultError("lease_uuid is required")
    return wish.lease_uuid
