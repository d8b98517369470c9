"""The provider's settings: every `PROVIDER_` key with its type and default.

Only types live here; what values are allowed together stands in `fred.conf.rules`. Attribute names are the keys
of the YAML file; the environment's name is `PROVIDER_` and the key in upper case.
"""

import ipaddress
import uuid
from datetime import timedelta
from typing import Annotated, ClassVar, Literal

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

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True)
    # Lazy settings ask a value for this at every look-up, and to find nothing costs pydantic six times the rest.
    _mask_wrapped: ClassVar[bool] = True

    # Identity and mode
    production_mode: Bool = False
    """Refuse what is only fit for development: unverified TLS, URLs of this machine, `FRED_DEBUG`."""
    production_strict: Bool = False
    """With `production_mode`: also demand https everywhere, one key for each backend and no shared one."""
    log_level: Annotated[Literal["debug", "info", "warn", "error"], BeforeValidator(_parse_log_level)] = "info"
    """Least severe level that is logged: `debug`, `info`, `warn` or `error`, in any case."""
    provider_uuid: Annotated[uuid.UUID, BeforeValidator(_parse_uuid)] = NO_UUID
    """Required. The provider's UUID on chain; only its leases are ours."""
    provider_address: Text = ""
    """Required. The provider's address; the signing key must have it."""
    bech32_prefix: Text = "manifest"
    """What addresses of this chain begin with."""

    # Chain
    chain_id: Text = "manifest-1"
    """The chain's id: it is signed into every transaction, and a node of another chain is refused."""
    chain_profile: Literal["auto", "A", "B", "C"] = "auto"
    """Which generation of chain to assume."""
    grpc_endpoint: Text = "localhost:9090"
    """The node's gRPC, for queries and broadcasts.

    Several nodes: a list with commas; after three calls in a row without an answer the next is asked.
    """
    grpc_tls_enabled: Bool = False
    """Use TLS to that endpoint, of every node."""
    grpc_tls_ca_file: Text = ""
    """PEM bundle to verify nodes with, also for `wss://`; empty: the system's certificates."""
    grpc_tls_skip_verify: Bool = False
    """Do not verify their certificates. Refused in production together with TLS."""
    websocket_url: Text = "ws://localhost:26657/websocket"
    """The node's event stream, `ws://` or `wss://`; its HTTP RPC is reached at the same place.

    Several nodes: a list with commas, in the order of `grpc_endpoint` and as long.
    """
    websocket_ping_interval: Duration = timedelta(seconds=30)
    """Time between pings on the event stream. Above 0."""
    websocket_reconnect_initial: Duration = timedelta(seconds=1)
    """First wait after the event stream broke; doubles up to the next key. Above 0."""
    websocket_reconnect_max: Duration = timedelta(seconds=60)
    """Longest such wait. At least `websocket_reconnect_initial`."""
    query_page_limit: Int = 100
    """Leases asked for in one page of a chain list. Above 0."""

    # Signing
    keyring_backend: Literal["file", "os", "test", "env"] = "file"
    """Where the signing key is: a Cosmos keyring folder of kind `file` or `test`, or `env`. `os` cannot be read."""
    keyring_dir: Text = ""
    """The folder that holds `keyring-file` or `keyring-test`. Required unless `keyring_backend` is `env`."""
    key_name: Text = ""
    """Required. The name of the signing key in the keyring."""
    gas_limit: Int = 1_500_000
    """Gas to declare, times `gas_adjustment`, when the node does not simulate. 1 to 2^63-1."""
    max_gas_limit: Int = 0
    """No transaction declares more gas; 0: no cap, else at least `gas_limit`."""
    gas_adjustment: Float = 1.2
    """Factor on simulated gas. 1.0 to 3.0."""
    gas_price: Int = 25
    """Fee for a million gas, in the smallest unit of `fee_denom`. 0 or more."""
    fee_denom: Text = "umfx"
    """Denom that fees are paid in."""
    ack_max_per_tx: Int = 1000
    """Most leases in one acknowledge, reject or close transaction. 1 to 5000."""
    tx_poll_interval: Duration = timedelta(milliseconds=500)
    """First wait before an open transaction is looked up again; grows to 5 s. Above 0."""
    tx_timeout: Duration = timedelta(seconds=30)
    """So long a transaction may wait for its block, counted in blocks at the chain's pace. Above 0."""
    tx_timeout_blocks: Int = 20
    """At least so many blocks an unseen transaction may still come into one; at most 2,000. 5 or more."""
    sub_signer_count: Int = 0
    """Further signing keys that the provider grants and funds; they sign for leases side by side. 0 or more."""
    sub_signer_min_balance: CoinValue = Coin(10_000_000, "umfx")
    """Balance below which a further key is topped up."""
    sub_signer_top_up_amount: CoinValue = Coin(50_000_000, "umfx")
    """What it then gets; in `fee_denom`."""
    sub_signer_fund_check_interval: Duration = timedelta(hours=1)
    """Time between looks at those balances. Above 0 when there are such keys."""

    # API server
    api_listen_addr: Text = ":8080"
    """Where the tenant API listens; an empty host means all interfaces."""
    tls_cert_file: Text = ""
    """PEM certificate chain of the tenant API; empty: plain HTTP. Set with `tls_key_file` or not at all.

    Read again within a minute of a change, and on SIGHUP.
    """
    tls_key_file: Text = ""
    """Its PEM key, not encrypted."""
    rate_limit_rps: Float = 10.0
    """Requests a second for each client address (IPv6: each /64), on all routes but callbacks. Above 0."""
    rate_limit_burst: Int = 20
    """How many of them may come at once. Above 0."""
    tenant_rate_limit_rps: Float = 5.0
    """Requests a second for each tenant; 0: no limit."""
    tenant_rate_limit_burst: Int = 10
    """How many of them may come at once. Above 0 when the rate is."""
    trusted_proxies: Networks = ()
    """CIDR blocks or addresses of proxies whose `X-Forwarded-For` and `X-Real-IP` count."""
    cors_origins: TextList = ("*",)
    """Origins whose pages may read our answers; `*` inside stands for any text, `[]` switches CORS off."""
    http_read_timeout: Duration = timedelta(seconds=15)
    """Limit for receiving a request's body. Above 0."""
    http_write_timeout: Duration = timedelta(seconds=15)
    """Limit from the end of a request's headers to the end of its answer; past it the connection is cut. Above 0."""
    http_idle_timeout: Duration = timedelta(seconds=60)
    """How long an idle connection is kept open. Above 0."""
    max_request_body_size: Int = 1_048_576
    """Most bytes of a request's body. Above 0."""
    shutdown_timeout: Duration = timedelta(seconds=30)
    """How long a stopping tenant API waits for open requests. Above 0."""
    callback_base_url: Annotated[Text, BeforeValidator(_without_trailing_slashes)] = ""
    """Required. `http://` or `https://` URL at which backends reach the callback route; may have a path."""
    callback_secret: SecretStr = SecretStr("")
    """Key that signs to and from every backend without an `hmac_secret`. At least 32 bytes."""
    callback_canonical_path_prefix: Text = ""
    """Path that a proxy takes off callbacks and that their signatures cover.

    Equals the path of `callback_base_url` if that has one; begins with `/`, does not end with it.
    """
    token_tracker_db_path: Text = ""
    """Used tenant tokens are in PostgreSQL."""
    payload_store_db_path: Text = ""
    """Payloads are in PostgreSQL."""
    placement_store_db_path: Text = ""
    """Placements are in PostgreSQL."""

    # Background work
    withdraw_interval: Duration = timedelta(hours=1)
    """Time between withdrawals of the provider's earnings. Above 0."""
    withdraw_limit: Int = 100
    """Leases in one page of a withdrawal. 1 to 100."""
    max_withdraw_iterations: Int = 100
    """Most pages of one withdrawal. Above 0."""
    credit_check_interval: Duration = timedelta(0)
    """Time between looks at tenants' credit; 0: `withdraw_interval`, which is the most."""
    credit_check_zero_grace_period: Duration = timedelta(minutes=5)
    """How long a tenant's credit may be at zero before leases are closed; 0: 5m."""
    credit_check_error_threshold: Int = 3
    """Failed looks in a row that are worth a warning. Above 0."""
    credit_check_retry_interval: Duration = timedelta(seconds=30)
    """Wait after a failed look. Above 0."""
    reconciliation_interval: Duration = timedelta(minutes=5)
    """Time between sweeps, which compare chain, database and backends. Above 0; ticks come every 10 s."""
    maintenance_legacy_idempotency_tenants: TextList = ()
    """Addresses of tenants whose restart and update may come without `Idempotency-Key`."""
    maintenance_require_idempotency_key: Bool = False
    """Demand `Idempotency-Key` of all others."""
    placement_snapshot_dir: Text = ""
    """Folder for copies of the placements; empty: none are made."""
    placement_snapshot_interval: Duration = timedelta(hours=1)
    """Time between copies. At least 5m."""
    placement_snapshot_retain: Int = 24
    """Copies to keep. 1 to 1000."""

    # Where workloads run
    backends: tuple[BackendConfig, ...] = ()
    """Required. The backends, at least one; keys of an entry below. In the environment a JSON list of objects."""

    @property
    def default_backend(self) -> BackendConfig:
        """The marked default, else the first entry."""
        return next((backend for backend in self.backends if backend.default), self.backends[0])

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
