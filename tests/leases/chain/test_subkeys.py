"""Keys of the sub-signers: derived, written once, found by others."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from pydantic import SecretStr

from fred.conf import HouseConfig, ProviderConfig
from leases.chain import configured, keyring
from leases.chain.errors import KeyUnusable
from leases.chain.signer import Role
from tests.leases.chain import vectors

WALLETS = {wallet["label"]: wallet for wallet in vectors.chain()["keys"]}
MNEMONIC = WALLETS["devnet_provider"]["mnemonic"]
ADDRESSES = [account["address"] for account in WALLETS["devnet_provider"]["accounts"]]


@pytest.fixture
def folder(tmp_path):
    """A test keyring that holds the provider's key."""
    (tmp_path / "keyring-test").mkdir()
    keyring.write_key(tmp_path, "main", vectors.key("devnet_provider/0"), backend="test")
    return tmp_path


def keys_of(folder, count, mnemonic="", backend="test"):
    config = ProviderConfig(
        provider_uuid=UUID(vectors.PROVIDER_UUID),
        provider_address=vectors.PROVIDER,
        keyring_backend=backend,
        keyring_dir=str(folder),
        key_name="main",
        sub_signer_count=count,
    )
    house = HouseConfig(
        fred_mnemonic=SecretStr(mnemonic),
        fred_signer_private_key=SecretStr(vectors.key("devnet_provider/0").secret_hex),
    )
    return configured.sub_keys(config, house)


def test_missing_keys_are_derived_and_written_once(folder):
    keys = keys_of(folder, 3, MNEMONIC)
    assert keys.present() == ()
    assert keys.missing() == [0, 1, 2]
    assert keys.write_missing() == ["main-sub-1", "main-sub-2", "main-sub-3"]
    assert [one.address for one in keys.present()] == ADDRESSES[1:4]
    assert [(one.index, one.role) for one in keys.present()] == [(i, Role.SUB_SIGNER) for i in range(3)]
    assert keys.write_missing() == []


def test_keys_that_another_process_wrote_are_found_without_a_restart(folder):
    now = [0.0]
    keys = keys_of(folder, 1)
    keys.clock = lambda: now[0]
    assert keys.present() == ()
    keys_of(folder, 1, MNEMONIC).write_missing()
    assert keys.present() == ()
    now[0] += 2
    assert [one.address for one in keys.present()] == ADDRESSES[1:2]


def test_a_missing_key_in_the_middle_leaves_the_others(folder):
    """CH-18"""
    for index in (1, 3):
        keyring.write_key(folder, f"main-sub-{index}", vectors.key(f"devnet_provider/{index}"), backend="test")
    keys = keys_of(folder, 3)
    assert [one.index for one in keys.present()] == [0, 2]
    assert list(keys.problems) == [1]
    assert "main-sub-2" in keys.problems[1]


def test_more_keys_than_wanted_are_left_alone(folder):
    """CH-18"""
    keys_of(folder, 3, MNEMONIC).write_missing()
    assert len(keys_of(folder, 2).present()) == 2


def test_an_existing_key_is_not_derived_again(folder):
    own = vectors.key("devnet_tenant/0")
    keyring.write_key(folder, "main-sub-1", own, backend="test")
    keys = keys_of(folder, 2, MNEMONIC)
    assert keys.write_missing() == ["main-sub-2"]
    assert keys.present()[0].address == own.address()


@pytest.mark.parametrize("backend", ["test", "env"])
def test_the_mnemonic_of_another_wallet_stops_the_start(folder, backend):
    """CH-17"""
    other = WALLETS["devnet_tenant"]["mnemonic"]
    with pytest.raises(KeyUnusable, match="mnemonic does not match primary key"):
        keys_of(folder, 2, other, backend)
    assert keys_of(folder, 0, other, backend).present() == ()


def test_with_the_environment_as_keyring_keys_are_derived_in_memory(folder):
    keys = keys_of(folder, 2, MNEMONIC, "env")
    assert [one.address for one in keys.present()] == ADDRESSES[1:3]
    assert keys.write_missing() == []
    assert not list(folder.glob("*/main-sub-*"))


def test_a_private_key_alone_has_no_sub_signers(folder):
    keys = keys_of(folder, 2, "", "env")
    assert keys.present() == ()
    assert "FRED_MNEMONIC" in keys.problems[0]


def test_a_store_that_fails_stops_there_and_keeps_what_was_written(folder):
    keys_of(folder, 2, MNEMONIC).write_missing()
    (folder / "keyring-test" / "main-sub-2.info").rename(folder / "keyring-test" / "renamed.info")
    back = vectors.key("devnet_provider/2")
    (folder / "keyring-test" / f"{keyring.address.bytes_of_public_key(back.public_key).hex()}.address").unlink()
    keyring.write_key(folder, "elsewhere", back, backend="test")
    keys = keys_of(folder, 3, MNEMONIC)
    with pytest.raises(KeyUnusable, match=r"elsewhere\.info holds this key already"):
        keys.write_missing()
    assert [one.index for one in keys.present()] == [0]


def test_secrets_are_not_printed(folder):
    keys = keys_of(folder, 1, MNEMONIC)
    assert MNEMONIC not in repr(keys)
    assert "correct" not in repr(replace(keys, passphrase="correct horse"))
