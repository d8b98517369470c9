"""Tokens and bodies for calls of the tenant API."""

import time
import uuid

from leases.chain.keys import SigningKey
from tenants_api import tokens
from tests.tenants_api.vectors import KEYS, LEASE

PROVIDER = uuid.UUID("0190a1b2-0000-7000-8000-00000000000a")
SKU = uuid.UUID("0190a1b2-0000-7000-8000-0000000000f1")
CALL_LEAVES_S = 1.5
"""A short wait for a backend's answer, within which the call itself leaves also on a busy machine."""


def token(who="alice", lease=LEASE, **changes):
    """A fresh valid token text of a vector key."""
    key = SigningKey.from_hex(KEYS[who]["private_key_hex"])
    fields = {"tenant": KEYS[who]["address"]["manifest"], "lease_uuid": str(lease), "timestamp": int(time.time())}
    return tokens.mint(key, **{**fields, **changes})


def bearer(who="alice", lease=LEASE, **changes):
    """Headers with a fresh valid token."""
    return {"Authorization": f"Bearer {token(who, lease, **changes)}"}


def envelope(text, code):
    """The error body."""
    return {"error": text, "code": code}
