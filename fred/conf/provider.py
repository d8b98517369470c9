"""The provider's settings: every `PROVIDER_` key with its type and default.

Only types live here; what values are allowed together stands in `fred.conf.rules`. Attribute names are the keys
of the YAML file; the environment's name is `PROVIDER_` and the key in upper case.
"""

import ipaddress
import uuid
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, SecretStr

from fred.conf.backends import BackendConfig
from fred.conf.values import (
    Bool,
    Coin,
    CoinValue,
    Duration,
    Float,
    Int,
    Networks,
    Text,
    TextList,
    parse_text,
    split_host_port,
)

NO_UUID = uuid.UUID(int=0)
RETIRED_KEYS = ("token_tracker_db_path", "payload_store_db_path", "placement_store_db_path")


def _parse_uuid(value: object) -> uuid.UUID:
    if isinstance(value, uuid.UUID):
        return value
    text = parse_text(value)
    if not text:
        return NO_UUID
    try:
        return uuid.UUID(text)
    except ValueError:
        raise ValueError("is not a valid UUID format") from None


def _parse_log_level(value: object) -> str:
    text = parse_text(value).lower()
    if text not in {"debug", "info", "warn", "error"}:
        raise ValueError(f'unknown log level: "{value}" (valid: debug, info, warn, error)')
    return text


def _without_trailing_slashes(value: object) -> object:
    return value.rstrip("/") if isinstance(value, str) else value


class ProviderConfig(BaseModel):
    """What one provider is and how it works. Frozen; read once at start; equal in all processes."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    # Identity and mode
    production_mode: Bool = False
    production_strict: Bool = False
    log_level: Annotated[Literal["debug", "info", "warn", "error"], BeforeValidator(_parse_log_level)] = "info"
    provider_uuid: Annotated[uuid.UUID, BeforeValidator(_parse_uuid)] = NO_UUID
    provider_address: Text = ""
    bech32_prefix: Text = "manifest"

    # Chain
    chain_id: Text = "manifest-1"
    chain_profile: Literal["auto", "A", "B", "C"] = "auto"
    grpc_endpoint: Text = "localhost:9090"
    grpc_tls_enabled: Bool = False
    grpc_tls_ca_file: Text = ""
    grpc_tls_skip_verify: Bool = False
    websocket_url: Text = "ws://localhost:26657/websocket"
    websocket_ping_interval: Duration = timedelta(seconds=30)
    websocket_reconnect_initial: Duration = timedelta(seconds=1)
    websocket_reconnect_max: Duration = timedelta(seconds=60)
    query_page_limit: Int = 100

    # Signing
    keyring_backend: Literal["file", "os", "test", "env"] = "file"
    keyring_dir: Text = ""
    key_name: Text = ""
    gas_limit: Int = 1_500_000
    max_gas_limit: Int = 0
    gas_adjustment: Float = 1.2
    gas_price: Int = 25
    fee_denom: Text = "umfx"
    ack_max_per_tx: Int = 1000
    tx_poll_interval: Duration = timedelta(milliseconds=500)
    tx_timeout: Duration = timedelta(seconds=30)
    tx_timeout_blocks: Int = 20
    sub_signer_count: Int = 0
    sub_signer_min_balance: CoinValue = Coin(10_000_000, "umfx")
    sub_signer_top_up_amount: CoinValue = Coin(50_000_000, "umfx")
    sub_signer_fund_check_interval: Duration = timedelta(hours=1)

    # API server
    api_listen_addr: Text = ":8080"
    tls_cert_file: Text = ""
    tls_key_file: Text = ""
    rate_limit_rps: Float = 10.0
    rate_limit_burst: Int = 20
    tenant_rate_limit_rps: Float = 5.0
    tenant_rate_limit_burst: Int = 10
    trusted_proxies: Networks = ()
    cors_origins: TextList = ("*",)
    http_read_timeout: Duration = timedelta(seconds=15)
    http_write_timeout: Duration = timedelta(seconds=15)
    http_idle_timeout: Duration = timedelta(seconds=60)
    max_request_body_size: Int = 1_048_576
    shutdown_timeout: Duration = timedelta(seconds=30)
    callback_base_url: Annotated[Text, BeforeValidator(_without_trailing_slashes)] = ""
    callback_secret: SecretStr = SecretStr("")
    callback_canonical_path_prefix: Text = ""
    token_tracker_db_path: Text = ""
    payload_store_db_path: Text = ""
    placement_store_db_path: Text = ""

    # Background work
    withdraw_interval: Duration = timedelta(hours=1)
    withdraw_limit: Int = 100
    max_withdraw_iterations: Int = 100
    credit_check_interval: Duration = timedelta(0)
    credit_check_zero_grace_period: Duration = timedelta(minutes=5)
    credit_check_error_threshold: Int = 3
    credit_check_retry_interval: Duration = timedelta(seconds=30)
    reconciliation_interval: Duration = timedelta(minutes=5)
    maintenance_legacy_idempotency_tenants: TextList = ()
    maintenance_require_idempotency_key: Bool = False
    placement_snapshot_dir: Text = ""
    placement_snapshot_interval: Duration = timedelta(hours=1)
    placement_snapshot_retain: Int = 24

    # Where workloads run
    backends: tuple[BackendConfig, ...] = ()

    @property
    def default_backend(self) -> BackendConfig:
        """The marked default, else the first entry."""
        return next((backend for backend in self.backends if backend.default), self.backends[0])

    @property
    def grpc_address(self) -> tuple[str, int]:
        """Host and port of the chain's gRPC endpoint."""
        return split_host_port(self.grpc_endpoint)

    @property
    def api_address(self) -> tuple[str, int]:
        """Host (empty: all interfaces) and port of the tenant API."""
        return split_host_port(self.api_listen_addr)

    def hmac_key(self, name: str, /) -> str:
        """The key that signs to and verifies from this backend: its own, else the shared one."""
        for backend in self.backends:
            if backend.name == name and backend.hmac_secret:
                return backend.hmac_secret.get_secret_value()
        return self.callback_secret.get_secret_value()

    def previous_hmac_key(self, name: str, /) -> str | None:
        """The key this backend may still sign with while keys change; it never signs here."""
        for backend in self.backends:
            if backend.name == name and backend.hmac_secret_previous:
                return backend.hmac_secret_previous.get_secret_value()
        return None

    def trusts(self, address: str, /) -> bool:
        """Whether a direct peer at this IP address is one of our proxies."""
        try:
            peer = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(peer in network for network in self.trusted_proxies)
