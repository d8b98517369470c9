"""The JSON of the backend contract, to and from facts. Unknown fields are ignored; null and absent mean zero."""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar
from uuid import UUID

import msgspec
import orjson

from backends.contract import (
    Instance,
    LeaseInfo,
    LeaseItem,
    LoadStats,
    Port,
    ProvisionInfo,
    ProvisionSpec,
    ProvisionStatus,
    RetainedLease,
    ServiceInfo,
    TerminalBudget,
)
from backends.envelope import clean

_T = TypeVar("_T")
# What fits where it is kept and told; an answer with a larger number is malformed. A tenant chooses a quantity.
Count = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Quantity = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_NO_YEAR: Final = 1
"""Servers written in Go send the year 1 for "no time"."""
NO_TIME: Final = "0001-01-01T00:00:00Z"
_FRACTION: Final = re.compile(r"\.(\d+)(?=[Zz+-])")
_MICROSECONDS: Final = 6
_NANOSECONDS: Final = 9


class Item(msgspec.Struct, gc=False):
    """A lease item on the wire."""

    sku: str = ""
    quantity: Quantity = 0
    service_name: str | None = None
    custom_domain: str | None = None


class Budget(msgspec.Struct, gc=False):
    """A terminal budget on the wire."""

    verdict: str = ""
    consecutive_failures: Count = 0


class Row(msgspec.Struct):
    """A provision on the wire, as far as it is read."""

    lease_uuid: UUID
    status: str = ""
    created_at: str | None = None
    provider_uuid: str | None = None
    fail_count: Count = 0
    reason: str | None = None
    message: str | None = None
    retained_until: str | None = None
    tenant: str | None = None
    quantity: Quantity = 0
    items: list[Item] | None = None
    image: str | None = None
    sku: str | None = None
    service_images: dict[str, str] | None = None
    partition: str | None = None
    terminal_budget: Budget | None = None


class ProvisionsPage(msgspec.Struct):
    """One page of `/provisions`; the list has to be there, an empty backend sends an empty one."""

    provisions: list[Row]
    next: str | None = msgspec.field(name="continue", default=None)


class Retained(msgspec.Struct, gc=False):
    """A retained lease on the wire."""

    lease_uuid: UUID
    provider_uuid: str | None = None
    tenant: str | None = None


class RetentionsPage(msgspec.Struct):
    """One page of `/retentions`."""

    retentions: list[Retained]
    next: str | None = msgspec.field(name="continue", default=None)


class PortInfo(msgspec.Struct, gc=False):
    """A port on the wire."""

    host_ip: str | None = None
    host_port: str | int | float | None = None


class InstanceInfo(msgspec.Struct):
    """An instance on the wire."""

    instance_index: Count = 0
    container_id: str | None = None
    image: str | None = None
    status: str | None = None
    fqdn: str | None = None
    ports: dict[str, PortInfo] | None = None


class Service(msgspec.Struct):
    """A service on the wire."""

    fqdn: str | None = None
    instances: list[InstanceInfo] | None = None


class Info(msgspec.Struct):
    """`/info` on the wire."""

    host: str | None = None
    fqdn: str | None = None
    protocol: str | None = None
    ports: dict[str, PortInfo] | None = None
    instances: list[InstanceInfo] | None = None
    services: dict[str, Service] | None = None
    metadata: dict[str, str] | None = None


class Stats(msgspec.Struct):
    """`/stats` on the wire."""

    total_cpu_cores: float = 0.0
    allocated_cpu_cores: float = 0.0
    available_cpu_cores: float = 0.0
    total_memory_mb: float = 0.0
    allocated_memory_mb: float = 0.0
    available_memory_mb: float = 0.0
    total_disk_mb: float = 0.0
    allocated_disk_mb: float = 0.0
    available_disk_mb: float = 0.0
    active_containers: float = 0
    disk_withheld: bool = False


