"""The mock's maintenance: restart, update, restore, custom domains. Each begins here and ends in `endings`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from backends.agent_contract import NotRetained, RestoreSpec, TargetProvisioned
from backends.contract import (
    InvalidState,
    LeaseItem,
    NotProvisioned,
    ProvisionStatus,
    ValidationRefused,
)
from backends.items import normalise_items
from backends.mock import records, script
from backends.mock.records import Held, Task

if TYPE_CHECKING:
    from backends.mock.driver import MockBackend

_IDLE = (ProvisionStatus.READY, ProvisionStatus.FAILED)


def _idle(backend: MockBackend, lease_uuid: UUID, *, verb: str) -> Held:
    held = backend.shelf.held.get(lease_uuid)
    if held is None:
        raise NotProvisioned
    if held.status not in _IDLE:
        raise InvalidState(f"invalid state for {verb}")
    return held


async def restart(backend: MockBackend, lease_uuid: UUID, *, callback_url: str) -> None:
    """See `agent_contract.ServedBackend`."""
    held = _idle(backend, lease_uuid, verb="restart")

    def begin(held: Held) -> None:
        held.callback_url = callback_url
        held.status, held.task = ProvisionStatus.RESTARTING, Task.RESTART
        held.begin_release(held.payload, images=held.images, at=backend.clock.now())

    await backend.change(held, begin)


async def update(backend: MockBackend, lease_uuid: UUID, *, payload: bytes, callback_url: str) -> None:
    """See `agent_contract.ServedBackend`."""
    held = _idle(backend, lease_uuid, verb="update")
    manifest = script.parse(payload)
    images = manifest.images([item.service_name for item in held.items])

    def begin(held: Held) -> None:
        held.callback_url = callback_url
        held.status, held.task = ProvisionStatus.UPDATING, Task.UPDATE
        held.candidate, held.candidate_images, held.candidate_fate = payload, images, manifest.fate
        held.begin_release(payload, images=images, at=backend.clock.now())

    await backend.change(held, begin)


async def apply_domains(backend: MockBackend, lease_uuid: UUID, *, items: Sequence[LeaseItem]) -> None:
    """Redeploy a ready lease whose domains differ; anything else is none of our business."""
    held = backend.shelf.held.get(lease_uuid)
    if held is None or held.status is not ProvisionStatus.READY or not items:
        return
    try:
        wanted = {item.service_name: item.custom_domain for item in normalise_items(items)}
    except ValidationRefused:
        return  # items that no lease can have name no domain of this one
    changed = tuple(
        replace(item, custom_domain=wanted.get(item.service_name, item.custom_domain)) for item in held.items
    )
    if changed == held.items:
        return

    def begin(held: Held) -> None:
        held.status, held.task, held.domains = ProvisionStatus.RESTARTING, Task.RESTART, changed
        held.begin_release(held.payload, images=held.images, at=backend.clock.now())

    await backend.change(held, begin)


def _shape(items: Iterable[LeaseItem]) -> Counter[str]:
    shape: Counter[str] = Counter()
    for item in items:
        shape[item.service_name] += item.quantity
    return shape


async def restore(backend: MockBackend, spec: RestoreSpec) -> None:
    """See `agent_contract.ServedBackend`. The kept data are claimed before this returns, for this lease alone."""
    items = normalise_items(spec.items)
    if spec.source == spec.lease_uuid:
        raise ValidationRefused("from_lease_uuid must differ from lease_uuid")
    if spec.lease_uuid in backend.shelf.held:
        raise TargetProvisioned
    backend.reap()
    kept = backend.shelf.kept.get(spec.source)
    if kept is None or kept.tenant != spec.tenant:
        raise NotRetained
    if kept.target is not None:
        raise InvalidState("invalid state for restore")
    if spec.provider_uuid is not None and kept.provider_uuid not in (None, spec.provider_uuid):
        raise ValidationRefused("provider mismatch")
    if _shape(items) != _shape(kept.items):
        raise ValidationRefused("items do not match the shape of the retained lease")
    need = backend.room.need(items)
    backend.room.fits_data(kept.items, items)
    backend.room.admit(need)
    now = backend.clock.now()
    held = Held(
        lease_uuid=spec.lease_uuid,
        tenant=spec.tenant,
        provider_uuid=spec.provider_uuid,
        items=items,
        callback_url=spec.callback_url,
        created_at=now,
        images=kept.images,
        fate=kept.fate,
        payload=kept.payload,
        task=Task.RESTORE,
        restored_from=spec.source,
    )
    held.begin_release(kept.payload, images=held.images, at=now)
    claimed = replace(kept, target=spec.lease_uuid)
    backend.shelf.kept[spec.source] = claimed
    try:
        await backend.admit(held, need, also=records.save_kept(claimed) if backend.store is not None else None)
    except Exception:
        backend.shelf.kept[spec.source] = kept
        raise
