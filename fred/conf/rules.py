"""Which of the provider's values are allowed together, as a table in the order they are reported."""

from collections.abc import Iterator
from datetime import timedelta

import bech32

from fred.conf.backend_rules import backend_problems
from fred.conf.provider import NO_UUID, ProviderConfig
from fred.conf.rule import (
    MIN_SECRET,
    Rule,
    between,
    host_port,
    no_more_gas_than_int64,
    not_negative,
    positive,
    required,
    when,
)
from fred.conf.urls import check_production_url, check_url, path_of
from fred.conf.values import format_duration, split_host_port, split_list


def _websocket_url(config: ProviderConfig) -> Iterator[str]:
    for text in split_list(config.websocket_url):
        scheme, separator, rest = text.partition("://")
        if not separator or not rest.strip("/") or any(character.isspace() for character in text):
            yield f"websocket_url is not a valid URL: {text!r}"
        elif scheme not in {"ws", "wss"}:
            yield "websocket_url must use ws:// or wss:// scheme"


def _grpc_endpoint(config: ProviderConfig) -> Iterator[str]:
    for text in split_list(config.grpc_endpoint):
        try:
            split_host_port(text)
        except ValueError as error:
            yield f"grpc_endpoint must be in host:port format: {error}"


def _one_stream_for_each_node(config: ProviderConfig) -> Iterator[str]:
    nodes, streams = split_list(config.grpc_endpoint), split_list(config.websocket_url)
    if len(nodes) != len(streams):
        yield f"grpc_endpoint names {len(nodes)} node(s) and websocket_url {len(streams)}: the i-th belong together"
    for key, named in (("grpc_endpoint", nodes), ("websocket_url", streams)):
        if len(set(named)) != len(named):
            yield f"{key} names a node twice"


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
    elif len(secret.encode()) < MIN_SECRET:
        yield "callback_secret must be at least 32 characters"


def _canonical_prefix(config: ProviderConfig) -> Iterator[str]:
    prefix = config.callback_canonical_path_prefix
    if prefix and not prefix.startswith("/"):
        yield 'callback_canonical_path_prefix must start with "/"'
    elif prefix.endswith("/"):
        yield 'callback_canonical_path_prefix must not end with "/"'
    elif any(check_url(config.callback_base_url)):
        return  # what is no URL has no path; it is complained of by itself
    elif (path := path_of(config.callback_base_url)) and path != prefix:
        yield f'callback_canonical_path_prefix must equal the path of callback_base_url ("{path}")'


def _is_address(text: str, prefix: str) -> bool:
    found, data = bech32.bech32_decode(text)
    return found == prefix and data is not None and bech32.convertbits(data, 5, 8, False) is not None


def _provider_address(config: ProviderConfig) -> Iterator[str]:
    address, prefix = config.provider_address, config.bech32_prefix
    if address and prefix and not _is_address(address, prefix):
        yield f"provider_address {address!r} is not a valid bech32 address with prefix {prefix!r}"


def _legacy_tenants(config: ProviderConfig) -> Iterator[str]:
    seen: set[str] = set()
    for tenant in config.maintenance_legacy_idempotency_tenants:
        if not _is_address(tenant, config.bech32_prefix):
            yield f"maintenance_legacy_idempotency_tenants: {tenant!r} is not a valid bech32 address"
        elif tenant in seen:
            yield f"maintenance_legacy_idempotency_tenants: {tenant!r} stands twice"
        seen.add(tenant)


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
    return when(not 1.0 <= value <= 3.0, f"gas_adjustment must be between 1.0 and 3.0, got {value:f}")