class ProvisionRequest(msgspec.Struct):
    """The body of `POST /provision`, as an agent reads it."""

    lease_uuid: str = ""
    tenant: str | None = None
    provider_uuid: str | None = None
    items: list[Item] | None = None
    callback_url: str | None = None
    lifecycle_callback_url: str | None = None
    payload: bytes | None = None
    payload_hash: str | None = None


def decode(body: bytes, kind: type[_T]) -> _T:
    """One JSON value of this kind; a member that is null counts as absent. Raises ValueError and RecursionError."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError:
        return msgspec.convert(_without_nulls(msgspec.json.decode(body)), kind)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_without_nulls(one) for one in value]
    return value


def read_time(text: str | None) -> datetime | None:
    """An RFC 3339 time in UTC, cut to microseconds; None for an absent or unreadable one, and for the year 1."""
    if not text:
        return None
    try:
        moment = msgspec.convert(_cut(text), datetime)
        if moment.tzinfo is None or moment.year <= _NO_YEAR:
            return None
        return moment.astimezone(UTC)
    except (msgspec.ValidationError, ValueError, OverflowError):
        return None


def utc_text(text: str | None) -> str:
    """The same time in UTC with the digits that it came with, nine at most; the year 1 for what `read_time` drops."""
    moment = read_time(text)
    if moment is None:
        return NO_TIME
    found = _FRACTION.search(text or "")
    digits = found[1][:_NANOSECONDS].rstrip("0") if found else ""
    fraction = f".{digits}" if digits else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z" if moment.year > 999 else NO_TIME


def _cut(text: str) -> str:
    """Leave off digits past the microseconds: the decoder rounds them, also up to the next second."""
    found = _FRACTION.search(text)
    if found is None or len(found[1]) <= _MICROSECONDS:
        return text
    return text[: found.start(1) + _MICROSECONDS] + text[found.end(1) :]


def _uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None


def to_items(items: Sequence[Item] | None) -> tuple[LeaseItem, ...]:
    """Lease items of the wire as facts."""
    return tuple(
        LeaseItem(clean(i.sku), i.quantity, clean(i.service_name or ""), clean(i.custom_domain or ""))
        for i in items or ()
    )


def to_provision(row: Row) -> ProvisionInfo:
    """A provision of the wire as a fact; a failed one without a reason has the reason `Unknown`."""
    status = ProvisionStatus.parse(row.status)
    budget = row.terminal_budget
    reason = clean(row.reason or "") or ("Unknown" if status is ProvisionStatus.FAILED else "")
    return ProvisionInfo(
        lease_uuid=row.lease_uuid,
        status=status,
        created_at=read_time(row.created_at),
        provider_uuid=_uuid(row.provider_uuid),
        fail_count=row.fail_count,
        reason=reason,
        message=clean(row.message or ""),
        retained_until=read_time(row.retained_until),
        tenant=clean(row.tenant or ""),
        quantity=row.quantity,
        items=to_items(row.items),
        image=clean(row.image or ""),
        sku=clean(row.sku or ""),
        service_images={clean(k): clean(v) for k, v in (row.service_images or {}).items()},
        partition=clean(row.partition or ""),
        terminal_budget=TerminalBudget(clean(budget.verdict), budget.consecutive_failures) if budget else None,
        said="" if row.status == status else clean(row.status),
        created_text=row.created_at or "",
    )


def to_retained(row: Retained) -> RetainedLease:
    """A retained lease of the wire as a fact."""
    return RetainedLease(row.lease_uuid, _uuid(row.provider_uuid), clean(row.tenant or ""))


def _text(port: str | float | None) -> str:
    return "" if port is None else str(port)


def _ports(ports: Mapping[str, PortInfo] | None) -> dict[str, Port]:
    return {key: Port(port.host_ip or "", _text(port.host_port)) for key, port in (ports or {}).items()}


def _instances(instances: Sequence[InstanceInfo] | None) -> tuple[Instance, ...]:
    return tuple(
        Instance(i.instance_index, i.container_id or "", i.image or "", i.status or "", i.fqdn or "", _ports(i.ports))
        for i in instances or ()
    )


def to_info(info: Info) -> LeaseInfo:
    """Connection details of the wire as a fact."""
    return LeaseInfo(
        host=info.host or "",
        fqdn=info.fqdn or "",
        protocol=info.protocol or "",
        ports=_ports(info.ports),
        instances=_instances(info.instances),
        services={
            name: ServiceInfo(service.fqdn or "", _instances(service.instances))
            for name, service in (info.services or {}).items()
        },
        metadata=info.metadata or {},
    )


def to_stats(stats: Stats) -> LoadStats:
    """Load of the wire as a fact."""
    values = {name: getattr(stats, name) for name in Stats.__struct_fields__ if name != "active_containers"}
    return LoadStats(active_containers=int(stats.active_containers), **values)


def _present(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value}


def item_json(item: LeaseItem) -> dict[str, object]:
    """A lease item for the wire."""
    optional = _present({"service_name": item.service_name, "custom_domain": item.custom_domain})
    return {"sku": item.sku, "quantity": item.quantity, **optional}


def provision_body(spec: ProvisionSpec) -> bytes:
    """The body of `POST /provision`."""
    body = {
        "lease_uuid": str(spec.lease_uuid),
        "tenant": spec.tenant,
        "provider_uuid": str(spec.provider_uuid or ""),
        "items": [item_json(item) for item in spec.items],
        "callback_url": spec.callback_url,
        **_present(
            {
                "lifecycle_callback_url": spec.lifecycle_callback_url,
                "payload": b64encode(spec.payload).decode(),
                "payload_hash": spec.payload_hash,
            }
        ),
    }
    return orjson.dumps(body)


def time_text(moment: datetime) -> str:
    """RFC 3339 in UTC, written with `Z`."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def provision_json(info: ProvisionInfo) -> dict[str, Any]:
    """A provision for the wire."""
    optional: dict[str, object] = {
        "reason": info.reason,
        "message": info.message,
        "retained_until": time_text(info.retained_until) if info.retained_until else "",
        "tenant": info.tenant,
        "partition": info.partition,
        "image": info.image,
        "sku": info.sku,
        "items": [item_json(item) for item in info.items],
        "service_images": dict(info.service_images),
    }
    return {
        "lease_uuid": str(info.lease_uuid),
        "provider_uuid": str(info.provider_uuid or ""),
        "status": info.status.value,
        "created_at": time_text(info.created_at) if info.created_at else NO_TIME,
        "fail_count": info.fail_count,
        "quantity": info.quantity,
        **_present(optional),
    }


