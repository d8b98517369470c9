"""The configured backends as rows: placements point at them, operators fence and drain them."""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from backends import targets
from backends.models import Backend
from fred import signing
from fred.conf import BackendConfig

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Synced:
    """Names that a sync added, changed, found gone from the configuration, and took a fence from."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unconfigured: tuple[str, ...] = ()
    lifted: tuple[str, ...] = ()


_FIELDS = ("url", "position", "skus", "is_default", "timeout_ms", "contract", "key_id", "configured")


def _row(entry: BackendConfig, *, position: int, is_default: bool) -> Backend:
    secret = settings.FRED.hmac_key(entry.name)
    return Backend(
        name=entry.name,
        url=entry.url,
        position=position,
        skus=[str(sku) for sku in entry.skus],
        is_default=is_default,
        timeout_ms=int(entry.timeout.total_seconds() * 1000),
        contract=entry.contract,
        key_id=signing.key_id(secret) if secret else "",
        configured=True,
        fenced=entry.fenced,
        fenced_by=Backend.BY_CONFIGURATION if entry.fenced else "",
    )


def rows_of(entries: Sequence[BackendConfig]) -> list[Backend]:
    """Unsaved rows of these entries; where none is marked, the first is the default."""
    marked = next((entry.name for entry in entries if entry.default), entries[0].name if entries else "")
    return [_row(entry, position=at, is_default=entry.name == marked) for at, entry in enumerate(entries)]


def sync_backends() -> Synced:
    """Bring the rows in line with the configuration; safe at every start and from several processes at once.

    A row that left the configuration stays, unconfigured, and receives no request; a retired one stays retired. A fence
    that an operator set is kept, one of the configuration is lifted when the configuration takes it back.
    """
    wanted = {row.name: row for row in rows_of(settings.FRED.backends)}
    with transaction.atomic():
        known = set(Backend.objects.values_list("name", flat=True))
        Backend.objects.bulk_create(wanted.values(), ignore_conflicts=True)
        found = list(Backend.objects.select_for_update(no_key=True).order_by("name"))
        changed, gone, lifted = [], [], []
        for row in found:
            new = wanted.get(row.name)
            if new is None:
                if row.configured:
                    Backend.objects.filter(pk=row.pk).update(configured=False, updated_at=Now())
                    gone.append(row.name)
                continue
            updates = {name: getattr(new, name) for name in _FIELDS if getattr(new, name) != getattr(row, name)}
            if new.fenced and not row.fenced:
                updates |= {"fenced": True, "fenced_by": Backend.BY_CONFIGURATION}
            elif row.fenced and not new.fenced and row.fenced_by == Backend.BY_CONFIGURATION:
                updates |= {"fenced": False, "fenced_by": ""}
                lifted.append(row.name)
            if row.retired_at is not None:
                log.error("backends.retired_name", backend=row.name)
            if updates:
                Backend.objects.filter(pk=row.pk).update(**updates, updated_at=Now())
                changed.append(row.name)
        added = [name for name in wanted if name not in known]
    if gone:
        log.error("backends.unconfigured", backends=gone)
    targets.forget()
    return Synced(tuple(added), tuple(changed), tuple(gone), tuple(lifted))