PROVIDER_RULES: tuple[Rule[ProviderConfig], ...] = (
    Rule(("log_level",), lambda _: ()),
    Rule(
        ("provider_uuid",),
        lambda c: when(c.provider_uuid == NO_UUID, "provider_uuid is required"),
        "write the provider's UUID as the chain lists it",
    ),
    required("provider_address", "write the address of key_name"),
    Rule(("provider_address", "bech32_prefix"), _provider_address, "write the address of key_name"),
    required("key_name", "write the name of the signing key"),
    Rule(
        ("keyring_dir", "keyring_backend"),
        lambda c: when(not c.keyring_dir and c.keyring_backend != "env", "keyring_dir is required"),
        "write the folder that holds the keyring",
    ),
    required("bech32_prefix", "leave it out for manifest"),
    required("chain_id", "leave it out for manifest-1"),
    positive("withdraw_interval"),
    not_negative("credit_check_interval"),
    Rule(("credit_check_interval", "withdraw_interval"), _credit_above_withdraw, "lower the first or raise the second"),
    not_negative("credit_check_zero_grace_period"),
    positive("rate_limit_rps"),
    positive("rate_limit_burst"),
    not_negative("tenant_rate_limit_rps"),
    not_negative("tenant_rate_limit_burst"),
    Rule(
        ("tenant_rate_limit_burst", "tenant_rate_limit_rps"),
        lambda c: when(
            c.tenant_rate_limit_rps > 0 and c.tenant_rate_limit_burst == 0,
            "tenant_rate_limit_burst must be positive when tenant_rate_limit_rps > 0",
        ),
        "a burst of zero refuses every request; a rate of zero switches the limit off",
    ),
    positive("gas_limit"),
    no_more_gas_than_int64("gas_limit"),
    no_more_gas_than_int64("max_gas_limit"),
    not_negative("max_gas_limit"),
    Rule(("max_gas_limit", "gas_limit"), _max_gas, "write 0 for no cap"),
    not_negative("gas_price"),
    Rule(("gas_adjustment",), _gas_adjustment, "leave it out for 1.2"),
    required("fee_denom", "leave it out for umfx"),
    *(
        positive(key)
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
        lambda c: when(
            c.withdraw_limit > 100,
            f"withdraw_limit ({c.withdraw_limit}) must not exceed the chain's MaxBatchLeaseSize (100)",
        ),
        "write 1 to 100",
    ),
    *(
        positive(key)
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
        lambda c: when(
            c.websocket_reconnect_max < c.websocket_reconnect_initial,
            "websocket_reconnect_max must be >= websocket_reconnect_initial",
        ),
        "raise the first or lower the second",
    ),
    not_negative("sub_signer_count", "must be non-negative"),
    Rule(
        ("sub_signer_fund_check_interval", "sub_signer_count"),
        lambda c: when(
            c.sub_signer_count > 0 and c.sub_signer_fund_check_interval <= timedelta(0),
            "sub_signer_fund_check_interval must be positive when sub_signer_count > 0",
        ),
        "leave it out for 1h",
    ),
    Rule(
        ("sub_signer_top_up_amount", "fee_denom"),
        lambda c: when(
            c.sub_signer_top_up_amount.denom != c.fee_denom,
            f"sub_signer_top_up_amount must be in fee_denom ({c.fee_denom})",
        ),
        "sub-signers pay fees with it",
    ),
    Rule(
        ("sub_signer_min_balance", "sub_signer_top_up_amount", "sub_signer_count"),
        lambda c: when(
            c.sub_signer_count > 0
            and (
                c.sub_signer_min_balance.denom != c.fee_denom or c.sub_signer_min_balance > c.sub_signer_top_up_amount
            ),
            f"sub_signer_min_balance must be in fee_denom ({c.fee_denom}) and at most sub_signer_top_up_amount",
        ),
        "one top-up has to lift a balance above the minimum",
    ),
    between("ack_max_per_tx", 1, 5000),
    Rule(
        ("tx_timeout_blocks",),
        lambda c: when(c.tx_timeout_blocks < 5, "tx_timeout_blocks must be at least 5"),
        "leave it out for 20",
    ),
    positive("reconciliation_interval"),
    positive("shutdown_timeout"),
    Rule(("websocket_url",), _websocket_url, "write for example ws://localhost:26657/websocket"),
    Rule(("grpc_endpoint",), _grpc_endpoint, "write host:port, an IPv6 host in brackets"),
    Rule(
        ("grpc_endpoint", "websocket_url"), _one_stream_for_each_node, "write as many of one as of the other, in order"
    ),
    host_port("api_listen_addr"),
    Rule(
        ("tls_cert_file", "tls_key_file"),
        lambda c: when(
            bool(c.tls_cert_file) != bool(c.tls_key_file), "both tls_cert_file and tls_key_file must be set together"
        ),
        "set both or neither",
    ),
    Rule(("backends",), backend_problems, "see the entry in the list"),
    Rule(("callback_base_url",), _callback_base_url, "write the URL backends reach this provider at"),
    Rule(("callback_secret", "backends"), _callback_secret, "32 bytes or more, or hmac_secret for every backend"),
    Rule(
        ("callback_canonical_path_prefix", "callback_base_url"),
        _canonical_prefix,
        "write for example /fred, or leave it out",
    ),
    Rule(
        ("maintenance_legacy_idempotency_tenants", "bech32_prefix"),
        _legacy_tenants,
        "write each tenant's address once",
    ),
    between("placement_snapshot_retain", 1, 1000),
    Rule(
        ("placement_snapshot_interval",),
        lambda c: when(
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