def _ports_json(ports: Mapping[str, Port]) -> dict[str, object]:
    return {key: {"host_ip": port.host_ip, "host_port": port.host_port} for key, port in ports.items()}


def _instance_json(instance: Instance) -> dict[str, object]:
    words = {name: getattr(instance, name) for name in ("container_id", "image", "status", "fqdn")}
    return {"instance_index": instance.instance_index, **_present({**words, "ports": _ports_json(instance.ports)})}


def info_json(info: LeaseInfo) -> dict[str, object]:
    """Connection details for the wire; also what a tenant's answer is made from."""
    return _present(
        {
            "host": info.host,
            "fqdn": info.fqdn,
            "protocol": info.protocol,
            "ports": _ports_json(info.ports),
            "instances": [_instance_json(instance) for instance in info.instances],
            "services": {
                name: _present(
                    {"fqdn": service.fqdn, "instances": [_instance_json(instance) for instance in service.instances]}
                )
                for name, service in info.services.items()
            },
            "metadata": dict(info.metadata),
        }
    )


def retained_json(lease: RetainedLease) -> dict[str, object]:
    """A retained lease for the wire; whose it was is evidence inside the trusted hop."""
    whose = _present({"provider_uuid": str(lease.provider_uuid or ""), "tenant": lease.tenant})
    return {"lease_uuid": str(lease.lease_uuid), **whose}


def stats_json(stats: LoadStats) -> dict[str, object]:
    """Load for the wire."""
    fields: dict[str, object] = {name: getattr(stats, name) for name in Stats.__struct_fields__}
    if not stats.disk_withheld:
        del fields["disk_withheld"]
    return fields
