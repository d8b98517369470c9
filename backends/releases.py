"""The releases of a lease, as its backend tells them."""

from base64 import b64decode
from dataclasses import dataclass
from datetime import datetime

import msgspec

from backends.envelope import clean
from backends.wire import Count, read_time


class _Release(msgspec.Struct):
    """One release on the wire."""

    version: Count = 0
    status: str = ""
    image: str | None = None
    created_at: str | None = None
    reason: str | None = None
    message: str | None = None
    manifest: str | None = None


@dataclass(frozen=True, slots=True)
class ReleaseInfo:
    """One version of a lease's workload; `status` is the backend's word, `message` its curated text.

    `created_text` is the backend's own `created_at`, `manifest` None when it sent none.
    """

    version: int
    status: str = ""
    image: str = ""
    created_at: datetime | None = None
    reason: str = ""
    message: str = ""
    manifest: bytes | None = None
    created_text: str = ""


_decoder = msgspec.json.Decoder(list[_Release] | None)


def read_releases(body: bytes) -> tuple[ReleaseInfo, ...]:
    """The releases of an answer; null is none. Raises ValueError for anything else that is no list of them."""
    return tuple(
        ReleaseInfo(
            version=one.version,
            status=clean(one.status),
            image=clean(one.image or ""),
            created_at=read_time(one.created_at),
            reason=clean(one.reason or ("Unknown" if one.status == "failed" else "")),
            message=clean(one.message or ""),
            manifest=None if one.manifest is None else b64decode(one.manifest, validate=True),
            created_text=one.created_at or "",
        )
        for one in _decoder.decode(body) or ()
    )
