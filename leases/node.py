"""The chain as this deployment reaches it: one client per process, and the key that signs for the provider."""

from __future__ import annotations

import threading
from decimal import Decimal
from functools import lru_cache
from uuid import UUID

from django.conf import settings

from fred.conf import HouseConfig, ProviderConfig
from leases.chain.channel import Tls
from leases.chain.client import ChainClient
from leases.chain.cosmos import CosmosClient
from leases.chain.errors import KeyUnusable
from leases.chain.gas import GasPolicy
from leases.chain.keys import SigningKey
from leases.chain.signer import Role, Signer


def client() -> ChainClient:
    """The chain that the settings name. Threads share it; a forked child connects anew by itself."""
    fred: ProviderConfig = settings.FRED
    tls = None
    if fred.grpc_tls_enabled:
        tls = Tls(ca_file=fred.grpc_tls_ca_file, verify=not fred.grpc_tls_skip_verify)
    return _client(fred.grpc_endpoint, fred.provider_uuid, tls, fred.query_page_limit)


@lru_cache(maxsize=8)
def _client(endpoint: str, provider_uuid: UUID, tls: Tls | None, page_limit: int) -> ChainClient:
    return CosmosClient(endpoint, provider_uuid=provider_uuid, tls=tls, page_limit=page_limit)


class _Keys:
    """The provider's signer, made once from the settings it came from."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: tuple[ProviderConfig, HouseConfig, Signer] | None = None

    def provider(self) -> Signer:
        fred, house = settings.FRED, settings.HOUSE
        with self._lock:
            if self._made is None or self._made[0] is not fred or self._made[1] is not house:
                self._made = (fred, house, _provider_signer(fred, house))
            return self._made[2]


def _key(house: HouseConfig) -> SigningKey:
    """The provider's key from the environment."""
    if house.fred_signer_private_key.get_secret_value():
        return SigningKey.from_hex(house.fred_signer_private_key.get_secret_value())
    if house.fred_mnemonic.get_secret_value():
        return SigningKey.from_mnemonic(house.fred_mnemonic.get_secret_value())
    raise KeyUnusable("set FRED_SIGNER_PRIVATE_KEY or FRED_MNEMONIC to the provider's key")


def _provider_signer(fred: ProviderConfig, house: HouseConfig) -> Signer:
    signer = Signer(
        key=_key(house),
        chain_id=fred.chain_id,
        provider_address=fred.provider_address,
        gas=GasPolicy(
            gas_limit=fred.gas_limit,
            max_gas_limit=fred.max_gas_limit,
            gas_price=fred.gas_price,
            adjustment=Decimal(str(fred.gas_adjustment)),
            fee_denom=fred.fee_denom,
        ),
        role=Role.PROVIDER,
        prefix=fred.bech32_prefix,
    )
    if signer.address != fred.provider_address:
        raise KeyUnusable(
            f"the signing key belongs to {signer.address}, provider_address is {fred.provider_address}: "
            "configure the provider's own key"
        )
    return signer


_keys = _Keys()


def signer(address: str) -> Signer | None:
    """The key behind this address, None when this process holds none for it. Raises `KeyUnusable`."""
    provider = _keys.provider()
    return provider if provider.address == address else None


def signers() -> tuple[Signer, ...]:
    """Every key this process may sign with. Raises `KeyUnusable`."""
    return (_keys.provider(),)
