from __future__ import annotations

import base64
import json
import os

import bcrypt
import pytest
from cryptography.hazmat.primitives import keywrap
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC

from leases.chain import keyring
from leases.chain.errors import KeyUnusable
from leases.chain.keys import SigningKey
from leases.chain.proto import keyring_pb2
from tests.leases.chain import vectors

KEYRING = vectors.chain()["keyring"]
CONTENT = KEYRING["info_file"]["content"]


def _text(raw):
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _sealed(plain, password, *, iterations=1000, algorithm="PBES2-HS256+A128KW", encryption="A256GCM"):
    """Write a key file as the published format says, independently of the reader."""
    salt, content_key, nonce = os.urandom(16), os.urandom(32), os.urandom(12)
    header = {"alg": algorithm, "enc": encryption, "p2s": _text(salt), "p2c": iterations}
    first = _text(json.dumps(header).encode())
    derived = PBKDF2HMAC(SHA256(), 16, algorithm.encode() + b"\0" + salt, max(1, min(iterations, 1000)))
    wrapped = keywrap.aes_key_wrap(derived.derive(password.encode()), content_key)
    sealed = AESGCM(content_key).encrypt(nonce, plain, first.encode())
    return ".".join([first, _text(wrapped), _text(nonce), _text(sealed[:-16]), _text(sealed[-16:])])


def _item(record):
    return json.dumps({"Key": "k.info", "Data": base64.b64encode(record).decode(), "Label": ""}).encode()


def _folder(tmp_path, backend, text, name="provider"):
    folder = tmp_path / f"keyring-{backend}"
    folder.mkdir()
    (folder / f"{name}.info").write_text(text)
    return folder


@pytest.mark.parametrize("passphrase", ["", "ignored by the test backend"])
def test_a_test_keyring_gives_its_key(tmp_path, passphrase):
    """CH-15, CH-16"""
    _folder(tmp_path, "test", CONTENT)
    key = keyring.read_key(tmp_path, "provider", backend="test", passphrase=passphrase)
    assert key.secret_hex == vectors.key("bip39_abandon/0").secret_hex
    assert key.address() == vectors.key("bip39_abandon/0").address()


def test_the_decrypted_item_is_the_one_written():
    assert json.loads(keyring.decrypt(CONTENT, "test")) == json.loads(KEYRING["item_json"])


def test_a_wrong_password_gives_nothing():
    """CH-15"""
    with pytest.raises(KeyUnusable, match="wrong passphrase"):
        keyring.decrypt(CONTENT, "Test")


def test_a_file_keyring_is_opened_by_its_passphrase(tmp_path):
    folder = _folder(tmp_path, "file", _sealed(KEYRING["item_json"].encode(), "correct horse"))
    (folder / "keyhash").write_bytes(bcrypt.hashpw(b"correct horse", bcrypt.gensalt(4)))
    key = keyring.read_key(tmp_path, "provider", backend="file", passphrase="correct horse")
    assert key.secret_hex == vectors.key("bip39_abandon/0").secret_hex
    with pytest.raises(KeyUnusable, match="wrong passphrase"):
        keyring.read_key(tmp_path, "provider", backend="file", passphrase="battery staple")


def test_a_file_keyring_needs_a_passphrase(tmp_path):
    """CH-16"""
    with pytest.raises(KeyUnusable) as refused:
        keyring.read_key(tmp_path, "provider", backend="file")
    assert str(refused.value) == ("keyring passphrase is required for file backend (set FRED_KEYRING_PASSPHRASE)")


def test_a_missing_key_is_named(tmp_path):
    with pytest.raises(KeyUnusable, match="failed to get key nobody"):
        keyring.read_key(tmp_path, "nobody", backend="test")


def test_a_key_whose_private_half_is_elsewhere_cannot_sign(tmp_path):
    record = keyring_pb2.Record(name="k", ledger=keyring_pb2.Record.Ledger()).SerializeToString()
    _folder(tmp_path, "test", _sealed(_item(record), "test"))
    with pytest.raises(KeyUnusable, match="private half is not in the keyring"):
        keyring.read_key(tmp_path, "provider", backend="test")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("a.b.c.d.e", id="no base64"),
        pytest.param(_sealed(b"no json", "test"), id="no item inside"),
        pytest.param(_sealed(_item(b"\xff\xff"), "test"), id="no record inside"),
        pytest.param(_sealed(b"{}", "test", iterations=1_000_001), id="too many iterations"),
        pytest.param(_sealed(b"{}", "test", iterations=0), id="no iterations"),
        pytest.param(_sealed(b"{}", "test", algorithm="dir"), id="another algorithm"),
        pytest.param(_sealed(b"{}", "test", encryption="A128GCM"), id="another encryption"),
        pytest.param(CONTENT[:-4] + "AAAA", id="changed tag"),
    ],
)
def test_damaged_files_are_refused(tmp_path, text):
    _folder(tmp_path, "test", text)
    with pytest.raises(KeyUnusable, match="failed to get key provider"):
        keyring.read_key(tmp_path, "provider", backend="test")


