"""The routes of the backend contract: reading a request, calling the driver, shaping the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs
from uuid import UUID

import msgspec

from backends import agent_wire, callback_urls, paging, wire
from backends.agent_contract import RestoreSpec
from backends.contract import BackendError, NotProvisioned, ProvisionSpec, ValidationRefused

if TYPE_CHECKING:
    from backends.agent import Agent

MAX_LOOKUP = 100
DEFAULT_TAIL, MAX_TAIL = 100, 10_000

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Answer = tuple[int, Any]
T = TypeVar("T")


class Refusal(Exception):
    """An answer other than the handler's: status and text of the envelope."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Call:
    """One request, authenticated and read. `subject` is the lease in the path."""

    subject: str
    raw_query: bytes
    body: bytes

    @property
    def query(self) -> Mapping[str, Sequence[str]]:
        """The parameters, empty ones too."""
        return parse_qs(self.raw_query.decode("latin-1"), keep_blank_values=True)


Handler = Callable[["Agent", Call], Awaitable[Answer]]


def _lease(text: str) -> UUID:
    """The lease of a read; what is no UUID names no lease of ours."""
    try:
        return UUID(text)
    except ValueError:
        raise NotProvisioned from None


def _required_lease(text: str, *, name: str = "lease_uuid") -> UUID:
    if not text:
        raise ValidationRefused(f"{name} is required")
    try:
        return UUID(text)
    except ValueError:
        raise ValidationRefused(f"{name} must be a valid UUID") from None


