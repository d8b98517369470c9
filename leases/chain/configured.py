"""What the settings describe: the clients, the RPC and the signer of this provider.

Each call makes a new object; a process keeps its own. Nothing connects before it is used.
"""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from pathlib import Path

from fred.conf import HouseConfig, ProviderConfig
from fred.conf.values import split_list
from leases.chain import keyring
from leases.chain.channel import Tls
from leases.chain.cosmos import CosmosClient
from leases.chain.endpoints import Endpoint, Endpoints
from leases.chain.errors import KeyUnusable
from leases.chain.gas import GasPolicy
from leases.chain.keys import SigningKey
from leases.chain.rpc import NodeRpc, base_url
from leases.chain.signer import Signer
from leases.chain.subkeys import SubKeys


def endpoints(config: ProviderConfig) -> Endpoints:
    """Return the configured nodes, the first of them asked first. Raises ValueError when their lists do not match."""
    pairs = zip(split_list(config.grpc_endpoint), split_list(config.websocket_url), strict=True)
    return Endpoints([Endpoint(grpc, stream) for grpc, stream in pairs])


class Nodes:
    """The configured nodes of this process, a client for each. Raises `ChainError` for an unusable CA file."""

    def __init__(self, config: ProviderConfig) -> None:
        tls = None
        if config.grpc_tls_enabled:
            tls = Tls(ca_file=config.grpc_tls_ca_file, verify=not config.grpc_tls_skip_verify)
        self.endpoints = endpoints(config)
        self._clients = [
            CosmosClient(
                one.grpc,
                provider_uuid=config.provider_uuid,
                tls=tls,
                page_limit=config.query_page_limit,
                on_outcome=partial(_note, self.endpoints, index),
            )
            for index, one in enumerate(self.endpoints.all)
        ]

    def client(self) -> CosmosClient:
        """The client of the node that is asked now: kept for one piece of work, asked for anew for the next."""
        return self._clients[self.endpoints.index]


def chain_client(config: ProviderConfig) -> CosmosClient:
    """Return a client of the first configured node. Raises `ChainError` when the CA file cannot be used."""
    return Nodes(config).client()


def node_rpcs(config: ProviderConfig, nodes: Endpoints) -> tuple[NodeRpc, ...]:
    """Return the HTTP RPC of each of these nodes; what they hear moves `nodes` on."""
    return tuple(
        NodeRpc(
            base_url(one.websocket),
            provider_uuid=config.provider_uuid,
            ca_file=config.grpc_tls_ca_file,
            on_outcome=partial(_note, nodes, index),
        )
        for index, one in enumerate(nodes.all)
    )


def _note(nodes: Endpoints, index: int, answered: bool) -> None:
    nodes.note(index, answered=answered)


def provider_signer(config: ProviderConfig, house: HouseConfig) -> Signer:
    """Return the signer of the provider's own key.

    Raises `KeyUnusable` when there is no key, or one whose address is not the configured one.
    """
    key = _provider_key(config, house)
    signer = Signer(
        key=key,
        chain_id=config.chain_id,
        provider_address=config.provider_address,
        gas=gas_policy(config),
        prefix=config.bech32_prefix,
    )
    if signer.address != config.provider_address:
        raise KeyUnusable(
            f"the signing key has address {signer.address}, but provider_address is {config.provider_address}"
        )
    return signer


def sub_keys(config: ProviderConfig, house: HouseConfig) -> SubKeys:
    """Return the sub-signers' keys of this provider, as many as `sub_signer_count` says.

    Raises `KeyUnusable` when the mnemonic is given and is not that of the provider's key; without sub-signers it is
    not looked at.
    """
    provider = provider_signer(config, house)
    return SubKeys(
        provider=provider,
        count=config.sub_signer_count,
        directory=Path(config.keyring_dir),
        key_name=config.key_name,
        backend="env" if config.keyring_backend == "os" else config.keyring_backend,
        passphrase=house.fred_keyring_passphrase.get_secret_value(),
        mnemonic=house.fred_mnemonic.get_secret_value(),
    )


def gas_policy(config: ProviderConfig) -> GasPolicy:
    """Return how much gas is declared and paid for."""
    return GasPolicy(
        gas_limit=config.gas_limit,
        max_gas_limit=config.max_gas_limit,
        gas_price=config.gas_price,
        adjustment=Decimal(str(config.gas_adjustment)),
        fee_denom=config.fee_denom,
    )


def _provider_key(config: ProviderConfig, house: HouseConfig) -> SigningKey:
    if config.keyring_backend == "env":
        if secret := house.fred_signer_private_key.get_secret_value():
            return SigningKey.from_hex(secret)
        if mnemonic := house.fred_mnemonic.get_secret_value():
            return SigningKey.from_mnemonic(mnemonic)
        raise KeyUnusable("keyring_backend env needs FRED_SIGNER_PRIVATE_KEY or FRED_MNEMONIC")
    if config.keyring_backend == "os":
        raise KeyUnusable("keyring_backend os (a desktop keyring) is not supported; use file, test or env")
    return keyring.read_key(
        Path(config.keyring_dir),
        config.key_name,
        backend=config.keyring_backend,
        passphrase=house.fred_keyring_passphrase.get_secret_value(),
    )
