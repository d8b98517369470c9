"""The configured backends as rows, and the way back from a row and the configuration to a `BackendTarget`."""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from backends.client import BackendTarget
from backends.contract import Dialect
from backends.models import Backend
from fred import signing
from fred.conf import BackendConfig
from fred.http import Tls

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Synced:
    """Names that a sync added, changed, and found gone from the configuration."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unconfigured: tuple[str, ...] = ()


_FIELDS = ("url", "position", "skus", "is_default", "timeout_ms", "contract", "key_id", "configured")


def secret_of(entry: BackendConfig) -> str:
    """The key that signs for this backend: its own, else the one all share."""
    return entry.hmac_secret.get_secret_value() or settings.FRED.callback_secret.get_secret_value()


def _row(entry: BackendConfig, *, position: int, is_default: bool) -> Backend:
    secret = secret_of(entry)
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
    )


def rows_of(entries: Sequence[BackendConfig]) -> list[Backend]:
    """Unsaved rows of these entries; where none is marked, the first is the default."""
    marked = next((entry.name for entry in entries if entry.default), entries[0].name if entries else "")
    return [_row(entry, position=at, is_default=entry.name == marked) for at, entry in enumerate(entries)]


def sync_backends() -> Synced:
    """Bring the rows in line with the configuration; safe at every start and from several processes at once.

    A row that left the configuration stays, unconfigured, and receives no request. A fence set at run time is kept: the
    stricter of configuration and row wins.
    """
    wanted = {row.name: row for row in rows_of(settings.FRED.backends)}
    with transaction.atomic():
        known = set(Backend.objects.values_list("name", flat=True))
        Backend.objects.bulk_create(wanted.values(), ignore_conflicts=True)
        found = list(Backend.objects.select_for_update(no_key=True).order_by("name"))
        changed, gone = [], []
        for row in found:
            new = wanted.get(row.name)
            if new is None:
                if row.configured:
                    Backend.objects.filter(pk=row.pk).update(configured=False, updated_at=Now())
                    gone.append(row.name)
                continue
            updates = {name: getattr(new, name) for name in _FIELDS if getattr(new, name) != getattr(row, name)}
            if new.fenced and not row.fenced:
                updates["fenced"] = True
            if updates:
                Backend.objects.filter(pk=row.pk).update(**updates, updated_at=Now())
                changed.append(row.name)
        added = [name for name in wanted if name not in known]
    if gone:
        log.error("backends.unconfigured", backends=gone)
    return Synced(tuple(added), tuple(changed), tuple(gone))


def targets(*, page_size: int = 1000) -> dict[str, BackendTarget]:
    """How to reach each configured backend, by name and in configuration order; keys come from the configuration only.

    One statement reads the rows, for fences set at run time. `auto` means the dialect seen, `v0_13` while none was.
    """
    entries = {entry.name: entry for entry in settings.FRED.backends}
    rows = Backend.objects.filter(pk__in=entries, retired_at__isnull=True).order_by("position")
    return {row.name: target(row, entries[row.name], page_size=page_size) for row in rows}


def target(row: Backend, entry: BackendConfig, *, page_size: int = 1000) -> BackendTarget:
    """How to reach this backend: address and key of the configuration, fence and dialect of the row."""
    word = row.contract if row.contract != Backend.Contract.AUTO else row.dialect
    return BackendTarget(
        name=row.name,
        url=entry.url,
        secret=secret_of(entry),
        timeout=entry.timeout.total_seconds(),
        dialect=Dialect.CURRENT if word == Dialect.CURRENT else Dialect.V0_13,
        tls=Tls(
            ca_file=entry.tls_ca_file,
            client_cert_file=entry.tls_client_cert_file,
            client_key_file=entry.tls_client_key_file,
            skip_verify=entry.tls_skip_verify,
        ),
        page_size=page_size,
        fenced=row.fenced or entry.fenced,
    )
