"""Texts that tenants see in status events and on chain. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from backends.contract import CHAIN_REJECTIONS, VALIDATION_REJECTION, cut_reason
from leases.status import LeaseState

PROVISIONING_FAILED = "provisioning failed"
CALLBACK_TIMEOUT = "callback timeout"
PAYLOAD_CORRUPTED = "payload corrupted"

CAPACITY = "insufficient_resources"
TIMED_OUT = "callback_timeout"
GONE = "deprovisioned"

ENDINGS: Mapping[LeaseState, str] = {
    LeaseState.CLOSED: "lease closed",
    LeaseState.REJECTED: "lease rejected",
    LeaseState.EXPIRED: "lease expired",
}


def chain_reason(text: str) -> str:
    """Make a backend's words fit for the chain: one line, no control characters, at most 256 bytes."""
    line = " ".join("".join(ch if ch.isprintable() or ch.isspace() else "" for ch in text).split())
    return cut_reason(line or PROVISIONING_FAILED)


def rejection(code: str) -> str:
    """The fixed text for a backend's validation refusal; nothing of the backend's own words goes on chain with it."""
    return CHAIN_REJECTIONS.get(code, VALIDATION_REJECTION)


def retained_text(lease: UUID) -> str:
    """How a tenant gets retained data back."""
    return (
        "data of this lease is kept for a while; to have it back, create a new lease of the same shape and, "
        f'while it is pending, POST /v1/leases/{{new_lease_uuid}}/restore with {{"from_lease_uuid": "{lease}"}}'
    )