def test_keys_of_another_kind_cannot_sign(tmp_path):
    record = keyring_pb2.Record(name="k")
    record.local.priv_key.type_url = "/cosmos.crypto.ed25519.PrivKey"
    _folder(tmp_path, "test", _sealed(_item(record.SerializeToString()), "test"))
    with pytest.raises(KeyUnusable, match="ed25519"):
        keyring.read_key(tmp_path, "provider", backend="test")


def test_a_written_key_reads_back(tmp_path):
    secret = SigningKey.from_hex("22" * 32)
    record = keyring_pb2.Record(name="k")
    record.local.priv_key.type_url = "/cosmos.crypto.secp256k1.PrivKey"
    record.local.priv_key.value = b"\x0a\x20" + bytes.fromhex(secret.secret_hex)
    _folder(tmp_path, "test", _sealed(_item(record.SerializeToString()), "test"))
    assert keyring.read_key(tmp_path, "provider", backend="test").secret_hex == secret.secret_hex


@pytest.fixture
def folders(tmp_path):
    """Both kinds of keyring, empty; the passphrase is `correct horse`."""
    (tmp_path / "keyring-test").mkdir()
    (tmp_path / "keyring-file").mkdir()
    (tmp_path / "keyring-file" / "keyhash").write_bytes(bcrypt.hashpw(b"correct horse", bcrypt.gensalt(4)))
    return tmp_path


def _write(folders, name, key, backend="test"):
    keyring.write_key(folders, name, key, backend=backend, passphrase="correct horse")


@pytest.mark.parametrize("backend", ["test", "file"])
def test_a_key_is_written_in_the_published_form(folders, backend):
    """What the chain's own tool lists: record, item, back reference, header; only the owner reads it."""
    key = vectors.key("bip39_abandon/0")
    _write(folders, "provider", key, backend)
    folder, password = folders / f"keyring-{backend}", "test" if backend == "test" else "correct horse"
    info, back = folder / "provider.info", folder / KEYRING["address_file_name"]
    assert json.loads(keyring.decrypt(info.read_text(), password)) == json.loads(KEYRING["item_json"])
    assert json.loads(keyring.decrypt(back.read_text(), password)) == json.loads(KEYRING["address_item_json"])
    assert {one.stat().st_mode & 0o777 for one in (info, back)} == {0o600}
    assert {one.name for one in folder.iterdir()} == {info.name, back.name} | (
        {"keyhash"} if backend == "file" else set()
    )
    first = json.loads(base64.urlsafe_b64decode(info.read_text().split(".")[0] + "=="))
    assert (first["alg"], first["enc"], first["p2c"]) == ("PBES2-HS256+A128KW", "A256GCM", 8192)
    read = keyring.read_key(folders, "provider", backend=backend, passphrase="correct horse")
    assert read.secret_hex == key.secret_hex


def test_a_name_that_is_taken_is_not_written_over(folders):
    _write(folders, "k", vectors.key("devnet_provider/0"))
    with pytest.raises(KeyUnusable, match="is there already"):
        _write(folders, "k", vectors.key("devnet_provider/1"))
    assert keyring.read_key(folders, "k", backend="test").secret_hex == vectors.key("devnet_provider/0").secret_hex


def test_a_key_is_not_stored_under_two_names(folders):
    _write(folders, "k", vectors.key("devnet_provider/0"))
    with pytest.raises(KeyUnusable, match=r"k\.info holds this key already"):
        _write(folders, "other", vectors.key("devnet_provider/0"))


def test_a_write_that_was_cut_short_is_done_again(folders):
    key = vectors.key("devnet_provider/0")
    _write(folders, "k", key)
    (folders / "keyring-test" / "k.info").unlink()
    _write(folders, "k", key)
    assert keyring.read_key(folders, "k", backend="test").secret_hex == key.secret_hex


def test_nothing_is_written_with_a_wrong_passphrase(folders):
    with pytest.raises(KeyUnusable, match="wrong passphrase"):
        keyring.write_key(folders, "k", vectors.key("devnet_provider/0"), backend="file", passphrase="battery staple")
    assert [one.name for one in (folders / "keyring-file").iterdir()] == ["keyhash"]


def test_a_folder_that_is_not_there_cannot_be_written(tmp_path):
    with pytest.raises(KeyUnusable, match="failed to store key k"):
        _write(tmp_path, "k", vectors.key("devnet_provider/0"))
