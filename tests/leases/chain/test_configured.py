from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import pytest
from pydantic import SecretStr

from fred.conf import HouseConfig, ProviderConfig
from leases.chain import configured
from leases.chain.errors import ChainError, KeyUnusable
from tests.leases.chain import vectors

[WALLET] = [wallet for wallet in vectors.chain()["keys"] if wallet["label"] == "devnet_provider"]
SECRET = WALLET["accounts"][0]["private_key_hex"]
BASE = {
    "provider_uuid": UUID(vectors.PROVIDER_UUID),
    "provider_address": vectors.PROVIDER,
    "keyring_backend": "env",
    "chain_id": "c",
}


def _config(**changes):
    return ProviderConfig(**{**BASE, **changes})


def _house(**secrets):
    return HouseConfig(**{name: SecretStr(text) for name, text in secrets.items()})


@pytest.mark.parametrize(
    "house",
    [
        pytest.param(_house(fred_signer_private_key=SECRET), id="private key"),
        pytest.param(_house(fred_mnemonic=WALLET["mnemonic"]), id="mnemonic"),
        pytest.param(_house(fred_signer_private_key=SECRET, fred_mnemonic="x"), id="the private key goes first"),
    ],
)
def test_the_providers_key_comes_from_the_environment(house):
    signer = configured.provider_signer(_config(), house)
    assert signer.address == vectors.PROVIDER
    assert signer.chain_id == "c"


def test_the_providers_key_comes_from_a_keyring(tmp_path):
    content = vectors.chain()["keyring"]["info_file"]["content"]
    (tmp_path / "keyring-test").mkdir()
    (tmp_path / "keyring-test" / "provider.info").write_text(content)
    config = _config(
        keyring_backend="test",
        keyring_dir=str(tmp_path),
        key_name="provider",
        provider_address=vectors.key("bip39_abandon/0").address(),
    )
    assert configured.provider_signer(config, _house()).key.secret_hex == vectors.key("bip39_abandon/0").secret_hex


def test_a_key_of_another_address_stops_the_start():
    """CH-19"""
    other = vectors.key("devnet_tenant/0").address()
    with pytest.raises(KeyUnusable) as refused:
        configured.provider_signer(_config(provider_address=other), _house(fred_signer_private_key=SECRET))
    assert vectors.PROVIDER in str(refused.value)
    assert other in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({}, "FRED_SIGNER_PRIVATE_KEY", id="no key"),
        pytest.param({"keyring_backend": "os"}, "not supported", id="desktop keyring"),
        pytest.param(
            {"keyring_backend": "file"},
            "keyring passphrase is required for file backend",
            id="CH-16 file without passphrase",
        ),
    ],
)
def test_without_a_key_the_start_fails(changes, message):
    with pytest.raises(KeyUnusable, match=message):
        configured.provider_signer(_config(**changes), _house())


def test_gas_follows_the_settings_exactly():
    policy = configured.gas_policy(_config(gas_adjustment=1.15, gas_price=7, gas_limit=10, max_gas_limit=20))
    assert policy.adjustment == Decimal("1.15")
    assert (policy.gas_price, policy.gas_limit, policy.max_gas_limit, policy.fee_denom) == (7, 10, 20, "umfx")
    assert policy.estimated(10) == 11


def test_a_client_is_made_without_connecting():
    client = configured.chain_client(_config(grpc_endpoint="127.0.0.1:9"))
    assert client.endpoint == "127.0.0.1:9"


def test_an_unusable_ca_file_is_found_at_the_start():
    """CH-88"""
    with pytest.raises(ChainError, match="failed to read CA file"):
        configured.chain_client(_config(grpc_tls_enabled=True, grpc_tls_ca_file="/nonexistent/ca.pem"))


def rpc_url(websocket_url):
    config = _config(websocket_url=websocket_url)
    [rpc] = configured.node_rpcs(config, configured.endpoints(config))
    return rpc.url


@pytest.mark.parametrize(
    ("websocket_url", "expected"),
    [
        ("ws://localhost:26657/websocket", "http://localhost:26657/"),
        ("wss://node.example/websocket", "https://node.example/"),
    ],
)
def test_the_rpc_belongs_to_the_websocket(websocket_url, expected):
    assert rpc_url(websocket_url) == expected
