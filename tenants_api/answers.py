"""The bodies of the tenant API, from facts. Fields stand in the order that clients know. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from backends.contract import Instance, LeaseInfo, LeaseItem, Port, ProvisionInfo, ProvisionStatus
from leases.status import LeaseState

RESTORE_HINT: Final = (
    "The data of this lease is kept for a while. Create a lease of the same shape and, while it is pending, call "
    "POST /v1/leases/{new_lease_uuid}/restore with from_lease_uuid set to this lease."
)
_MAX_PORT: Final = 65_535


@lru_cache
def state_name(state: int) -> str:
    """The chain's name of a lease state; a number that this build does not know as decimal text."""
    known = LeaseState.parse(state)
    return str(state) if known is None else f"LEASE_STATE_{known.name}"


def present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is empty, zero, false or null."""
    return {name: value for name, value in fields.items() if value}


def status_word(found: ProvisionInfo) -> str:
    """The backend's word for the state of a provision, also one that we don't know."""
    return found.said or found.status


def provision_fields(found: ProvisionInfo) -> dict[str, Any]:
    """What `status` and `provision` both tell of a provision, after its status and number of failures."""
    is_retained = found.status is ProvisionStatus.RETAINED
    budget = None if is_retained else found.terminal_budget
    fields: dict[str, Any] = {} if budget is None else {"terminal_budget": asdict(budget)}
    fields |= present({"reason": found.reason, "message": found.message})
    if is_retained:
        fields |= present(
            {
                "retained_until": _whole_seconds(found.retained_until),
                "items": [_item(item) for item in found.items],
                "restore_hint": RESTORE_HINT,
                "partition": found.partition,
            }
        )
    return fields


def connection(info: LeaseInfo) -> dict[str, Any]:
    """The `connection` member: the host always, the rest where there is any, names taken from instances at need."""
    services = {
        name: {
            **present({"fqdn": service.fqdn or _first_fqdn(service.instances)}),
            "instances": [_instance(instance) for instance in service.instances],
        }
        for name, service in sorted(info.services.items())
    }
    return {
        "host": info.host,
        **present(
            {
                "fqdn": info.fqdn or _first_fqdn(info.instances),
                "ports": _ports(info.ports),
                "instances": [_instance(instance) for instance in info.instances],
                "services": services,
                "protocol": info.protocol,
                "metadata": dict(sorted(info.metadata.items())),
            }
        ),
    }


def _first_fqdn(instances: Sequence[Instance]) -> str:
    return instances[0].fqdn if instances else ""


def _instance(instance: Instance) -> dict[str, Any]:
    return {
        "instance_index": instance.instance_index,
        **present(
            {
                "container_id": instance.container_id,
                "image": instance.image,
                "status": instance.status,
                "fqdn": instance.fqdn,
                "ports": _ports(instance.ports),
            }
        ),
    }


def _ports(ports: Mapping[str, Port]) -> dict[str, Any]:
    return {
        key: {"host_ip": port.host_ip, "host_port": port_number(port.host_port)} for key, port in sorted(ports.items())
    }


def port_number(text: str) -> int:
    """A port as a number; 0 for anything that is no plain decimal integer from 0 to 65535."""
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        return 0
    number = int(text)
    return number if 0 <= number <= _MAX_PORT else 0


def _item(item: LeaseItem) -> dict[str, Any]:
    optional = present({"service_name": item.service_name, "custom_domain": item.custom_domain})
    return {"sku": item.sku, "quantity": item.quantity, **optional}


def _whole_seconds(moment: datetime | None) -> str:
    """RFC 3339 in UTC, the fraction cut off."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if moment else ""
