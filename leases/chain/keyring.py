"""The key files of the chain's command line tool: `keyring-test` and `keyring-file` folders.

Key NAME is the file NAME.info: a JWE (PBES2-HS256+A128KW, A256GCM) around JSON around a protobuf `Record`. The `file`
backend also has `keyhash`, the bcrypt hash of the passphrase. Keys are decrypted once and stay in memory.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from pathlib import Path
from typing import Literal

import bcrypt
import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import keywrap
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from google.protobuf.message import DecodeError

from leases.chain.errors import KeyUnusable
from leases.chain.keys import SigningKey
from leases.chain.proto import keyring_pb2, secp256k1_pb2

_TEST_PASSWORD = "test"  # noqa: S105 - the published password of the test backend
_MAX_ITERATIONS = 1_000_000
_ALGORITHM = "PBES2-HS256+A128KW"
_ENCRYPTION = "A256GCM"
_PRIVATE_KEY_TYPE = "/cosmos.crypto.secp256k1.PrivKey"


class _Header(msgspec.Struct):
    alg: str
    enc: str
    p2s: str
    p2c: int


class _Item(msgspec.Struct):
    data: bytes = msgspec.field(name="Data")


def read_key(directory: Path, name: str, *, backend: Literal["test", "file"], passphrase: str = "") -> SigningKey:
    """Read the private key NAME of a keyring.

    The `test` backend has one fixed password; a given passphrase is ignored there. Raises `KeyUnusable` with the
    reason: no passphrase, a wrong one, no such key, or one whose private half is elsewhere (ledger, multisig).
    """
    folder = directory / f"keyring-{backend}"
    password = _TEST_PASSWORD if backend == "test" else _checked_passphrase(folder, passphrase)
    try:
        text = (folder / f"{name}.info").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise KeyUnusable(f"failed to get key {name}: {error}") from error
    try:
        return _key_of(decrypt(text, password))
    except KeyUnusable as error:
        raise KeyUnusable(f"failed to get key {name}: {error}") from error


def decrypt(text: str, password: str) -> bytes:
    """Decrypt a compact JWE. Raises `KeyUnusable` for a wrong password or another form of encryption."""
    parts = text.split(".")
    if len(parts) != 5:
        raise KeyUnusable("not an encrypted key file")
    try:
        header = msgspec.json.decode(_from_base64(parts[0]), type=_Header)
        if header.alg != _ALGORITHM or header.enc != _ENCRYPTION:
            raise KeyUnusable(
                f"encrypted with {header.alg} and {header.enc}, only {_ALGORITHM} with {_ENCRYPTION} is read"
            )
        if not 0 < header.p2c <= _MAX_ITERATIONS:
            raise KeyUnusable(f"{header.p2c} iterations are out of bounds")
        salt = header.alg.encode() + b"\x00" + _from_base64(header.p2s)
        wrapping = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, header.p2c, 16)
        content_key = keywrap.aes_key_unwrap(wrapping, _from_base64(parts[1]))
        sealed = _from_base64(parts[3]) + _from_base64(parts[4])
        return AESGCM(content_key).decrypt(_from_base64(parts[2]), sealed, parts[0].encode())
    except (keywrap.InvalidUnwrap, InvalidTag) as error:
        raise KeyUnusable("wrong passphrase, or a damaged file") from error
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise KeyUnusable("a damaged file") from error


def _key_of(plain: bytes) -> SigningKey:
    try:
        record = keyring_pb2.Record.FromString(msgspec.json.decode(plain, type=_Item).data)
        if record.WhichOneof("item") != "local":
            raise KeyUnusable("its private half is not in the keyring")
        private = record.local.priv_key
        if private.type_url != _PRIVATE_KEY_TYPE:
            raise KeyUnusable(f"keys of type {private.type_url} cannot sign here")
        return SigningKey(secp256k1_pb2.PrivKey.FromString(private.value).key)
    except (msgspec.MsgspecError, DecodeError) as error:
        raise KeyUnusable("a damaged file") from error


def _checked_passphrase(folder: Path, passphrase: str) -> str:
    if not passphrase:
        raise KeyUnusable("keyring passphrase is required for file backend (set FRED_KEYRING_PASSPHRASE)")
    try:
        stored = (folder / "keyhash").read_bytes().strip()
    except OSError as error:
        raise KeyUnusable(f"failed to create keyring: {error}") from error
    try:
        # bcrypt reads 72 bytes; the tool that wrote the hash refused longer passphrases.
        is_right = bcrypt.checkpw(passphrase.encode(), stored)
    except ValueError as error:
        raise KeyUnusable(f"failed to create keyring: {error}") from error
    if not is_right:
        raise KeyUnusable("failed to create keyring: wrong passphrase (FRED_KEYRING_PASSPHRASE)")
    return passphrase


def _from_base64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
