"""Reading one callback request: limits, body, ids of the URL, meaning. Pure.

`limits_hold` and `parse` look at the body before its signature is checked, `read` afterwards.
"""

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final
from urllib.parse import unquote_to_bytes
from uuid import UUID

import msgspec

from fred.decoding import DecodeError, decode_object, decode_uuid

MAX_STRUCTURAL_TOKENS: Final = 256
MAX_NESTING: Final = 16

_NOT_STRUCTURAL: Final = bytes(set(range(256)) - set(b'"{}[]:,'))
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_V4: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_ONE_ID: Final = re.compile(rb"(operation|lifecycle)_id=([0-9a-f-]{36})")
_BAD_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_UTC_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z")


class Selector(StrEnum):
    """Which id the URL carries, and so what the callback may speak about."""

    OPERATION = "operation"
    LIFECYCLE = "lifecycle"
    TOKENLESS = "tokenless"


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of a callback, zero where it did not give them."""

    lease_uuid: str = ""
    status: str = ""
    error: str = ""
    backend: str = ""
    retained: bool = False
    backend_storage_id: str = ""
    maintenance_id: str = ""
    maintenance_admitted_at: str = ""


_FIELDS: Final[Mapping[str, type]] = {name: bool if name == "retained" else str for name in Body.__struct_fields__}
_PLAIN: Final = msgspec.json.Decoder(Body)
"""Reads what nearly every sender sends; what it refuses is read again by the lenient rules."""


class Refused(Exception):
    """The request is answered with this text and this status; nothing of it is stored."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.text = text
        self.status = status