def _provider(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None


def _decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ValidationRefused("invalid request body") from None


_PROVISION = msgspec.json.Decoder(wire.ProvisionRequest)
_LEASE = msgspec.json.Decoder(agent_wire.LeaseRequest)
_RESTART = msgspec.json.Decoder(agent_wire.RestartRequest)
_UPDATE = msgspec.json.Decoder(agent_wire.UpdateRequest)
_RESTORE = msgspec.json.Decoder(agent_wire.RestoreRequest)
_DOMAINS = msgspec.json.Decoder(agent_wire.DomainsRequest)


async def _provision(agent: Agent, call: Call) -> Answer:
    asked = _decode(_PROVISION, call.body)
    lease = _required_lease(asked.lease_uuid)
    callback_urls.check(asked.callback_url or "")
    if not asked.items:
        raise ValidationRefused("items is required")
    spec = ProvisionSpec(
        lease_uuid=lease,
        tenant=asked.tenant or "",
        provider_uuid=_provider(asked.provider_uuid),
        items=wire.to_items(asked.items),
        callback_url=asked.callback_url or "",
        payload=asked.payload or b"",
        payload_hash=asked.payload_hash or "",
        lifecycle_callback_url=asked.lifecycle_callback_url or "",
    )
    await agent.backend.provision(spec)
    return 202, {"provision_id": str(lease)}


async def _deprovision(agent: Agent, call: Call) -> Answer:
    asked = _decode(_LEASE, call.body)
    await agent.backend.deprovision(_required_lease(asked.lease_uuid))
    return 200, {"status": "ok"}


async def _restart(agent: Agent, call: Call) -> Answer:
    asked = _decode(_RESTART, call.body)
    lease = _required_lease(asked.lease_uuid)
    callback_urls.check(asked.callback_url or "")
    await agent.backend.restart(lease, callback_url=asked.callback_url or "")
    return 202, {"status": "restarting"}


async def _update(agent: Agent, call: Call) -> Answer:
    asked = _decode(_UPDATE, call.body)
    lease = _required_lease(asked.lease_uuid)
    callback_urls.check(asked.callback_url or "")
    if not asked.payload:
        raise ValidationRefused("payload is required")
    await agent.backend.update(lease, payload=asked.payload, callback_url=asked.callback_url or "")
    return 202, {"status": "updating"}


async def _restore(agent: Agent, call: Call) -> Answer:
    asked = _decode(_RESTORE, call.body)
    lease = _required_lease(asked.lease_uuid)
    source = _required_lease(asked.from_lease_uuid or "", name="from_lease_uuid")
    callback_urls.check(asked.callback_url or "")
    spec = RestoreSpec(
        lease_uuid=lease,
        source=source,
        tenant=asked.tenant or "",
        provider_uuid=_provider(asked.provider_uuid),
        items=wire.to_items(asked.items),
        callback_url=asked.callback_url or "",
    )
    await agent.backend.restore(spec)
    return 202, {"status": "restoring"}


async def _reconcile_custom_domain(agent: Agent, call: Call) -> Answer:
    asked = _decode(_DOMAINS, call.body)
    await agent.backend.reconcile_custom_domain(_required_lease(asked.lease_uuid), items=wire.to_items(asked.items))
    return 204, None


async def _info(agent: Agent, call: Call) -> Answer:
    return 200, wire.info_json(await agent.backend.info(_lease(call.subject)))


async def _provision_info(agent: Agent, call: Call) -> Answer:
    return 200, wire.provision_json(await agent.backend.provision_info(_lease(call.subject)))


async def _releases(agent: Agent, call: Call) -> Answer:
    return 200, [agent_wire.release_json(one) for one in await agent.backend.releases(_lease(call.subject))]


async def _provisions(agent: Agent, call: Call) -> Answer:
    query = call.query
    if "lease_uuid" in query:
        asked = query["lease_uuid"]
        if not 1 <= len(asked) <= MAX_LOOKUP:
            raise ValidationRefused(f"lease_uuid count must be between 1 and {MAX_LOOKUP}")
        try:
            leases = sorted({UUID(text) for text in asked})
        except ValueError:
            raise ValidationRefused("invalid lease_uuid") from None
        found = await agent.backend.lookup(leases)
        return 200, {"provisions": [wire.provision_json(row) for row in found]}
    page = paging.parse(query)
    listed = await agent.backend.provisions(after=page.after, limit=page.wanted)
    if not listed.complete:
        raise BackendError
    rows, following = paging.cut(listed.items, page, key=lambda row: row.lease_uuid)
    answer: dict[str, Any] = {"provisions": [wire.provision_json(row) for row in rows]}
    return 200, {**answer, "continue": following} if following else answer


async def _retentions(agent: Agent, call: Call) -> Answer:
    page = paging.parse(call.query)
    listed = await agent.backend.retentions(after=page.after, limit=page.wanted)
    if not listed.complete:
        raise BackendError
    rows, following = paging.cut(listed.items, page, key=lambda row: row.lease_uuid)
    answer: dict[str, Any] = {"retentions": [wire.retained_json(row) for row in rows]}
    return 200, {**answer, "continue": following} if following else answer


async def _logs(agent: Agent, call: Call) -> Answer:
    raw = call.query.get("tail", [str(DEFAULT_TAIL)])[0]
    if not (raw.isascii() and raw.isdigit()) or len(raw) > 18 or int(raw) == 0:
        raise ValidationRefused("tail must be a positive integer")
    if int(raw) > MAX_TAIL:
        raise ValidationRefused(f"tail must not exceed {MAX_TAIL}")
    return 200, dict(await agent.backend.logs(_lease(call.subject), tail=int(raw)))


async def _stats(agent: Agent, _call: Call) -> Answer:
    return 200, wire.stats_json(await agent.backend.stats())


async def _health(agent: Agent, _call: Call) -> Answer:
    await agent.backend.health()
    return 200, {"status": "healthy"}


async def _metrics(agent: Agent, _call: Call) -> Answer:
    return 200, agent.metrics.text()


_ROUTES: dict[str, tuple[str, str, Handler]] = {
    "/provision": ("POST", "provision", _provision),
    "/deprovision": ("POST", "deprovision", _deprovision),
    "/restart": ("POST", "restart", _restart),
    "/update": ("POST", "update", _update),
    "/restore": ("POST", "restore", _restore),
    "/reconcile_custom_domain": ("POST", "reconcile_custom_domain", _reconcile_custom_domain),
    "/provisions": ("GET", "provisions", _provisions),
    "/retentions": ("GET", "retentions", _retentions),
    "/stats": ("GET", "stats", _stats),
    "/health": ("GET", "health", _health),
    "/metrics": ("GET", "metrics", _metrics),
}
_SUBJECT_ROUTES: dict[str, tuple[str, str, Handler]] = {
    "info": ("GET", "info", _info),
    "provisions": ("GET", "provision_info", _provision_info),
    "logs": ("GET", "logs", _logs),
    "releases": ("GET", "releases", _releases),
}
OPEN = frozenset({"stats", "health", "metrics"})
"""Routes that need no signature."""


def name_of(path: str) -> tuple[str, str]:
    """Name of the route of this path and the lease in it; `other` for a path that is none."""
    found = _ROUTES.get(path)
    if found is not None:
        return found[1], ""
    _, noun, subject, *rest = (*path.split("/"), "", "")
    found = _SUBJECT_ROUTES.get(noun) if subject and not any(rest) else None
    return (found[1], subject) if found is not None else ("other", "")


def route(method: str, path: str) -> tuple[str, Handler, str]:
    """Name, handler and the lease in the path. Raises `Refusal`: 404, 405."""
    found = _ROUTES.get(path)
    subject = ""
    if found is None:
        _, noun, subject, *rest = (*path.split("/"), "", "")
        found = _SUBJECT_ROUTES.get(noun) if subject and not any(rest) else None
    if found is None:
        raise Refusal(404, "not found")
    allowed, name, handler = found
    if method != allowed:
        raise Refusal(405, "method not allowed")
    return name, handler, subject
