from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leases.chain import address
from leases.chain.errors import AddressInvalid
from leases.chain.ripemd160 import ripemd160
from tests.leases.chain import vectors


@pytest.mark.parametrize("case", vectors.chain()["bech32"]["valid"], ids=lambda case: case["address"][:16])
def test_valid_addresses_decode(case):
    """CH-2"""
    assert address.decode(case["address"]).hex() == case["bytes_hex"]
    assert address.encode(bytes.fromhex(case["bytes_hex"])) == case["address"].lower()


@pytest.mark.parametrize("text", vectors.chain()["bech32"]["invalid"])
def test_invalid_addresses_are_refused(text):
    """CH-2"""
    with pytest.raises(AddressInvalid):
        address.decode(text)


@pytest.mark.parametrize("case", vectors.chain()["credit_addresses"]["cases"], ids=lambda case: case["tenant"][:16])
def test_a_tenants_credit_has_its_own_address(case):
    """CH-3"""
    assert address.of_tenant_credit(case["tenant"]) == case["credit_address"]
    assert address.decode(case["credit_address"]).hex() == case["credit_address_bytes_hex"]


@given(st.binary(min_size=1, max_size=40))
def test_every_address_reads_back(raw):
    assert address.decode(address.encode(raw, "manifest")) == raw


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        (b"", "9c1185a5c5e9fc54612808977ee8f548b2258d31"),
        (b"abc", "8eb208f7e05d987a9b044a8e98c6b087f15a0bfc"),
        (b"a" * 55, None),
        (b"a" * 56, None),
        (b"a" * 64, None),
        (b"1234567890" * 8, "9b752e45573d4b39f4dbd3323cab82bf63326bfb"),
    ],
)
def test_ripemd160_gives_the_published_digests(text, digest):
    assert len(ripemd160(text)) == 20
    if digest is not None:
        assert ripemd160(text).hex() == digest
    try:
        reference = hashlib.new("ripemd160", text).hexdigest()
    except ValueError:
        return  # this OpenSSL has no RIPEMD-160, which is why we have our own
    assert ripemd160(text).hex() == reference
