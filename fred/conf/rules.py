"""Which values are allowed together, as a table in the order they are reported."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from fred.conf.agent import AgentConfig
from fred.conf.backend_rules import backend_problems
from fred.conf.house import HouseConfig
from fred.conf.provider import NO_UUID, ProviderConfig
from fred.conf.urls import check_production_url, check_url
from fred.conf.values import format_duration, split_host_port

Tree = TypeVar("Tree", bound=BaseModel)
_MAX_GAS = 2**63 - 1
_MIN_SECRET = 32


@dataclass(frozen=True, slots=True)
class Rule(Generic[Tree]):
    """A rule over these keys: `broken` gives a message for each way the tree breaks it; `fix` says what to write.

    A rule is left out when one of its keys could not be read; that is reported instead. `for_services` marks
    rules that only matter to a process that uses database and broker.
    """

    keys: tuple[str, ...]
    broken: Callable[[Tree], Iterable[str]]
    fix: str = ""
    for_services: bool = False


def _when(condition: bool, message: str) -> Iterator[str]:
    if condition:
        yield message


def _required(key: str, fix: str) -> Rule[Any]:
    return Rule((key,), lambda c: _when(not getattr(c, key), f"{key} is required"), fix)


def _positive(key: str) -> Rule[Any]:
    def broken(config: Any) -> Iterator[str]:
        value = getattr(config, key)
        zero = timedelta(0) if isinstance(value, timedelta) else 0
        return _when(value <= zero, f"{key} must be positive")

    return Rule((key,), broken, "write a value above zero")


def _not_negative(key: str, text: str = "cannot be negative") -> Rule[Any]:
    def broken(config: Any) -> Iterator[str]:
        value = getattr(config, key)
        zero = timedelta(0) if isinstance(value, timedelta) else 0
        return _when(value < zero, f"{key} {text}")

    return Rule((key,), broken, "write zero or more")


def _between(key: str, low: int, high: int) -> Rule[Any]:
    def broken(config: Any) -> Iterator[str]:
        value = getattr(config, key)
        return _when(not low <= value <= high, f"{key} must be between {low} and {high}, got {value}")

    return Rule((key,), broken, f"write {low} to {high}")


def _host_port(key: str) -> Rule[Any]:
    def broken(config: Any) -> Iterator[str]:
        try:
            split_host_port(getattr(config, key))
        except ValueError as error:
            yield f"{key} must be in host:port format: {error}"

    return Rule((key,), broken, "write host:port, an IPv6 host in brackets")


def _websocket_url(config: ProviderConfig) -> Iterator[str]:
    text = config.websocket_url
    scheme, separator, rest = text.partition("://")
    if not separator or not rest.strip("/") or any(character.isspace() for character in text):
        yield f"websocket_url is not a valid URL: {text!r}"
    elif scheme not in {"ws", "wss"}:
        yield "websocket_url must use ws:// or wss:// scheme"


def _credit_above_withdraw(config: ProviderConfig) -> Iterator[str]:
    check, withdraw = config.credit_check_interval, config.withdraw_interval
    if check > withdraw:
        yield (
            f"credit_check_interval ({format_duration(check)}) must not exceed "
            f"withdraw_interval ({format_duration(withdraw)})"
        )


def _callback_base_url(config: ProviderConfig) -> Iterator[str]:
    if not config.callback_base_url:
        yield "callback_base_url is required"
        return
    for text in check_url(config.callback_base_url):
        yield f"callback_base_url: {text}"
    if config.production_mode:
        for text in check_production_url(config.callback_base_url):
            yield f"production_mode: callback_base_url: {text}"


def _callback_secret(config: ProviderConfig) -> Iterator[str]:
    secret = config.callback_secret.get_secret_value()
    if not secret:
        if not config.backends or not all(backend.hmac_secret for backend in config.backends):
            yield "callback_secret is required for callback authentication"
    elif len(secret.encode()) < _MIN_SECRET:
        yield "callback_secret must be at least 32 characters"


def _canonical_prefix(config: ProviderConfig) -> Iterator[str]:
    prefix = config.callback_canonical_path_prefix
    if prefix and not prefix.startswith("/"):
        yield 'callback_canonical_path_prefix must start with "/"'
    elif prefix.endswith("/"):
        yield 'callback_canonical_path_prefix must not end with "/"'


def _production(config: ProviderConfig) -> Iterator[str]:
    if not config.production_mode:
        return
    if config.grpc_tls_enabled and config.grpc_tls_skip_verify:
        yield "production_mode: grpc_tls_skip_verify cannot be enabled with grpc_tls_enabled"
    for index, backend in enumerate(config.backends):
        if backend.tls_skip_verify:
            yield f"production_mode: backends[{index}].tls_skip_verify cannot be enabled"


def _strict(config: ProviderConfig) -> Iterator[str]:
    """What only `production_strict` demands."""
    if not (config.production_mode and config.production_strict):
        return
    yield from strict_breaches(config)


def strict_breaches(config: ProviderConfig) -> Iterator[str]:
    """Each way this tree is weaker than `production_strict` allows."""
    if not config.callback_base_url.startswith("https://"):
        yield "production_mode: callback_base_url must use https"
    if config.callback_secret:
        yield "production_mode: callback_secret must be absent; give every backend its own hmac_secret"
    for index, backend in enumerate(config.backends):
        if not backend.url.startswith("https://"):
            yield f"production_mode: backends[{index}].url must use https"
        if not backend.hmac_secret:
            yield f"production_mode: backends[{index}].hmac_secret is required"
        if backend.contract == "v0_13":
            yield f"production_mode: backends[{index}].contract must not be v0_13"


def _max_gas(config: ProviderConfig) -> Iterator[str]:
    if 0 < config.max_gas_limit < config.gas_limit:
        yield f"max_gas_limit ({config.max_gas_limit}) must be >= gas_limit ({config.gas_limit})"


def _gas_adjustment(config: ProviderConfig) -> Iterator[str]:
    value = config.gas_adjustment
    return _when(not 1.0 <= value <= 3.0, f"gas_adjustment must be between 1.0 and 3.0, got {value:f}")


P = ProviderConfig
PROVIDER_RULES: tuple[Rule[ProviderConfig], ...] = (
    Rule(("log_level",), lambda _: ()),
    Rule(
        ("provider_uuid",),
        lambda c: _when(c.provider_uuid == NO_UUID, "provider_uuid is required"),
        "write the provider's UUID as the chain lists it",
    ),
    _required("provider_address", "write the address of key_name"),
    _required("key_name", "write the name of the signing key"),
    _required("keyring_dir", "write the folder that holds the keyring"),
    _required("bech32_prefix", "leave it out for manifest"),
    _required("chain_id", "leave it out for manifest-1"),
    _positive("withdraw_interval"),
    _not_negative("credit_check_interval"),
    Rule(("credit_check_interval", "withdraw_interval"), _credit_above_withdraw, "lower the first or raise the second"),
    _not_negative("credit_check_zero_grace_period"),
    _positive("rate_limit_rps"),
    _positive("rate_limit_burst"),
    _not_negative("tenant_rate_limit_rps"),
    _not_negative("tenant_rate_limit_burst"),
    Rule(
        ("tenant_rate_limit_burst", "tenant_rate_limit_rps"),
        lambda c: _when(
            c.tenant_rate_limit_rps > 0 and c.tenant_rate_limit_burst == 0,
            "tenant_rate_limit_burst must be positive when tenant_rate_limit_rps > 0",
        ),
        "a burst of zero refuses every request; a rate of zero switches the limit off",
    ),
    _positive("gas_limit"),
    *(
        Rule(
            (key,),
            lambda c, key=key: _when(
                getattr(c, key) > _MAX_GAS, f"{key} {getattr(c, key)} exceeds maximum ({_MAX_GAS})"
            ),
            "write less",
        )
        for key in ("gas_limit", "max_gas_limit")
    ),
    _not_negative("max_gas_limit"),
    Rule(("max_gas_limit", "gas_limit"), _max_gas, "write 0 for no cap"),
    _not_negative("gas_price"),
    Rule(("gas_adjustment",), _gas_adjustment, "leave it out for 1.2"),
    _required("fee_denom", "leave it out for umfx"),
    *(
        _positive(key)
        for key in (
            "http_read_timeout",
            "http_write_timeout",
            "http_idle_timeout",
            "websocket_ping_interval",
            "tx_poll_interval",
            "tx_timeout",
            "query_page_limit",
            "max_withdraw_iterations",
            "withdraw_limit",
        )
    ),
    Rule(
        ("withdraw_limit",),
        lambda c: _when(
            c.withdraw_limit > 100,
            f"withdraw_limit ({c.withdraw_limit}) must not exceed the chain's MaxBatchLeaseSize (100)",
        ),
        "write 1 to 100",
    ),
    *(
        _positive(key)
        for key in (
            "websocket_reconnect_initial",
            "websocket_reconnect_max",
            "max_request_body_size",
            "credit_check_error_threshold",
            "credit_check_retry_interval",
        )
    ),
    Rule(
        ("websocket_reconnect_max", "websocket_reconnect_initial"),
        lambda c: _when(
            c.websocket_reconnect_max < c.websocket_reconnect_initial,
            "websocket_reconnect_max must be >= websocket_reconnect_initial",
        ),
        "raise the first or lower the second",
    ),
    _not_negative("sub_signer_count", "must be non-negative"),
    Rule(
        ("sub_signer_fund_check_interval", "sub_signer_count"),
        lambda c: _when(
            c.sub_signer_count > 0 and c.sub_signer_fund_check_interval <= timedelta(0),
            "sub_signer_fund_check_interval must be positive when sub_signer_count > 0",
        ),
        "leave it out for 1h",
    ),
    Rule(
        ("sub_signer_top_up_amount", "fee_denom"),
        lambda c: _when(
            c.sub_signer_top_up_amount.denom != c.fee_denom,
            f"sub_signer_top_up_amount must be in fee_denom ({c.fee_denom})",
        ),
        "sub-signers pay fees with it",
    ),
    _between("ack_max_per_tx", 1, 5000),
    Rule(
        ("tx_timeout_blocks",),
        lambda c: _when(c.tx_timeout_blocks < 5, "tx_timeout_blocks must be at least 5"),
        "leave it out for 20",
    ),
    _positive("reconciliation_interval"),
    _positive("shutdown_timeout"),
    Rule(("websocket_url",), _websocket_url, "write for example ws://localhost:26657/websocket"),
    _host_port("grpc_endpoint"),
    _host_port("api_listen_addr"),
    Rule(
        ("tls_cert_file", "tls_key_file"),
        lambda c: _when(
            bool(c.tls_cert_file) != bool(c.tls_key_file), "both tls_cert_file and tls_key_file must be set together"
        ),
        "set both or neither",
    ),
    Rule(("backends", "production_mode"), backend_problems, "see the entry in the list"),
    Rule(("callback_base_url", "production_mode"), _callback_base_url, "write the URL backends reach this provider at"),
    Rule(("callback_secret", "backends"), _callback_secret, "32 bytes or more, or hmac_secret for every backend"),
    Rule(("callback_canonical_path_prefix",), _canonical_prefix, "write for example /fred, or leave it out"),
    _between("placement_snapshot_retain", 1, 1000),
    Rule(
        ("placement_snapshot_interval",),
        lambda c: _when(
            c.placement_snapshot_interval < timedelta(minutes=5), "placement_snapshot_interval must be at least 5m"
        ),
        "leave it out for 1h",
    ),
    Rule(("production_mode", "grpc_tls_enabled", "grpc_tls_skip_verify", "backends"), _production, "verify TLS"),
    Rule(
        ("production_strict", "production_mode", "callback_base_url", "callback_secret", "backends"),
        _strict,
        "or leave production_strict off",
    ),
)

HOUSE_RULES: tuple[Rule[HouseConfig], ...] = (
    Rule(
        ("database_url",),
        lambda c: _when(not c.database_url, "DATABASE_URL is required"),
        "for example postgres://fred@localhost/fred",
        for_services=True,
    ),
    Rule(
        ("redis_url",),
        lambda c: _when(not c.redis_url, "REDIS_URL is required"),
        "for example redis://localhost:6379/0",
        for_services=True,
    ),
    Rule(
        ("django_secret_key",),
        lambda c: _when(not c.django_secret_key, "DJANGO_SECRET_KEY is required"),
        "50 random characters or more",
        for_services=True,
    ),
    *(_positive(key) for key in ("fred_retention_news", "fred_retention_history", "fred_retention_settled")),
)

AGENT_RULES: tuple[Rule[AgentConfig], ...] = (
    _required("name", "the name the provider knows it by"),
    Rule(
        ("callback_secret",),
        lambda c: _when(
            len(c.callback_secret.get_secret_value().encode()) < _MIN_SECRET,
            "callback_secret is required and must be at least 32 characters",
        ),
        "the same secret as the provider's",
    ),
    *(_not_negative(key) for key in ("delay", "retention")),
    *(
        _positive(key)
        for key in (
            "client_timeout",
            "read_timeout",
            "write_timeout",
            "idle_timeout",
            "callback_max_age",
            "max_request_body_size",
        )
    ),
    Rule(
        ("fail_ratio",),
        lambda c: _when(not 0.0 <= c.fail_ratio <= 1.0, "fail_ratio must be between 0 and 1"),
        "0 never fails, 1 always",
    ),
)
