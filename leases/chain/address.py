"""Addresses: bech32 text over 20 bytes (accounts) or 32 bytes (derived ones)."""

from __future__ import annotations

import hashlib

import bech32

from leases.chain.errors import AddressInvalid
from leases.chain.ripemd160 import ripemd160

PREFIX = "manifest"
_CREDIT_MODULE = b"billing"


def encode(raw: bytes, prefix: str = PREFIX) -> str:
    """Return the bech32 form of these address bytes."""
    words = bech32.convertbits(raw, 8, 5)
    if words is None:
        raise AddressInvalid(f"{len(raw)} bytes cannot be written as bech32")
    return str(bech32.bech32_encode(prefix, words))


def decode(address: str, prefix: str = PREFIX) -> bytes:
    """Return the bytes of an address. Raises `AddressInvalid` for another prefix, a bad checksum or mixed case.

    All upper case is valid, as the bech32 rules say.
    """
    found, words = bech32.bech32_decode(address)
    if found is None or words is None:
        raise AddressInvalid(f"{address!r} is no bech32 address")
    if found != prefix:
        raise AddressInvalid(f"{address!r} has prefix {found!r}, expected {prefix!r}")
    raw = bech32.convertbits(words, 5, 8, False)
    if not raw:
        raise AddressInvalid(f"{address!r} holds no bytes")
    return bytes(raw)


def of_public_key(public_key: bytes, prefix: str = PREFIX) -> str:
    """Return the address of a compressed secp256k1 public key (33 bytes)."""
    return encode(bytes_of_public_key(public_key), prefix)


def bytes_of_public_key(public_key: bytes) -> bytes:
    """Return the 20 address bytes of a compressed public key: RIPEMD-160 of its SHA-256."""
    return ripemd160(hashlib.sha256(public_key).digest())


def of_tenant_credit(tenant: str, prefix: str = PREFIX) -> str:
    """Return the address that holds a tenant's credit.

    The billing module derives it as a module account with one key: the SHA-256 of `billing/credit/` and the tenant's
    bytes, under the type `module` and the module's name.
    """
    key = hashlib.sha256(b"billing/credit/" + decode(tenant, prefix)).digest()
    kind = hashlib.sha256(b"module").digest()
    return encode(hashlib.sha256(kind + _CREDIT_MODULE + b"\x00" + key).digest(), prefix)
