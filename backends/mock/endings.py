"""How the mock's work ends: what a result, a death and a teardown make of a provision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from backends.contract import ProvisionStatus, Reason
from backends.mock import records
from backends.mock.records import Diagnosis, Held, Task, Work
from backends.mock.script import MISSING, SUCCESS, Fate

if TYPE_CHECKING:
    from backends.mock.driver import MockBackend

_ROLLED_BACK, _NOT_ROLLED_BACK = "; rolled back to previous version", "; rollback failed"
_WORDS = {Task.RESTART: "restart failed", Task.UPDATE: "update failed", Task.RESTORE: "restore failed"}
_REASONS = {Task.RESTART: Reason.RESTART_FAILED, Task.UPDATE: Reason.UPDATE_FAILED, Task.RESTORE: Reason.RESTORE_FAILED}


@dataclass(frozen=True, slots=True)
class Left:
    """What a teardown leaves: whether data, what is written, and how to undo it when that can't be."""

    is_kept: bool
    work: Work | None
    undo: Callable[[], object]


def logs_of(held: Held, *, plain: bool) -> dict[str, str]:
    """The logs of a live lease; none if no container of it ever ran."""
    if not held.has_logs:
        return {}
    return dict.fromkeys(["0"] if plain else held.instance_names(), "mock log output\n")


def conclude(backend: MockBackend, held: Held, overruled: Fate | None) -> tuple[str, Work | None]:
    """End what is under way, in memory; returns the text of a failure and what else is to be written."""
    task = held.task
    if task is Task.RESTORE:
        return _restored(backend, held, overruled)
    if task in (Task.RESTART, Task.UPDATE):
        return _maintained(backend, held, overruled), None
    fate = overruled if overruled is not None else held.fate
    if not fate.reason:
        _ready(held)
        return "", None
    held.end_release(reason=fate.reason, message=fate.message)
    return fail(backend, held, fate), None


def fail(_backend: MockBackend, held: Held, fate: Fate) -> str:
    """The lease has failed for this reason; returns the text for its callback."""
    held.status, held.task = ProvisionStatus.FAILED, Task.NONE
    held.reason, held.message = fate.reason, fate.message
    held.fail_count += 1
    return fate.message


def _ready(held: Held) -> None:
    held.status, held.task = ProvisionStatus.READY, Task.NONE
    held.reason = held.message = ""
    held.was_ready = True
    held.end_release()


def _maintained(backend: MockBackend, held: Held, overruled: Fate | None) -> str:
    task = held.task
    is_update = task is Task.UPDATE and held.candidate_images is not None
    natural = held.candidate_fate if is_update else held.fate
    fate = overruled if overruled is not None else natural
    if not fate.reason:
        if is_update:
            held.payload, held.images = held.candidate, held.candidate_images or {}
            held.fate = held.candidate_fate
        if held.domains:
            held.items, held.domains = held.domains, ()
        held.generation += 1
        _forget_candidate(held)
        _ready(held)
        return ""
    _forget_candidate(held)
    if is_update and fate.reason == MISSING.reason:  # nothing was touched yet, but the lease shows the failure
        held.end_release(reason=fate.reason, message=fate.message)
        return fail(backend, held, fate)
    plain, reason = _WORDS[task], _REASONS[task].value
    cause = fate.message if fate.reason == Reason.CONTAINER_EXITED.value else plain
    # What is put back is the version that ran before; a lease that never ran has none, a restart's is the same again.
    back = held.has_run and (is_update or not held.fate.reason)
    text = cause + (_ROLLED_BACK if back else _NOT_ROLLED_BACK)
    held.end_release(reason=reason, message=plain)
    held.generation += 1
    fail(backend, held, Fate(reason, text))
    if back:
        held.status = ProvisionStatus.READY
        if task is Task.RESTART:
            held.reason = held.message = ""
    return text


def _forget_candidate(held: Held) -> None:
    held.candidate, held.candidate_images, held.candidate_fate = b"", None, SUCCESS
    held.domains = ()


def _restored(backend: MockBackend, held: Held, overruled: Fate | None) -> tuple[str, Work | None]:
    source = held.restored_from
    kept = backend.shelf.kept.get(source) if source is not None else None
    fate = overruled if overruled is not None else held.fate
    held.restored_from = None
    if not fate.reason:
        _ready(held)
        if kept is None:
            return "", None
        del backend.shelf.kept[kept.lease_uuid]
        return "", records.delete_kept([kept.lease_uuid])
    held.end_release(reason=Reason.RESTORE_FAILED.value, message=_WORDS[Task.RESTORE])
    cause = fate.message if fate.reason == Reason.CONTAINER_EXITED.value else _WORDS[Task.RESTORE]
    text = fail(backend, held, Fate(Reason.RESTORE_FAILED.value, cause))
    if kept is None:
        return text, None
    free = replace(kept, target=None)
    backend.shelf.kept[kept.lease_uuid] = free
    return text, records.save_kept(free)


def leave(backend: MockBackend, held: Held) -> Left:
    """What is left of a provision that goes: its data, also those it was only about to take over; or its failure."""
    lease, shelf, store = held.lease_uuid, backend.shelf, backend.store
    if held.restored_from is not None and (source := shelf.kept.get(held.restored_from)) is not None:
        free = replace(source, target=None)
        shelf.kept[source.lease_uuid] = free
        work = records.together(records.delete_held(lease), records.save_kept(free)) if store is not None else None

        def claim_again() -> None:
            shelf.kept[source.lease_uuid] = source

        return Left(is_kept=False, work=work, undo=claim_again)
    kept = backend.keep(held)
    if kept is not None:
        shelf.kept[lease] = kept
        work = records.together(records.delete_held(lease), records.save_kept(kept)) if store is not None else None
        return Left(is_kept=True, work=work, undo=lambda: shelf.kept.pop(lease, None))
    works: list[Work] = [records.delete_held(lease)] if store is not None else []
    if held.status is ProvisionStatus.FAILED:
        diagnosis = Diagnosis(
            lease, held.provider_uuid, backend.clock.now(), held.fail_count, held.reason, held.message,
            logs=logs_of(held, plain=backend.settings.plain),
        )  # fmt: skip
        over = shelf.diagnose(diagnosis)
        if store is not None:
            works += [records.save_diagnosis(diagnosis), records.delete_diagnoses(over)]
    return Left(
        is_kept=False,
        work=records.together(*works) if store is not None else None,
        undo=lambda: shelf.diagnoses.pop(lease, None),
    )
