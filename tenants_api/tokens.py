"""Tenant tokens: proof by ADR-036 that the caller holds the key of the lease's tenant. No Django inside.

Two kinds exist. An access token signs ``<tenant>:<lease>:<timestamp>`` and opens the lease's routes; a payload token
signs ``manifest lease data <lease> <meta_hash> <timestamp>`` and opens the upload only.
"""

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import orjson
from coincurve import PublicKey

from fred.decoding import DecodeError, decode_base64, decode_object
from leases.chain import address
from leases.chain.keys import SigningKey

MAX_AGE_S: Final = 30
MAX_AHEAD_S: Final = 10
HOST_SKEW_S: Final = 5
"""Room for clock differences between our own hosts while a used token is remembered."""

_ORDER: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
_FIELDS: Final[Mapping[str, type]] = {
    "tenant": str,
    "lease_uuid": str,
    "timestamp": int,
    "pub_key": str,
    "signature": str,
}
_PAYLOAD_FIELDS: Final[Mapping[str, type]] = {**_FIELDS, "meta_hash": str}
"""An access token may have such a member too, of any type: nothing reads it there."""
_KEY_BYTES: Final = 33
_SCALAR_BYTES: Final = 32
_HASH_HEX: Final = 64


class InvalidToken(Exception):
    """The token proves nothing. Callers see one 401; stage and reason are for the log."""

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(f"{stage}: {reason}")
        self.stage = stage
        self.reason = reason


@dataclass(frozen=True, slots=True)
class TenantToken:
    """A verified token: who speaks, about which lease (as written, not normalised), since when."""

    tenant: str
    lease_uuid: str
    timestamp: int
    replay_key: str
    meta_hash: bytes | None = None

    @property
    def spent_until(self) -> int:
        """Unix second until which a use of this token must be remembered."""
        return self.timestamp + MAX_AGE_S + HOST_SKEW_S


def bearer(header: str | None) -> str:
    """Take the token text out of an Authorization header: any letter case of the scheme, then exactly one blank.

    Raises InvalidToken when the header is missing or of another form.
    """
    scheme, blank, text = (header or "").partition(" ")
    if not blank or scheme.lower() != "bearer":
        raise InvalidToken("parse", "no bearer token")
    return text


def access_message(tenant: str, lease_uuid: str, timestamp: int) -> bytes:
    """Build the bytes that an access token signs."""
    return f"{tenant}:{lease_uuid}:{timestamp}".encode()


def payload_message(lease_uuid: str, meta_hash: str, timestamp: int) -> bytes:
    """Build the bytes that a payload token signs; the tenant stands in the sign document."""
    return f"manifest lease data {lease_uuid} {meta_hash} {timestamp}".encode()


def sign_document(message: bytes, signer: str) -> bytes:
    """Build the canonical amino JSON of ADR-036 around a message; its SHA-256 is what is signed."""
    return orjson.dumps(
        {
            "account_number": "0",
            "chain_id": "",
            "fee": {"amount": [], "gas": "0"},
            "memo": "",
            "msgs": [
                {"type": "sign/MsgSignData", "value": {"data": b64encode(message).decode("ascii"), "signer": signer}}
            ],
            "sequence": "0",
        }
    )


def access_token(text: str, *, prefix: str, now: float) -> TenantToken:
    """Verify an access token for addresses with this bech32 prefix at this unix time. Raises InvalidToken."""
    fields = _parse(text, _FIELDS)
    tenant, lease_uuid, timestamp = fields["tenant"], fields["lease_uuid"], fields["timestamp"]
    _check_lease(lease_uuid)
    replay_key = _verify(fields, access_message(tenant, lease_uuid, timestamp), prefix=prefix, now=now)
    return TenantToken(tenant, lease_uuid, timestamp, replay_key)


def payload_token(text: str, *, prefix: str, now: float) -> TenantToken:
    """Verify a payload token; its meta hash comes back decoded. Raises InvalidToken."""
    fields = _parse(text, _PAYLOAD_FIELDS)
    tenant, lease_uuid, timestamp = fields["tenant"], fields["lease_uuid"], fields["timestamp"]
    _check_lease(lease_uuid)
    meta_hash = _hash_bytes(fields["meta_hash"])
    message = payload_message(lease_uuid, fields["meta_hash"], timestamp)
    replay_key = _verify(fields, message, prefix=prefix, now=now)
    return TenantToken(tenant, lease_uuid, timestamp, replay_key, meta_hash)


