"""Keys, addresses and coins of the simulated chain.

Everything here is derived, nothing is random: a test can name the account it signs for. Addresses are bech32 with
the prefix `manifest` over RIPEMD-160(SHA-256(compressed public key)); module addresses are 20 bytes of SHA-256 over
the module's name, credit addresses 32 bytes (the module address rule of the Cosmos SDK with derivation keys).
"""

from __future__ import annotations

import functools
import hashlib
import hmac
from dataclasses import dataclass

import bech32
import coincurve
from coincurve.ecdsa import cdata_to_der, deserialize_compact

from leases.chain.ripemd160 import ripemd160

PREFIX = "manifest"
FEE_DENOM = "umfx"
AUTHORITY = "manifest1afk9zr2hn2jsac63h4hm60vl9z3e5u69gndzf7c99cqge3vzwjzsfmy9qj"
PWR = f"factory/{AUTHORITY}/upwr"
MNEMONIC_PROVIDER = (
    "decorate bright ozone fork gallery riot bus exhaust worth way bone indoor "
    "calm squirrel merry zero scheme cotton until shop any excess stage laundry"
)
MNEMONIC_TENANT = (
    "wealth flavor believe regret funny network recall kiss grape useless pepper cram "
    "hint member few certain unveil rather brick bargain curious require crowd raise"
)
_CURVE_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


def encode_address(raw: bytes, prefix: str = PREFIX) -> str:
    """The bech32 form of 20 or 32 address bytes."""
    return str(bech32.bech32_encode(prefix, bech32.convertbits(raw, 8, 5) or []))


@functools.lru_cache(maxsize=65536)
def decode_address(text: str) -> bytes | None:
    """The bytes of an address with the chain's prefix, or None when it is none."""
    prefix, words = bech32.bech32_decode(text)
    if prefix != PREFIX or words is None:
        return None
    raw = bech32.convertbits(words, 5, 8, False)
    return bytes(raw) if raw is not None and len(raw) in (20, 32) else None


@functools.lru_cache(maxsize=65536)
def address_of(public_key: bytes) -> str:
    """The account address of a compressed secp256k1 public key."""
    return encode_address(ripemd160(hashlib.sha256(public_key).digest()))


def module_address(name: str) -> str:
    """The address of a module account."""
    return encode_address(hashlib.sha256(name.encode()).digest()[:20])


@functools.lru_cache(maxsize=65536)
def credit_address(tenant: str) -> str:
    """Where the credit of a tenant lies: derived from its address, nobody has the key."""
    raw = decode_address(tenant)
    if raw is None:
        raise ValueError(f"not an address: {tenant}")
    inner = hashlib.sha256(b"billing/credit/" + raw).digest()
    return encode_address(hashlib.sha256(hashlib.sha256(b"module").digest() + b"billing\x00" + inner).digest())


FEE_COLLECTOR = module_address("fee_collector")
DISTRIBUTION = module_address("distribution")


@dataclass(frozen=True, slots=True)
class Key:
    """A key with a name. `mnemonic` and `account_index` are set where it was derived from words."""

    name: str
    secret: bytes
    mnemonic: str = ""
    account_index: int = 0

    @property
    def public_key(self) -> bytes:
        """The compressed public key, 33 bytes."""
        return coincurve.PrivateKey(self.secret).public_key.format(compressed=True)

    @property
    def address(self) -> str:
        """The bech32 account address."""
        return address_of(self.public_key)

    @property
    def private_key_hex(self) -> str:
        """The 32 secret bytes as hex."""
        return self.secret.hex()

    def sign(self, document: bytes) -> bytes:
        """64 bytes r ‖ s over SHA-256 of the document; deterministic, s in the lower half."""
        return coincurve.PrivateKey(self.secret).sign_recoverable(document)[:64]


def named_key(name: str) -> Key:
    """The key whose secret is SHA-256 of its name."""
    return Key(name, hashlib.sha256(name.encode()).digest())


def mnemonic_key(name: str, mnemonic: str, account: int) -> Key:
    """The key at m/44'/118'/account'/0/0 of a mnemonic without passphrase (BIP-39, BIP-32)."""
    seed = hashlib.pbkdf2_hmac("sha512", mnemonic.encode(), b"mnemonic", 2048)
    node = hmac.digest(b"Bitcoin seed", seed, "sha512")
    for hardened, index in ((True, 44), (True, 118), (True, account), (False, 0), (False, 0)):
        secret, chain_code = node[:32], node[32:]
        if hardened:
            data, number = b"\x00" + secret, index + 0x80000000
        else:
            data, number = coincurve.PrivateKey(secret).public_key.format(compressed=True), index
        child = hmac.digest(chain_code, data + number.to_bytes(4, "big"), "sha512")
        total = (int.from_bytes(child[:32], "big") + int.from_bytes(secret, "big")) % _CURVE_ORDER
        node = total.to_bytes(32, "big") + child[32:]
    return Key(name, node[:32], mnemonic, account)


def signature_holds(public_key: bytes, signature: bytes, document: bytes) -> bool:
    """Whether 64 bytes r ‖ s are a signature over SHA-256(document) with s in the lower half of the order."""
    if len(signature) != 64 or int.from_bytes(signature[32:], "big") > _CURVE_ORDER // 2:
        return False
    try:
        return coincurve.PublicKey(public_key).verify(cdata_to_der(deserialize_compact(signature)), document)
    except ValueError:
        return False


Coins = tuple[tuple[str, int], ...]
"""Amounts by denomination, sorted, unique, never zero."""


def as_coins(amounts: dict[str, int]) -> Coins:
    """Sorted coins without zeros."""
    return tuple(sorted((denom, amount) for denom, amount in amounts.items() if amount))


def add_coins(left: Coins, right: Coins) -> Coins:
    """The sum per denomination."""
    total = dict(left)
    for denom, amount in right:
        total[denom] = total.get(denom, 0) + amount
    return as_coins(total)


def subtract_coins(left: Coins, right: Coins) -> Coins:
    """The difference per denomination, never below zero."""
    total = dict(left)
    for denom, amount in right:
        total[denom] = max(0, total.get(denom, 0) - amount)
    return as_coins(total)


def coins_text(coins: Coins) -> str:
    """As events print them: `5umfx,7upwr`; nothing for no coins."""
    return ",".join(f"{amount}{denom}" for denom, amount in coins)