class VerifiedCallback(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A callback whose signature and form are right. Two of them are never equal: each is one request to answer."""

    lease_uuid: UUID
    selector: Selector
    selector_id: UUID | None
    status: str
    error: str
    retained: bool
    storage_id: UUID | None
    backend_label: str
    maintenance_id: UUID | None
    maintenance_admitted_at: datetime | None
    body_sha256: bytes
    senders: frozenset[str] = frozenset()
    """Backends that own the key it was signed with; empty: a key that names none."""
    repeated: bool = False
    """The same signature was committed before: a repeat of a delivery, or of words that fit two events of a second."""


def limits_hold(body: bytes) -> bool:
    """Whether the body has at most 256 structural tokens and 16 levels of nesting, counted outside strings."""
    marks = body.translate(None, _NOT_STRUCTURAL)
    if len(marks) <= MAX_STRUCTURAL_TOKENS and marks.count(b"{") + marks.count(b"[") <= MAX_NESTING:
        return True
    marks = _STRING.sub(b'"', body).translate(None, _NOT_STRUCTURAL)
    if len(marks) > MAX_STRUCTURAL_TOKENS:
        return False
    depth = 0
    for mark in marks:
        depth += (mark in b"{[") - (mark in b"}]")
        if depth > MAX_NESTING:
            return False
    return True


def parse(body: bytes, *, identity_required: bool) -> Body | None:
    """Read a body whose signature is still to be checked; None when it is no such object.

    A body that claims a storage identity (any body when one is required) must have it in canonical form and be one
    plain object without repeated or oddly cased names. Raises Refused otherwise.
    """
    try:
        try:
            fields = _PLAIN.decode(body)
        except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
            fields = Body(**decode_object(body, _FIELDS))
        if fields.backend_storage_id or identity_required:
            fields = Body(**decode_object(body, _FIELDS, strict=True))
    except DecodeError:
        if identity_required or b"backend_storage_id" in body:
            raise Refused("invalid request body") from None
        return None
    if (fields.backend_storage_id or identity_required) and not _V4.fullmatch(fields.backend_storage_id):
        raise Refused("invalid request body")
    return fields


def read(fields: Body | None, body: bytes, *, query: bytes, senders: frozenset[str] = frozenset()) -> VerifiedCallback:
    """Say what a callback means whose signature was right. Raises Refused with the text that its sender gets."""
    if fields is None:
        raise Refused("invalid request body")
    with_identity = bool(fields.backend_storage_id)
    lease_uuid = _lease_uuid(fields.lease_uuid, canonical=with_identity)
    selector, selector_id = _selector(query)
    if fields.status not in {"success", "failed", "deprovisioned"}:
        raise Refused("status must be 'success', 'failed', or 'deprovisioned'")
    if with_identity or selector is not Selector.TOKENLESS:
        _check_combinations(fields, selector, with_identity=with_identity)
    maintenance_id = fields.maintenance_id
    return VerifiedCallback(
        lease_uuid=lease_uuid,
        selector=selector,
        selector_id=selector_id,
        status=fields.status,
        error=fields.error.replace("\x00", ""),
        retained=fields.retained,
        storage_id=UUID(fields.backend_storage_id) if with_identity else None,
        backend_label=fields.backend.replace("\x00", ""),
        maintenance_id=UUID(maintenance_id) if _V4.fullmatch(maintenance_id) else None,
        maintenance_admitted_at=_admitted_at(fields.maintenance_admitted_at),
        body_sha256=hashlib.sha256(body).digest(),
        senders=senders,
    )


def _lease_uuid(text: str, *, canonical: bool) -> UUID:
    if not text:
        raise Refused("lease_uuid is required")
    try:
        lease_uuid = decode_uuid(text)
    except DecodeError:
        raise Refused("lease_uuid must be a valid UUID") from None
    if canonical and str(lease_uuid) != text:
        raise Refused("lease_uuid must be a valid UUID")
    return lease_uuid


def _selector(query: bytes) -> tuple[Selector, UUID | None]:
    """Take the one id out of the raw query. An id that is there but wrong is refused, never read as no id."""
    if not query:
        return Selector.TOKENLESS, None
    usual = _ONE_ID.fullmatch(query)
    if usual and _V4.fullmatch(text := usual[2].decode()):
        return Selector.OPERATION if usual[1] == b"operation" else Selector.LIFECYCLE, UUID(text)
    found: dict[bytes, list[str]] = {b"operation_id": [], b"lifecycle_id": []}
    for pair in query.split(b"&"):
        if b";" in pair or _BAD_ESCAPE.search(pair):
            raise Refused("callback query is malformed")
        name, _, value = pair.replace(b"+", b" ").partition(b"=")
        values = found.get(unquote_to_bytes(name))
        if values is not None:
            values.append(unquote_to_bytes(value).decode("utf-8", "replace"))
    chosen: tuple[Selector, UUID | None] = (Selector.TOKENLESS, None)
    for name, selector in ((b"operation_id", Selector.OPERATION), (b"lifecycle_id", Selector.LIFECYCLE)):
        values = found[name]
        if values and (len(values) > 1 or not _V4.fullmatch(values[0])):
            raise Refused(f"{name.decode()} must be a single canonical UUIDv4")
        if values:
            chosen = (selector, UUID(values[0]))
    if found[b"operation_id"] and found[b"lifecycle_id"]:
        raise Refused("callback URL must carry exactly one capability kind")
    return chosen


def _check_combinations(fields: Body, selector: Selector, *, with_identity: bool) -> None:
    """Refuse what a sender with typed URLs or an identity can't mean.

    A sender without identity goes on using the one URL it was given, so there `deprovisioned` may come on it.
    """
    deprovisioned, maintenance_id = fields.status == "deprovisioned", fields.maintenance_id
    admitted_at = fields.maintenance_admitted_at
    if deprovisioned and selector is Selector.OPERATION and with_identity:
        raise Refused("deprovisioned status requires lifecycle or legacy callback authority")
    if fields.retained and not deprovisioned:
        raise Refused("retained requires deprovisioned status")
    if maintenance_id and not _V4.fullmatch(maintenance_id):
        raise Refused("maintenance_id must be a canonical UUIDv4")
    if maintenance_id and (deprovisioned or selector is Selector.OPERATION):
        raise Refused("maintenance_id requires a result on a lifecycle URL")
    if admitted_at and (not maintenance_id or _admitted_at(admitted_at) is None):
        raise Refused("maintenance_admitted_at must be a UTC time beside maintenance_id")


def _admitted_at(text: str) -> datetime | None:
    """Read RFC 3339 in UTC written with Z, cut to microseconds; None for any other form."""
    if not _UTC_TIME.fullmatch(text):
        return None
    whole, _, fraction = text[:-1].partition(".")
    try:
        return datetime.fromisoformat(whole).replace(microsecond=int(fraction[:6].ljust(6, "0")), tzinfo=UTC)
    except ValueError:
        return None
