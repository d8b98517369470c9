from __future__ import annotations

import hashlib

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed, decode_dss_signature
from hypothesis import given
from hypothesis import strategies as st

from leases.chain import address
from leases.chain.errors import KeyUnusable
from leases.chain.keys import SigningKey, seed_of, verify
from tests.leases.chain import vectors

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
ACCOUNTS = [
    pytest.param(wallet, account, id=f"{wallet['label']}/{account['account_index']}")
    for wallet in vectors.chain()["keys"]
    for account in wallet["accounts"]
]


@pytest.mark.parametrize(("wallet", "account"), ACCOUNTS)
def test_a_mnemonic_gives_its_keys(wallet, account):
    """CH-1"""
    key = SigningKey.from_mnemonic(wallet["mnemonic"], account["account_index"])
    assert seed_of(wallet["mnemonic"]).hex() == wallet["seed_hex"]
    assert key.secret_hex == account["private_key_hex"]
    assert key.public_key.hex() == account["public_key_compressed_hex"]
    assert key.address() == account["address"]
    assert key.address("cosmos") == account["address_cosmos_prefix"]
    assert address.bytes_of_public_key(key.public_key).hex() == account["address_bytes_hex"]


def test_the_devnet_provider_is_account_0():
    """CH-1"""
    assert vectors.key("devnet_provider/0").address() == vectors.PROVIDER
    assert vectors.key("devnet_provider/1").address() == "manifest1clecd57x2ggpk63nxz05wadjpepf7rzly45h6y"


def test_spaces_around_words_do_not_matter():
    wallet = vectors.chain()["keys"][0]
    spaced = "  " + wallet["mnemonic"].replace(" ", "\n ") + "\t"
    assert SigningKey.from_mnemonic(spaced).secret_hex == wallet["accounts"][0]["private_key_hex"]


@given(st.binary(min_size=32, max_size=32))
def test_signatures_are_deterministic_low_and_right(message):
    """CH-6"""
    key = vectors.key("devnet_provider/0")
    digest = hashlib.sha256(message).digest()
    signature = key.sign(digest)
    assert signature == key.sign(digest)
    assert int.from_bytes(signature[32:], "big") <= ORDER // 2
    assert verify(key.public_key, digest, signature)
    high = signature[:32] + (ORDER - int.from_bytes(signature[32:], "big")).to_bytes(32, "big")
    assert not verify(key.public_key, digest, high)
    assert not verify(vectors.key("devnet_tenant/0").public_key, digest, signature)


def test_another_library_signs_the_same_bytes():
    digest = hashlib.sha256(b"the same nonce").digest()
    key = vectors.key("devnet_tenant/0")
    other = ec.derive_private_key(int(key.secret_hex, 16), ec.SECP256K1())
    made = other.sign(digest, ec.ECDSA(Prehashed(hashes.SHA256()), deterministic_signing=True))
    r, s = decode_dss_signature(made)
    assert key.sign(digest) == r.to_bytes(32, "big") + min(s, ORDER - s).to_bytes(32, "big")


@pytest.mark.parametrize("text", ["", "zz", "00" * 32, "ff" * 32, "11" * 31, "0x" + "11" * 33])
def test_a_malformed_private_key_is_refused(text):
    with pytest.raises(KeyUnusable):
        SigningKey.from_hex(text)


def test_a_private_key_may_carry_the_usual_prefix():
    assert SigningKey.from_hex(" 0x" + "11" * 32 + "\n").secret_hex == "11" * 32


def test_a_mnemonic_of_another_length_is_refused():
    with pytest.raises(KeyUnusable, match="this one has 3"):
        SigningKey.from_mnemonic("one two three")


def test_a_key_prints_only_its_public_half():
    key = SigningKey.from_hex("11" * 32)
    assert "11" * 32 not in repr(key)
    assert key.public_key.hex() in repr(key)


@pytest.mark.parametrize("signature", [b"", b"\x00" * 64, b"\x01" * 63, b"\xff" * 64])
def test_what_is_no_signature_does_not_verify(signature):
    assert not verify(vectors.key("devnet_provider/0").public_key, b"\x01" * 32, signature)
