"""What becomes of a provision at the mock: the tenant's manifest, or chance with a fixed seed, decides."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID

from backends.contract import DEFAULT_SERVICE, Reason

_IMAGE = re.compile(rb'["\']?image["\']?\s*:\s*["\']?([^\s"\',}\]]+)')
_FATE_OF_TAG: Mapping[str, "Fate"]


@dataclass(frozen=True, slots=True)
class Fate:
    """How a provision ends; without a reason it ends well. The message is what the callback says too."""

    reason: str = ""
    message: str = ""


SUCCESS = Fate()
CRASH = Fate(Reason.CONTAINER_EXITED.value, "container exited during startup")
MISSING = Fate(Reason.IMAGE_PULL_FAILED.value, "image pull failed")
CHANCE = Fate(Reason.INTERNAL.value, "internal error")

_FATE_OF_TAG = {"crash": CRASH, "missing": MISSING}


def images(payload: bytes, services: Iterable[str]) -> dict[str, str]:
    """The images a manifest names, in any format, given to the services in order; the last one serves the rest."""
    found = [match.decode(errors="replace") for match in _IMAGE.findall(payload)]
    names = sorted(services) or [DEFAULT_SERVICE]
    return {name: found[min(index, len(found) - 1)] for index, name in enumerate(names)} if found else {}


def fate(lease_uuid: UUID, *, payload: bytes, fail_ratio: float, seed: int) -> Fate:
    """An image with the tag `crash` or `missing` fails that way; of others the same `fail_ratio` fails each time."""
    for match in _IMAGE.findall(payload):
        _, colon, tag = match.decode(errors="replace").rpartition(":")
        if colon and tag in _FATE_OF_TAG:
            return _FATE_OF_TAG[tag]
    if fail_ratio > 0:
        digest = sha256(f"{seed}/{lease_uuid}".encode()).digest()
        if int.from_bytes(digest[:8]) / 2**64 < fail_ratio:
            return CHANCE
    return SUCCESS
