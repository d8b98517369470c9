"""What runs for some leases, told to everybody: whose it is, versions of images and addresses are no part of it."""

from contextlib import closing
from functools import partial
from typing import Any, Final
from uuid import UUID

import structlog
from django.db import connection
from django.http import HttpRequest, HttpResponse

from backends import targets, wire
from backends.client import ask_each
from backends.contract import ProvisionInfo, Unknown
from backends.requests import MAX_LOOKUP
from fred.decoding import DecodeError, decode_uuid
from tenants_api import answers, backend_reads, query
from tenants_api.errors import answer
from tenants_api.lease_route import open_route

_OWNERS: Final = """
    SELECT p.lease_uuid, p.backend FROM placements_placement AS p
     WHERE p.lease_uuid = ANY(%s) AND p.status = 'confirmed'
       AND NOT EXISTS (SELECT FROM placements_operation AS o
                        WHERE o.lease_uuid = p.lease_uuid AND o.settled_at IS NULL)
"""

log = structlog.get_logger(__name__)


@open_route("GET")
def workloads(request: HttpRequest) -> HttpResponse:
    """What backends have of these leases; a backend that does not answer is a warning."""
    asked = _leases(request)
    found, silent = _look_up(_whom_to_ask(asked))
    return answer(
        {
            "workloads": {str(lease): found[lease] for lease in sorted(found)},
            "warnings": [f'backend "{name}" unavailable' for name in silent],
        }
    )


def _leases(request: HttpRequest) -> set[UUID]:
    texts = query.of(request, "lease_uuid")
    if not texts:
        raise query.refuse("lease_uuid query parameter required")
    if len(texts) > MAX_LOOKUP:
        raise query.refuse(f"too many lease_uuid values (max {MAX_LOOKUP})")
    try:
        return {decode_uuid(text) for text in texts}
    except DecodeError:
        raise query.refuse("invalid lease_uuid") from None


def _whom_to_ask(leases: set[UUID]) -> dict[str, set[UUID]]:
    """Which leases each backend is asked about: a settled one only at its owner, any other one everywhere."""
    with connection.cursor() as cursor:
        cursor.execute(_OWNERS, [list(leases)])
        owners: dict[UUID, str] = dict(cursor.fetchall())
    unsettled = leases - owners.keys()
    asked = {name: set(unsettled) for name in targets.configured()}
    for lease, name in owners.items():
        asked.setdefault(name, set()).add(lease)
    return {name: wanted for name, wanted in asked.items() if wanted}


def _look_up(asked: dict[str, set[UUID]]) -> tuple[dict[UUID, dict[str, Any]], list[str]]:
    """What was found of each lease, and the names of those who did not answer; both in the backends' order."""
    known = {name: target for name in asked if (target := targets.target(name)) is not None}
    clients = {name: backend_reads.client(one) for name, one in known.items()}
    reads = ask_each({name: partial(one.begin_lookup, asked[name]) for name, one in clients.items()})
    with closing(reads):
        told = dict(reads)
    found: dict[UUID, dict[str, Any]] = {}
    silent = []
    for name in asked:
        rows = told.get(name)
        if rows is None or isinstance(rows, Unknown):
            log.warning("backend.no_workloads", backend=name, reason=rows.reason if rows else "it is not configured")
            silent.append(name)
            continue
        for row in rows if isinstance(rows, tuple) else ():
            if row.lease_uuid in found:
                log.warning("workload.told_twice", backend=name, lease_uuid=str(row.lease_uuid))
                continue
            found[row.lease_uuid] = _workload(row, name)
    return found, silent


def _workload(row: ProvisionInfo, backend: str) -> dict[str, Any]:
    if row.items:
        items = [
            _item(one.service_name, one.sku, row.service_images.get(one.service_name, ""), one.quantity)
            for one in row.items
        ]
    else:
        items = [_item("", row.sku, row.image, row.quantity)]
    return {
        "status": answers.status_word(row),
        "created_at": wire.utc_text(row.created_text),
        "backend_name": backend,
        "items": items,
    }


def _item(service: str, sku: str, image: str, count: int) -> dict[str, Any]:
    return {
        **answers.present({"service_name": service}),
        "sku": sku,
        **answers.present({"image": repository(image)}),
        "count": count,
    }


def repository(image: str) -> str:
    """An image's reference without its digest and its tag; the port of a registry stays."""
    name = image.partition("@")[0]
    tag = name.rfind(":")
    return name[:tag] if tag > name.rfind("/") else name
