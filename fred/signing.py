"""The HMAC that protects both hops between the control plane and its backends.

A request carries ``X-Fred-Signature: t=<unix seconds>,sha256=<hex>``. The MAC covers the timestamp, the method, the
request target exactly as it stands in the request line, and the SHA-256 of the body, joined by line feeds. The same
header serves both directions. There is no nonce: a signature may be used again while it is fresh, so receivers have to
be idempotent.
"""

import binascii
import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

HEADER = "X-Fred-Signature"
MAX_AGE_SECONDS = 300
"""A signature of exactly this age still passes."""
MAX_AHEAD_SECONDS = 60
"""A signature dated exactly this far in the future still passes."""
MIN_KEY_BYTES = 32

_BLOCK_BYTES = 64
_EMPTY_BODY_HASH = hashlib.sha256(b"").hexdigest()
# Only what an HTTP field value may be padded with; Python's strip() would also take separators such as 0x1C.
_BLANKS = " \t\n\v\f\r"
# int() alone would also take underscores, blanks and digits of other scripts.
_DECIMAL = re.compile(r"[+-]?[0-9]{1,40}")
_INT64 = range(-(2**63), 2**63)


class Failure(StrEnum):
    """Why a signature was refused, in the order in which the checks are made. For operators; never sent to the peer."""

    MISSING = "missing"
    FORMAT = "format"
    EXPIRED = "expired"
    FUTURE = "future"
    ENCODING = "encoding"
    MISMATCH = "mismatch"

    @property
    def label(self) -> str:
        """The metric label: a MAC that is not hexadecimal counts as a bad format."""
        return Failure.FORMAT.value if self is Failure.ENCODING else self.value


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a verification: the indexes of the keys that made this MAC, or why it was refused."""

    matched: tuple[int, ...] = ()
    failure: Failure | None = None

    @property
    def ok(self) -> bool:
        """Whether at least one key made this signature and it is fresh."""
        return self.failure is None


def _key(secret: str | bytes) -> bytes:
    return secret if isinstance(secret, bytes) else secret.encode()


def _mac(secret: str | bytes, *, timestamp: int, method: str, target: str | bytes, body: bytes) -> bytes:
    body_hash = hashlib.sha256(body).hexdigest() if body else _EMPTY_BODY_HASH
    raw_target = target if isinstance(target, bytes) else target.encode()
    message = b"%d\n%b\n%b\n%b" % (timestamp, method.encode(), raw_target, body_hash.encode())
    inner, outer = _halves(_key(secret))
    inner, outer = inner.copy(), outer.copy()
    inner.update(message)
    outer.update(inner.digest())
    return outer.digest()


@lru_cache(maxsize=256)
def _halves(key: bytes) -> "tuple[hashlib._Hash, hashlib._Hash]":
    """The two hashes of HMAC (RFC 2104) with the padded key taken in: a key signs thousands of requests a second.

    Unlike `hmac.digest` they keep the interpreter's lock, which on an event loop costs more to get back than the hash.
    """
    block = (hashlib.sha256(key).digest() if len(key) > _BLOCK_BYTES else key).ljust(_BLOCK_BYTES, b"\0")
    return hashlib.sha256(bytes(byte ^ 0x36 for byte in block)), hashlib.sha256(bytes(byte ^ 0x5C for byte in block))


def sign(secret: str | bytes, *, timestamp: int, method: str, target: str | bytes, body: bytes = b"") -> str:
    """Return the header value for these exact bytes.

    `timestamp` is in unix seconds; `target` is path and raw query as in the request line, without scheme and host. The
    secret is used as it stands: it is neither hexadecimal nor base64.
    """
    return f"t={timestamp},sha256={_mac(secret, timestamp=timestamp, method=method, target=target, body=body).hex()}"


def parse(value: str | None) -> tuple[int, str] | Failure:
    """Split a header value into its timestamp and the (still encoded) MAC, or say what is wrong with it."""
    if not value:
        return Failure.MISSING
    head, comma, tail = value.partition(",")
    head, tail = head.strip(_BLANKS), tail.strip(_BLANKS)
    if not comma or not head.startswith("t=") or not tail.startswith("sha256="):
        return Failure.FORMAT
    digits = head[2:]
    if not _DECIMAL.fullmatch(digits) or int(digits) not in _INT64:
        return Failure.FORMAT
    return int(digits), tail[len("sha256=") :]


def verify(
    value: str | None,
    *,
    keys: Sequence[str | bytes],
    now: float,
    method: str,
    target: str | bytes,
    body: bytes = b"",
    prefix: str = "",
) -> Verdict:
    """Check a received header value against every key and say which of them made it.

    `now` is the receiver's clock in unix seconds. `prefix` is put before the target: a proxy may have stripped it from
    the path the sender signed. All MACs are always computed, so the time taken does not tell which key matched. The MAC
    covers the timestamp as a number: a header that writes it with a sign or leading zeros verifies.
    """
    parsed = parse(value)
    if isinstance(parsed, Failure):
        return Verdict(failure=parsed)
    timestamp, digits = parsed
    if now - timestamp > MAX_AGE_SECONDS:
        return Verdict(failure=Failure.EXPIRED)
    if timestamp > now + MAX_AHEAD_SECONDS:
        return Verdict(failure=Failure.FUTURE)
    try:
        mac = binascii.unhexlify(digits)
    except ValueError:
        return Verdict(failure=Failure.ENCODING)
    raw_target = prefix.encode() + (target if isinstance(target, bytes) else target.encode())
    same = [
        hmac.compare_digest(mac, _mac(key, timestamp=timestamp, method=method, target=raw_target, body=body))
        for key in keys
    ]
    matched = tuple(index for index, equal in enumerate(same) if equal)
    return Verdict(matched=matched, failure=None if matched else Failure.MISMATCH)


def key_id(secret: str | bytes) -> str:
    """A short public name of a key: 12 hexadecimal digits that let operators compare keys without showing them."""
    return hmac.digest(_key(secret), b"fred-hmac-key-id/v1", "sha256")[:6].hex()


def equivalent(one: str | bytes, other: str | bytes) -> bool:
    """Whether two keys authenticate the same messages.

    HMAC pads keys with zero bytes and replaces a key over 64 bytes by its digest, so different texts can be one key.
    """
    probe = b"fred-hmac-key-equivalence/v1"
    return hmac.compare_digest(hmac.digest(_key(one), probe, "sha256"), hmac.digest(_key(other), probe, "sha256"))