def mint(key: SigningKey, *, tenant: str, lease_uuid: str, timestamp: int, meta_hash: str | None = None) -> str:
    """Make a token text, signed deterministically (RFC 6979); with a meta hash (hex) it is a payload token."""
    fields: dict[str, Any] = {"tenant": tenant, "lease_uuid": lease_uuid}
    if meta_hash is None:
        message = access_message(tenant, lease_uuid, timestamp)
    else:
        message = payload_message(lease_uuid, meta_hash, timestamp)
        fields["meta_hash"] = meta_hash
    signature = key.sign(hashlib.sha256(sign_document(message, tenant)).digest())
    fields["timestamp"] = timestamp
    fields["pub_key"] = b64encode(key.public_key).decode("ascii")
    fields["signature"] = b64encode(signature).decode("ascii")
    return b64encode(orjson.dumps(fields)).decode("ascii")


def _parse(text: str, named: Mapping[str, type]) -> dict[str, Any]:
    try:
        return decode_object(decode_base64(text), named)
    except DecodeError as error:
        raise InvalidToken("parse", str(error)) from None


def _check_lease(lease_uuid: str) -> None:
    if not lease_uuid:
        raise InvalidToken("validate", "lease_uuid is empty")


def _hash_bytes(meta_hash: str) -> bytes:
    if len(meta_hash) != _HASH_HEX:
        raise InvalidToken("validate", "meta_hash is not 64 characters")
    try:
        decoded = bytes.fromhex(meta_hash)
    except ValueError:
        raise InvalidToken("validate", "meta_hash is not hex") from None
    if len(decoded) != _HASH_HEX // 2:  # bytes.fromhex skips blanks
        raise InvalidToken("validate", "meta_hash is not hex")
    return decoded


def _verify(fields: Mapping[str, Any], message: bytes, *, prefix: str, now: float) -> str:
    """Check times, key, signature and address; return the replay key."""
    tenant, timestamp = fields["tenant"], fields["timestamp"]
    if not tenant:
        raise InvalidToken("validate", "tenant is empty")
    if now - timestamp > MAX_AGE_S:
        raise InvalidToken("validate", "token expired")
    if timestamp - now > MAX_AHEAD_S:
        raise InvalidToken("validate", "timestamp too far ahead")
    try:
        key_bytes, signature = decode_base64(fields["pub_key"]), decode_base64(fields["signature"])
    except DecodeError:
        raise InvalidToken("validate", "pub_key or signature is not base64") from None
    return _proof(hashlib.sha256(sign_document(message, tenant)).digest(), key_bytes, signature, tenant, prefix)


@lru_cache(maxsize=10_000)
def _proof(digest: bytes, key_bytes: bytes, signature: bytes, tenant: str, prefix: str) -> str:
    """Check that this tenant signed this digest; return base64 of the signature in its low-S form.

    That is made anew from the decoded bytes, because several texts decode to the same signature. Who asks again within
    a token's time has it proved already; what was not proved is not remembered. Each argument is short once it passed.
    """
    if len(signature) != 2 * _SCALAR_BYTES:
        raise InvalidToken("validate", "signature is not 64 bytes")
    r, s = int.from_bytes(signature[:_SCALAR_BYTES]), int.from_bytes(signature[_SCALAR_BYTES:])
    if not (0 < r < _ORDER and 0 < s < _ORDER):
        raise InvalidToken("validate", "signature out of range")
    s = min(s, _ORDER - s)
    key, owner = _key_and_address(key_bytes, prefix)
    if not key.verify(_der(r, s), digest, hasher=None):
        raise InvalidToken("validate", "signature does not match")
    if owner != tenant:
        raise InvalidToken("validate", "key belongs to another address")
    return b64encode(r.to_bytes(_SCALAR_BYTES) + s.to_bytes(_SCALAR_BYTES)).decode("ascii")


@lru_cache(maxsize=10_000)
def _key_and_address(key_bytes: bytes, prefix: str) -> tuple[PublicKey, str]:
    """Decompress a public key and name its address; both are slow and the same tenants come again."""
    if len(key_bytes) != _KEY_BYTES:
        raise InvalidToken("validate", "public key is not 33 bytes")
    try:
        key = PublicKey(key_bytes)
    except ValueError:
        raise InvalidToken("validate", "public key is no point of the curve") from None
    return key, address.of_public_key(key_bytes, prefix)


def _der(r: int, s: int) -> bytes:
    """Encode two scalars as an ASN.1 sequence, the only form the curve library's verification takes."""
    body = b"".join(b"\x02" + bytes([len(part)]) + part for part in (_integer(r), _integer(s)))
    return b"\x30" + bytes([len(body)]) + body


def _integer(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1)
