"""Signing keys: from a mnemonic, from a raw private key; signatures as the chain wants them."""

from __future__ import annotations

import hashlib
import hmac
import unicodedata

import coincurve

from leases.chain import address
from leases.chain.errors import KeyUnusable

_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
_HARDENED = 0x80000000
_COIN_TYPE = 118  # registered for the Cosmos family
_WORD_COUNTS = frozenset({12, 15, 18, 21, 24})


class SigningKey:
    """A secp256k1 private key. It prints as its public half only."""

    __slots__ = ("_private", "public_key")

    def __init__(self, secret: bytes) -> None:
        if len(secret) != 32 or not 0 < int.from_bytes(secret, "big") < _ORDER:
            raise KeyUnusable("a private key is 32 bytes, neither zero nor above the order of the curve")
        self._private = coincurve.PrivateKey(secret)
        self.public_key: bytes = self._private.public_key.format(compressed=True)

    @classmethod
    def from_hex(cls, text: str) -> SigningKey:
        """Read 64 hexadecimal digits, with or without `0x` before them."""
        digits = text.strip().removeprefix("0x")
        try:
            secret = bytes.fromhex(digits)
        except ValueError:
            raise KeyUnusable("the private key is not hexadecimal") from None
        return cls(secret)

    @classmethod
    def from_mnemonic(cls, mnemonic: str, account: int = 0) -> SigningKey:
        """Derive the key of `m/44'/118'/account'/0/0`: account 0 is the provider's, i is sub-signer i's.

        The words are not checked against the list: a misspelt one gives another key, and start-up compares the
        address with the configured one.
        """
        words = unicodedata.normalize("NFKD", mnemonic).split()
        if len(words) not in _WORD_COUNTS:
            raise KeyUnusable(f"a mnemonic has 12, 15, 18, 21 or 24 words, this one has {len(words)}")
        return cls(_derive(seed_of(mnemonic), account))

    def address(self, prefix: str = address.PREFIX) -> str:
        """Return the account address of this key."""
        return address.of_public_key(self.public_key, prefix)

    def sign(self, digest: bytes) -> bytes:
        """Sign a SHA-256 digest: 64 bytes r, s. Same digest, same bytes; s is in the lower half of the order."""
        return self._private.sign_recoverable(digest, hasher=None)[:64]

    @property
    def secret_hex(self) -> str:
        """The private key itself, for writing it to a keyring. Never log it."""
        return self._private.secret.hex()

    def __repr__(self) -> str:
        return f"<SigningKey {self.public_key.hex()}>"


def verify(public_key: bytes, digest: bytes, signature: bytes) -> bool:
    """Whether `signature` (64 bytes, s in the lower half) over this digest was made with that key's private half."""
    if len(signature) != 64:
        return False
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
    if not 0 < r < _ORDER or not 0 < s <= _ORDER // 2:
        return False
    try:
        return coincurve.PublicKey(public_key).verify(_der(signature), digest, hasher=None)
    except ValueError:
        return False


def seed_of(mnemonic: str) -> bytes:
    """Return the BIP-39 seed (64 bytes) of a mnemonic without passphrase."""
    normal = " ".join(unicodedata.normalize("NFKD", mnemonic).split())
    return hashlib.pbkdf2_hmac("sha512", normal.encode(), b"mnemonic", 2048)


def _derive(seed: bytes, account: int) -> bytes:
    """Walk the BIP-32 path from the seed to the key of one account."""
    node = hmac.digest(b"Bitcoin seed", seed, "sha512")
    for index in (44 | _HARDENED, _COIN_TYPE | _HARDENED, account | _HARDENED, 0, 0):
        node = _child(node, index)
    return node[:32]


def _child(node: bytes, index: int) -> bytes:
    secret, chain_code = node[:32], node[32:]
    parent = b"\x00" + secret if index & _HARDENED else SigningKey(secret).public_key
    digest = hmac.digest(chain_code, parent + index.to_bytes(4, "big"), "sha512")
    child = (int.from_bytes(digest[:32], "big") + int.from_bytes(secret, "big")) % _ORDER
    return child.to_bytes(32, "big") + digest[32:]


def _der(signature: bytes) -> bytes:
    body = b"".join(_der_integer(part) for part in (signature[:32], signature[32:]))
    return b"\x30" + bytes([len(body)]) + body


def _der_integer(big_endian: bytes) -> bytes:
    digits = big_endian.lstrip(b"\x00") or b"\x00"
    if digits[0] & 0x80:
        digits = b"\x00" + digits
    return b"\x02" + bytes([len(digits)]) + digits
