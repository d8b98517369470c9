"""What becomes of a provision at the mock: the tenant's manifest, or chance with a fixed seed, decides.

A manifest is a JSON object with an `image`, or with `services` whose members have one each. Nothing else of it counts.
An image of the registry `forbidden.example` is refused at the door; the tag `missing` cannot be pulled, and a container
of the tag `crash` exits while it starts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from uuid import UUID

import msgspec

from backends.contract import IMAGE_NOT_ALLOWED, INVALID_MANIFEST, Reason, ValidationRefused

FORBIDDEN_REGISTRY = "forbidden.example"


@dataclass(frozen=True, slots=True)
class Fate:
    """How a provision ends; without a reason it ends well. The message is what the callback says too."""

    reason: str = ""
    message: str = ""


SUCCESS = Fate()
CRASH = Fate(Reason.CONTAINER_EXITED.value, "container exited during startup")
MISSING = Fate(Reason.IMAGE_PULL_FAILED.value, "image pull failed")
CHANCE = Fate(Reason.INTERNAL.value, "internal error")

_FATE_OF_TAG: Mapping[str, Fate] = {"crash": CRASH, "missing": MISSING}


@dataclass(frozen=True, slots=True)
class Manifest:
    """The images of a manifest: `image` of a flat one, `services` by name otherwise."""

    image: str = ""
    services: Mapping[str, str] = field(default_factory=dict)

    def images(self, names: Iterable[str]) -> dict[str, str]:
        """The image of each of these services, as far as the manifest names one."""
        found = {name: self.services.get(name, self.image) for name in sorted(names)}
        return {name: image for name, image in found.items() if image}

    @property
    def every_image(self) -> tuple[str, ...]:
        """All images, in the order of the manifest."""
        return (self.image,) if self.image else tuple(self.services.values())

    @property
    def fate(self) -> Fate:
        """What the tags say: the first image that fails decides."""
        for image in self.every_image:
            name, at, _digest = image.partition("@")
            _, colon, tag = name.rpartition("/")[2].partition(":")
            if colon and not at and tag in _FATE_OF_TAG:
                return _FATE_OF_TAG[tag]
        return SUCCESS


NO_MANIFEST = Manifest()
"""A lease without a payload gets one all the same: the mock runs nothing."""

_REMEMBERED: dict[bytes, Manifest] = {}
_MOST_REMEMBERED = 64
_LONGEST_REMEMBERED = 4096


def parse(payload: bytes) -> Manifest:
    """Read a manifest. Raises `ValidationRefused`: `invalid_manifest`, or `image_not_allowed`."""
    known = _REMEMBERED.get(payload)
    if known is not None:
        return known
    manifest = _read(payload)
    for image in manifest.every_image:
        registry = image.partition("/")[0].partition(":")[0].lower() if "/" in image else ""
        if registry == FORBIDDEN_REGISTRY:
            raise ValidationRefused(f"image not allowed: {image}", validation_code=IMAGE_NOT_ALLOWED)
    if len(payload) <= _LONGEST_REMEMBERED:  # a burst of leases usually brings the same few manifests
        if len(_REMEMBERED) >= _MOST_REMEMBERED:
            _REMEMBERED.clear()
        _REMEMBERED[payload] = manifest
    return manifest


def _read(payload: bytes) -> Manifest:
    try:
        found = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _invalid("not JSON") from None
    if not isinstance(found, dict):
        raise _invalid("not a JSON object")
    image, services = found.get("image"), found.get("services")
    if image is not None:
        return Manifest(image=_image(image, where=""))
    if not isinstance(services, dict) or not services:
        raise _invalid("image is required")
    names = {
        name: _image(one.get("image") if isinstance(one, dict) else None, where=f'service "{name}": ')
        for name, one in services.items()
    }
    return Manifest(services=names)


def _image(image: object, *, where: str) -> str:
    if not isinstance(image, str) or not image:
        raise _invalid(f"{where}image is required")
    return image


def _invalid(why: str) -> ValidationRefused:
    return ValidationRefused(f"invalid manifest: {why}", validation_code=INVALID_MANIFEST)


def by_chance(lease_uuid: UUID, *, fail_ratio: float, seed: int) -> Fate:
    """`fail_ratio` of the leases fail, for the same seed the same ones."""
    if fail_ratio > 0:
        digest = sha256(f"{seed}/{lease_uuid}".encode()).digest()
        if int.from_bytes(digest[:8]) / 2**64 < fail_ratio:
            return CHANCE
    return SUCCESS
