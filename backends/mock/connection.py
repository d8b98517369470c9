"""Connection details the mock invents for a lease: always the same ones for the same lease."""

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from uuid import UUID

from backends.contract import Instance, LeaseInfo, LeaseItem, Port, ServiceInfo

_FIRST_PORT, _PORTS = 30_000, 20_000
_CONTAINER_PORT = "80/tcp"


def details(
    lease_uuid: UUID,
    *,
    backend: str,
    tenant: str,
    items: tuple[LeaseItem, ...],
    images: Mapping[str, str],
    host: str = "",
    generation: int = 0,
) -> LeaseInfo:
    """Where this lease would be reached, had it a workload. `host` replaces the invented name.

    Containers made anew, in another `generation`, have other ids.
    """
    digest = sha256(str(lease_uuid).encode()).digest()
    made = f"#{generation}" if generation else ""
    services: dict[str, ServiceInfo] = {}
    number = 0
    for name in sorted({item.service_name for item in items}):
        instances = []
        for index in range(sum(item.quantity for item in items if item.service_name == name)):
            instances.append(
                _instance(digest, f"{name}/{index}{made}", index=index, number=number, image=images.get(name, ""))
            )
            number += 1
        domain = next((item.custom_domain for item in items if item.service_name == name and item.custom_domain), "")
        services[name] = ServiceInfo(fqdn=domain, instances=tuple(instances))
    everything = tuple(instance for service in services.values() for instance in service.instances)
    plain = plain_details(lease_uuid, backend=backend, tenant=tenant, items=items, host=host)
    return replace(plain, ports=everything[0].ports if everything else {}, instances=everything, services=services)


def plain_details(
    lease_uuid: UUID, *, backend: str, tenant: str, items: tuple[LeaseItem, ...], host: str = ""
) -> LeaseInfo:
    """The same without instances, as the older mock tells it."""
    digest = sha256(str(lease_uuid).encode()).digest()
    return LeaseInfo(
        host=host or f"mock-{digest[:4].hex()}.example.com",
        protocol="https",
        metadata={
            "backend": backend,
            "lease_uuid": str(lease_uuid),
            "tenant": tenant,
            "sku": items[0].sku if items else "",
            "token": digest[4:20].hex(),
        },
    )


def _instance(digest: bytes, name: str, *, index: int, number: int, image: str) -> Instance:
    container = sha256(digest + name.encode()).hexdigest()[:12]
    port = _FIRST_PORT + (int.from_bytes(digest[20:24]) + number) % _PORTS
    return Instance(
        instance_index=index,
        container_id=container,
        image=image,
        status="running",
        ports={_CONTAINER_PORT: Port("0.0.0.0", str(port))},  # noqa: S104 (what a backend tells, nothing listens here)
    )
