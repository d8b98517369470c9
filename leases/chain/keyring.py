"""The key files of the chain's command line tool: `keyring-test` and `keyring-file` folders.

Key NAME is the file NAME.info: a JWE (PBES2-HS256+A128KW, A256GCM) around JSON around a protobuf `Record`. The file
HEX.address (HEX: the 20 address bytes) names it back. The `file` backend also has `keyhash`, the bcrypt hash of the
passphrase. Keys are decrypted once and stay in memory.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import bcrypt
import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import keywrap
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from google.protobuf.message import DecodeError

from leases.chain import address, messages
from leases.chain.errors import KeyUnusable
from leases.chain.keys import SigningKey
from leases.chain.proto import keyring_pb2, secp256k1_pb2

_TEST_PASSWORD = "test"  # noqa: S105 - the published password of the test backend
_MAX_ITERATIONS = 1_000_000
_ALGORITHM = "PBES2-HS256+A128KW"
_ENCRYPTION = "A256GCM"
_PRIVATE_KEY_TYPE = "/cosmos.crypto.secp256k1.PrivKey"
_ITERATIONS = 8192  # what the chain's tool writes

Backend = Literal["test", "file"]


class _Header(msgspec.Struct):
    alg: str
    enc: str
    p2s: str
    p2c: int


class _Item(msgspec.Struct, rename="pascal"):
    data: bytes
    key: str = ""
    label: str = ""
    description: str = ""
    keychain_not_trust_application: bool = False
    keychain_not_synchronizable: bool = False


def has_key(directory: Path, name: str, *, backend: Backend) -> bool:
    """Whether there is a file for the key NAME; says nothing of what is in it."""
    return (directory / f"keyring-{backend}" / f"{name}.info").exists()


def read_key(directory: Path, name: str, *, backend: Backend, passphrase: str = "") -> SigningKey:
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


def write_key(directory: Path, name: str, key: SigningKey, *, backend: Backend, passphrase: str = "") -> None:
    """Add a key to an existing keyring; the chain's tool reads it. Its files appear whole or not at all.

    One process at a time may call this. Raises `KeyUnusable` for a wrong passphrase, a name that is taken, a key that
    the keyring holds under another name, and a folder that cannot be written.
    """
    folder = directory / f"keyring-{backend}"
    password = _TEST_PASSWORD if backend == "test" else _checked_passphrase(folder, passphrase)
    info, back = f"{name}.info", f"{address.bytes_of_public_key(key.public_key).hex()}.address"
    try:
        if (folder / info).exists():
            raise KeyUnusable(f"failed to store key {name}: {info} is there already")
        if (folder / back).exists():
            other = _data_of(decrypt((folder / back).read_text(encoding="ascii"), password)).decode(errors="replace")
            if other != info and (folder / other).exists():
                raise KeyUnusable(f"failed to store key {name}: {other} holds this key already")
        record = keyring_pb2.Record(name=name)
        record.pub_key.CopyFrom(messages.pack(secp256k1_pb2.PubKey(key=key.public_key)))
        private = secp256k1_pb2.PrivKey(key=bytes.fromhex(key.secret_hex))
        record.local.priv_key.CopyFrom(messages.pack(private))
        # The reference first: without its key it is ignored, a key without its reference is not found by address.
        _write(folder / back, encrypt(_item(back, info.encode()), password))
        _write(folder / info, encrypt(_item(info, record.SerializeToString(deterministic=True)), password))
    except OSError as error:
        raise KeyUnusable(f"failed to store key {name}: {error}") from error


def encrypt(plain: bytes, password: str) -> str:
    """Encrypt as a compact JWE under a password; every call gives other bytes."""
    salt, content_key, nonce = secrets.token_bytes(12), secrets.token_bytes(32), secrets.token_bytes(12)
    header = {
        "alg": _ALGORITHM,
        "created": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f +0000 UTC}",
        "enc": _ENCRYPTION,
        "p2c": _ITERATIONS,
        "p2s": _to_base64(salt),
    }
    protected = _to_base64(msgspec.json.encode(header))
    wrapping = _wrapping_key(password, salt, _ITERATIONS)
    sealed = AESGCM(content_key).encrypt(nonce, plain, protected.encode())
    parts = (keywrap.aes_key_wrap(wrapping, content_key), nonce, sealed[:-16], sealed[-16:])
    return ".".join([protected, *map(_to_base64, parts)])


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
        wrapping = _wrapping_key(password, _from_base64(header.p2s), header.p2c)
        content_key = keywrap.aes_key_unwrap(wrapping, _from_base64(parts[1]))
        sealed = _from_base64(parts[3]) + _from_base64(parts[4])
        return AESGCM(content_key).decrypt(_from_base64(parts[2]), sealed, parts[0].encode())
    except (keywrap.InvalidUnwrap, InvalidTag) as error:
        raise KeyUnusable("wrong passphrase, or a damaged file") from error
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise KeyUnusable("a damaged file") from error


def _item(name: str, data: bytes) -> bytes:
    return msgspec.json.encode(_Item(key=name, data=data))


def _write(path: Path, text: str) -> None:
    """Write a file that only its owner reads: whole, or not there, also when the machine stops in between."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.rename(path)
    finally:
        new.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _wrapping_key(password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", password.encode(), _ALGORITHM.encode() + b"\x00" + salt, iterations, 16)


def _key_of(plain: bytes) -> SigningKey:
    try:
        record = keyring_pb2.Record.FromString(_data_of(plain))
        if record.WhichOneof("item") != "local":
            raise KeyUnusable("its private half is not in the keyring")
        private = record.local.priv_key
        if private.type_url != _PRIVATE_KEY_TYPE:
            raise KeyUnusable(f"keys of type {private.type_url} cannot sign here")
        return SigningKey(secp256k1_pb2.PrivKey.FromString(private.value).key)
    except DecodeError as error:
        raise KeyUnusable("a damaged file") from error


def _data_of(plain: bytes) -> bytes:
    try:
        return msgspec.json.decode(plain, type=_Item).data
    except msgspec.MsgspecError as error:
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


def _to_base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
