"""The provider's settings: one good tree, and what every bad value says."""

from datetime import timedelta
from uuid import UUID

import pytest
from django.conf import settings
from pydantic import BaseModel

from fred import conf
from tests.fred.settings_of import BACKEND, SECRET, good, with_backends

OTHER = "fedcba9876543210fedcba9876543210"


def problems(variables, **options):
    with pytest.raises(conf.ConfigError) as caught:
        conf.load_provider(variables, **options)
    return str(caught.value).splitlines()


def test_a_good_environment_gives_typed_values_and_defaults():
    tree = conf.load_provider(good()).tree
    assert tree.provider_uuid == UUID("5b0e6b3e-4b4e-4a36-8a5e-0a8c3a1c7d11")
    assert tree.reconciliation_interval == timedelta(minutes=5)
    assert tree.gas_adjustment == 1.2
    assert tree.cors_origins == ("*",)
    assert tree.backends[0].timeout == timedelta(seconds=30)
    assert tree.default_backend.name == "docker-1"
    assert tree.hmac_key("docker-1") == SECRET


def test_the_tree_cannot_be_changed():
    tree = conf.load_provider(good()).tree
    with pytest.raises(ValueError, match="frozen"):
        tree.gas_limit = 1


def test_secrets_never_show():
    tree = conf.load_provider(good()).tree
    assert SECRET not in repr(tree)
    assert SECRET not in tree.model_dump_json()


BAD = [
    ({"PROVIDER_PROVIDER_UUID": None}, "provider_uuid is required"),
    ({"PROVIDER_PROVIDER_UUID": "x"}, "provider_uuid is not a valid UUID format"),
    ({"PROVIDER_PROVIDER_ADDRESS": None}, "provider_address is required"),
    ({"PROVIDER_PROVIDER_ADDRESS": "manifest1qqq"}, "provider_address 'manifest1qqq' is not a valid bech32 address"),
    ({"PROVIDER_KEY_NAME": ""}, "key_name is required"),
    ({"PROVIDER_KEY_NAME": None}, "key_name is required"),
    ({"PROVIDER_KEYRING_DIR": None}, "keyring_dir is required"),
    ({"PROVIDER_KEYRING_BACKEND": "pass"}, "keyring_backend must be 'file', 'os', 'test' or 'env'"),
    ({"PROVIDER_CHAIN_PROFILE": "D"}, "chain_profile must be 'auto', 'A', 'B' or 'C'"),
    ({"PROVIDER_PRODUCTION_MODE": "enabled"}, "production_mode: 'enabled' is not a boolean"),
    ({"PROVIDER_WITHDRAW_INTERVAL": "0s"}, "withdraw_interval must be positive"),
    ({"PROVIDER_WITHDRAW_INTERVAL": "60"}, "withdraw_interval: '60' is not a duration"),
    ({"PROVIDER_CREDIT_CHECK_INTERVAL": "-1s"}, "credit_check_interval cannot be negative"),
    (
        {"PROVIDER_CREDIT_CHECK_INTERVAL": "2h"},
        "credit_check_interval (2h0m0s) must not exceed withdraw_interval (1h0m0s)",
    ),
    ({"PROVIDER_CREDIT_CHECK_ZERO_GRACE_PERIOD": "-1s"}, "credit_check_zero_grace_period cannot be negative"),
    ({"PROVIDER_RATE_LIMIT_RPS": "0"}, "rate_limit_rps must be positive"),
    ({"PROVIDER_RATE_LIMIT_RPS": "NaN"}, "rate_limit_rps must not be NaN"),
    ({"PROVIDER_RATE_LIMIT_BURST": "0"}, "rate_limit_burst must be positive"),
    ({"PROVIDER_TENANT_RATE_LIMIT_RPS": "-1"}, "tenant_rate_limit_rps cannot be negative"),
    ({"PROVIDER_TENANT_RATE_LIMIT_BURST": "-1"}, "tenant_rate_limit_burst cannot be negative"),
    (
        {"PROVIDER_TENANT_RATE_LIMIT_BURST": "0"},
        "tenant_rate_limit_burst must be positive when tenant_rate_limit_rps > 0",
    ),
    ({"PROVIDER_GAS_LIMIT": "0"}, "gas_limit must be positive"),
    (
        {"PROVIDER_GAS_LIMIT": "9223372036854775808"},
        "gas_limit 9223372036854775808 exceeds maximum (9223372036854775807)",
    ),
    ({"PROVIDER_MAX_GAS_LIMIT": "9223372036854775808"}, "max_gas_limit 9223372036854775808 exceeds maximum"),
    ({"PROVIDER_MAX_GAS_LIMIT": "100"}, "max_gas_limit (100) must be >= gas_limit (1500000)"),
    ({"PROVIDER_GAS_PRICE": "-1"}, "gas_price cannot be negative"),
    ({"PROVIDER_GAS_ADJUSTMENT": "nan"}, "gas_adjustment must not be NaN"),
    ({"PROVIDER_GAS_ADJUSTMENT": "0.5"}, "gas_adjustment must be between 1.0 and 3.0, got 0.500000"),
    ({"PROVIDER_HTTP_READ_TIMEOUT": "0"}, "http_read_timeout must be positive"),
    ({"PROVIDER_HTTP_WRITE_TIMEOUT": "-1s"}, "http_write_timeout must be positive"),
    ({"PROVIDER_HTTP_IDLE_TIMEOUT": "0"}, "http_idle_timeout must be positive"),
    ({"PROVIDER_WEBSOCKET_PING_INTERVAL": "0"}, "websocket_ping_interval must be positive"),
    ({"PROVIDER_TX_POLL_INTERVAL": "0"}, "tx_poll_interval must be positive"),
    ({"PROVIDER_TX_TIMEOUT": "0"}, "tx_timeout must be positive"),
    ({"PROVIDER_TX_TIMEOUT_BLOCKS": "4"}, "tx_timeout_blocks must be at least 5"),
    ({"PROVIDER_QUERY_PAGE_LIMIT": "0"}, "query_page_limit must be positive"),
    ({"PROVIDER_MAX_WITHDRAW_ITERATIONS": "0"}, "max_withdraw_iterations must be positive"),
    ({"PROVIDER_WITHDRAW_LIMIT": "0"}, "withdraw_limit must be positive"),
    ({"PROVIDER_WITHDRAW_LIMIT": "101"}, "withdraw_limit (101) must not exceed the chain's MaxBatchLeaseSize (100)"),
    ({"PROVIDER_WEBSOCKET_RECONNECT_INITIAL": "0"}, "websocket_reconnect_initial must be positive"),
    ({"PROVIDER_WEBSOCKET_RECONNECT_MAX": "500ms"}, "websocket_reconnect_max must be >= websocket_reconnect_initial"),
    ({"PROVIDER_MAX_REQUEST_BODY_SIZE": "0"}, "max_request_body_size must be positive"),
    ({"PROVIDER_CREDIT_CHECK_ERROR_THRESHOLD": "0"}, "credit_check_error_threshold must be positive"),
    ({"PROVIDER_CREDIT_CHECK_RETRY_INTERVAL": "0"}, "credit_check_retry_interval must be positive"),
    ({"PROVIDER_SUB_SIGNER_COUNT": "-1"}, "sub_signer_count must be non-negative"),
    (
        {"PROVIDER_SUB_SIGNER_COUNT": "1", "PROVIDER_SUB_SIGNER_FUND_CHECK_INTERVAL": "0"},
        "sub_signer_fund_check_interval must be positive when sub_signer_count > 0",
    ),
    ({"PROVIDER_SUB_SIGNER_MIN_BALANCE": "10"}, "sub_signer_min_balance: '10' is not a coin"),
    ({"PROVIDER_SUB_SIGNER_TOP_UP_AMOUNT": "5upwr"}, "sub_signer_top_up_amount must be in fee_denom (umfx)"),  # CH-81
    (
        {"PROVIDER_SUB_SIGNER_COUNT": "1", "PROVIDER_SUB_SIGNER_MIN_BALANCE": "5upwr"},
        "sub_signer_min_balance must be in fee_denom (umfx) and at most sub_signer_top_up_amount",
    ),
    (
        {"PROVIDER_SUB_SIGNER_COUNT": "1", "PROVIDER_SUB_SIGNER_MIN_BALANCE": "50000001umfx"},
        "sub_signer_min_balance must be in fee_denom (umfx) and at most sub_signer_top_up_amount",
    ),
    ({"PROVIDER_ACK_MAX_PER_TX": "5001"}, "ack_max_per_tx must be between 1 and 5000, got 5001"),
    ({"PROVIDER_RECONCILIATION_INTERVAL": "0"}, "reconciliation_interval must be positive"),
    ({"PROVIDER_SHUTDOWN_TIMEOUT": "0"}, "shutdown_timeout must be positive"),
    ({"PROVIDER_WEBSOCKET_URL": "http://x/websocket"}, "websocket_url must use ws:// or wss:// scheme"),
    ({"PROVIDER_WEBSOCKET_URL": "nothing"}, "websocket_url is not a valid URL"),
    ({"PROVIDER_GRPC_ENDPOINT": "localhost"}, "grpc_endpoint must be in host:port format"),
    (
        {"PROVIDER_GRPC_ENDPOINT": "a:1,b:1"},
        "grpc_endpoint names 2 node(s) and websocket_url 1: the i-th belong together",
    ),
    (
        {"PROVIDER_GRPC_ENDPOINT": "a:1,a:1", "PROVIDER_WEBSOCKET_URL": "ws://a/,ws://b/"},
        "grpc_endpoint names a node twice",
    ),
    (
        {"PROVIDER_GRPC_ENDPOINT": "a:1,", "PROVIDER_WEBSOCKET_URL": "ws://a/,ws://b/"},
        "grpc_endpoint must be in host:port format",
    ),
    (
        {"PROVIDER_GRPC_ENDPOINT": "a:1,b:1", "PROVIDER_WEBSOCKET_URL": "ws://a/,http://b/"},
        "websocket_url must use ws:// or wss:// scheme",
    ),
    ({"PROVIDER_API_LISTEN_ADDR": "8080"}, "api_listen_addr must be in host:port format"),
    ({"PROVIDER_TLS_CERT_FILE": "/x"}, "both tls_cert_file and tls_key_file must be set together"),
    ({"PROVIDER_TRUSTED_PROXIES": "10.0.0.0/8,x"}, "trusted_proxies: 'x' is neither a CIDR block nor an IP address"),
    ({"PROVIDER_BACKENDS": None}, "at least one backend must be configured"),
    ({"PROVIDER_BACKENDS": "{"}, "backends is not JSON"),
    ({"PROVIDER_BACKENDS": '["a"]'}, "backends must be a list of mappings"),
    ({"PROVIDER_CALLBACK_BASE_URL": None}, "callback_base_url is required"),
    (
        {"PROVIDER_CALLBACK_BASE_URL": "ftp://x"},
        'callback_base_url: URL must use http:// or https:// scheme, got "ftp"',
    ),
    ({"PROVIDER_CALLBACK_BASE_URL": "http://"}, "callback_base_url: URL must have a host"),
    (
        {"PROVIDER_CALLBACK_BASE_URL": "http://x/fred#top"},
        'callback_base_url: URL must not have a fragment: remove "#top"',
    ),
    ({"PROVIDER_CALLBACK_BASE_URL": "http://x:99999"}, "callback_base_url: invalid URL"),
    (
        {"PROVIDER_CALLBACK_BASE_URL": "https://x/fred", "PROVIDER_CALLBACK_CANONICAL_PATH_PREFIX": "/other"},
        'callback_canonical_path_prefix must equal the path of callback_base_url ("/fred")',
    ),
    ({"PROVIDER_CALLBACK_SECRET": None}, "callback_secret is required for callback authentication"),
    ({"PROVIDER_CALLBACK_SECRET": "x" * 31}, "callback_secret must be at least 32 characters"),
    ({"PROVIDER_CALLBACK_CANONICAL_PATH_PREFIX": "x"}, 'callback_canonical_path_prefix must start with "/"'),
    ({"PROVIDER_CALLBACK_CANONICAL_PATH_PREFIX": "/"}, 'callback_canonical_path_prefix must not end with "/"'),
    ({"PROVIDER_PLACEMENT_SNAPSHOT_RETAIN": "0"}, "placement_snapshot_retain must be between 1 and 1000, got 0"),
    ({"PROVIDER_PLACEMENT_SNAPSHOT_INTERVAL": "1m"}, "placement_snapshot_interval must be at least 5m"),
    (
        {"PROVIDER_MAINTENANCE_LEGACY_IDEMPOTENCY_TENANTS": "manifest1x"},
        "maintenance_legacy_idempotency_tenants: 'manifest1x' is not a valid bech32 address",
    ),
    (
        {
            "PROVIDER_PRODUCTION_MODE": "true",
            "PROVIDER_GRPC_TLS_ENABLED": "true",
            "PROVIDER_GRPC_TLS_SKIP_VERIFY": "true",
        },
        "production_mode: grpc_tls_skip_verify cannot be enabled with grpc_tls_enabled",
    ),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[message for _, message in BAD])
def test_a_bad_value_is_named_with_its_key_and_how_to_write_it(changes, message):
    (line,) = problems(good(**changes))
    assert line.startswith(f"failed to load config: config validation failed: {message}")
    assert any(name in line for name in changes)


def test_an_unknown_log_level_keeps_its_own_text():
    (line,) = problems(good(PROVIDER_LOG_LEVEL="trace"))
    assert line.startswith('invalid log_level: unknown log level: "trace" (valid: debug, info, warn, error)')


def test_log_levels_have_any_case():
    assert conf.load_provider(good(PROVIDER_LOG_LEVEL="WARN")).tree.log_level == "warn"


KEYED = {"hmac_secret": SECRET}
BAD_BACKENDS = [
    ([{"name": ""}], "backends[0].name is required"),
    ([{}, {}], "duplicate backend name: docker-1"),
    ([{"url": ""}], "backends[0].url is required"),
    ([{"url": "ftp://x"}], 'backends[0].url: URL must use http:// or https:// scheme, got "ftp"'),
    ([{"url": "http://x/prefix"}], "backends[0].url: a path prefix is only possible with contract: v0_13"),
    (
        [{"url": "http://x/prefix#a/b", "contract": "v0_13"}],
        'backends[0].url: URL must not have a fragment: remove "#a/b"',
    ),
    ([{"url": "http://x#"}], 'backends[0].url: URL must not have a fragment: remove "#"'),
    ([{"timeout": "0s"}], "backends[0].timeout must be positive"),
    ([{"timeout": 30}], "backends[0].timeout: 30 has no unit"),
    ([{"skus": ["docker-small"]}], "backends[0].skus: 'docker-small' is not a UUID"),
    ([{"contract": "v2"}], "backends[0].contract must be 'auto', 'v0_13' or 'current'"),
    (
        [{"tls_client_cert_file": "/c", "url": "https://x"}],
        "backends[0]: both tls_client_cert_file and tls_client_key_file",
    ),
    ([{"tls_skip_verify": True}], "backends[0]: TLS settings (tls_ca_file/tls_skip_verify/"),
    ([{"default": True}, {"name": "b", "default": True}], "multiple default backends specified"),
    ([{"hmac_secret": "short"}], "backends[0].hmac_secret must be at least 32 characters"),
    ([KEYED, {"name": "b"}], "backends: either every backend has an hmac_secret or none has"),
    ([KEYED, {"name": "b", **KEYED}], "backends[1].hmac_secret duplicates backends[0].hmac_secret"),
    (
        [{**KEYED, "hmac_secret_previous": SECRET}],
        "backends[0].hmac_secret_previous duplicates backends[0].hmac_secret",
    ),
    ([{**KEYED, "hmac_secret_previous": SECRET + "\0"}], "backends[0].hmac_secret_previous duplicates"),
    ([{"hmac_secret_previous": SECRET}], "backends[0].hmac_secret_previous needs hmac_secret on the same entry"),
    ([{"fenced": True}, {"name": "b"}], "backends[0].fenced requires a per-backend hmac_secret on every backend"),
    ([{"fenced": True, **KEYED}], "every backend is fenced"),
    ([{"colour": "red"}], "backends[0]: unknown key: colour"),
    (
        [{"sku_prefix": "d-"}],
        "backends[0]: sku_prefix is no longer supported (on-chain SKUs are always UUIDs); replace",
    ),
]


@pytest.mark.parametrize(("entries", "message"), BAD_BACKENDS, ids=[message for _, message in BAD_BACKENDS])
def test_a_bad_backend_is_named_with_its_index(entries, message):
    (line,) = problems(with_backends(*entries))
    assert line.startswith(f"failed to load config: config validation failed: {message}")
    assert "PROVIDER_BACKENDS" in line


LOCAL = [
    ("http://localhost:1", "URL must not use localhost"),
    ("http://LOCALHOST.:1", "URL must not use localhost"),
    ("http://127.1.2.3", "URL must not use a loopback address"),
    ("http://[::1]:80", "URL must not use a loopback address"),
    ("http://[::ffff:127.0.0.1]", "URL must not use a loopback address"),
    ("http://2130706433", "URL must not use a loopback address"),
    ("http://0177.0.0.1", "URL must not use a loopback address"),
    ("http://169.254.169.254", "URL must not use a link-local address"),
    ("http://[fe80::1%25eth0]", "URL must not use a link-local address"),
    ("http://0.0.0.0", "URL must not use an unspecified address"),
    ("http://[::]", "URL must not use an unspecified address"),
]


@pytest.mark.parametrize(("url", "message"), LOCAL)
def test_in_production_no_url_points_back_at_the_machine(url, message):
    (backend,) = problems(with_backends({"url": url}, PROVIDER_PRODUCTION_MODE="true"))
    assert f"production_mode: backends[0].url: {message}" in backend
    (callback,) = problems(good(PROVIDER_CALLBACK_BASE_URL=url, PROVIDER_PRODUCTION_MODE="true"))
    assert f"production_mode: callback_base_url: {message}" in callback


@pytest.mark.parametrize(
    "url", ["http://10.0.0.1", "http://192.168.1.1", "http://[fd00::1]", "http://fred.example", "http://face.cafe"]
)
def test_private_addresses_and_names_are_fine_in_production(url):
    conf.load_provider(with_backends({"url": url}, PROVIDER_PRODUCTION_MODE="true"))


def test_strict_production_wants_https_and_a_key_for_every_backend():
    lines = problems(good(PROVIDER_PRODUCTION_MODE="true", PROVIDER_PRODUCTION_STRICT="true"))
    assert [line.partition("failed: ")[2].partition(" (")[0] for line in lines] == [
        "production_mode: callback_secret must be absent; give every backend its own hmac_secret",
        "production_mode: backends[0].url must use https",
        "production_mode: backends[0].hmac_secret is required",
    ]


def test_all_problems_are_reported_at_once_in_the_order_of_the_table():
    lines = problems(
        with_backends(
            {"timeout": "x", "name": ""},
            PROVIDER_PROVIDER_UUID=None,
            PROVIDER_GAS_LIMIT="many",
            PROVIDER_RECONCILIATION_INTERVAL="0s",
            PROVIDER_KEY_NAME=None,
            PROVIDER_CALLBACK_SECRET="short",
        )
    )
    assert [line.partition("failed: ")[2].partition(" (")[0] for line in lines] == [
        "provider_uuid is required",
        "key_name is required",
        "gas_limit: 'many' is not an integer",
        "reconciliation_interval must be positive",
        "backends[0].timeout: 'x' is not a duration; write for example 500ms, 90s, 1h30m",
        "backends[0].name is required",
        "callback_secret must be at least 32 characters",
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"PROVIDER_CALLBACK_BASE_URL": "localhost:8080"}, 1, id="no URL has no path"),
        pytest.param({"PROVIDER_PRODUCTION_MODE": "yes", "PROVIDER_BACKENDS": None}, 2, id="mode and backends"),
        pytest.param({"PROVIDER_PRODUCTION_MODE": "yes", "PROVIDER_CALLBACK_BASE_URL": "x"}, 2, id="mode and URL"),
        pytest.param({"PROVIDER_BACKENDS": '["a", {"name": "b", "url": "ftp://x"}]'}, 2, id="no mapping"),
        pytest.param({"PROVIDER_BACKENDS": '[{"name": "b", "url": "http://x", "hmac_secret": 5}]'}, 1, id="no text"),
    ],
)
def test_each_mistake_is_told_once_and_hides_no_other(changes, expected):
    lines = problems(good(**changes))
    assert len(lines) == expected, lines


def test_a_key_that_could_not_be_read_is_not_taken_for_absent():
    first = {"name": "a", "hmac_secret": 5}
    lines = problems(with_backends(first, {"name": "b", "hmac_secret": "short"}))
    assert [line.partition("failed: ")[2].partition(" (")[0] for line in lines] == [
        "backends[0].hmac_secret is not text; put it in quotes",
        "backends[1].hmac_secret must be at least 32 characters",
    ]


def test_an_env_keyring_needs_no_folder():
    tree = conf.load_provider(good(PROVIDER_KEYRING_BACKEND="env", PROVIDER_KEYRING_DIR=None)).tree
    assert tree.keyring_dir == ""


def test_backends_with_keys_of_their_own_need_no_shared_secret():
    tree = conf.load_provider(
        with_backends(KEYED, {"name": "b", "hmac_secret": OTHER}, PROVIDER_CALLBACK_SECRET=None)
    ).tree
    assert tree.hmac_key("docker-1") == SECRET
    assert tree.hmac_key("b") == OTHER
    assert tree.previous_hmac_key("b") is None


def test_urls_lose_their_trailing_slashes():
    tree = conf.load_provider(
        with_backends({"url": "http://x//"}, PROVIDER_CALLBACK_BASE_URL="https://fred.example/")
    ).tree
    assert tree.backends[0].url == "http://x"
    assert tree.callback_base_url == "https://fred.example"


def test_a_trusted_proxy_is_known_by_its_network():
    tree = conf.load_provider(good(PROVIDER_TRUSTED_PROXIES="10.0.0.0/8, ::1")).tree
    assert tree.trusts("10.1.2.3")
    assert tree.trusts("::1")
    assert not tree.trusts("11.0.0.1")
    assert not tree.trusts("not an address")


def test_the_first_backend_is_the_default_unless_one_is_marked():
    """BC-66"""
    assert conf.load_provider(with_backends({}, {"name": "b"})).tree.default_backend.name == BACKEND["name"]
    assert conf.load_provider(with_backends({}, {"name": "b", "default": True})).tree.default_backend.name == "b"


def test_settings_are_looked_up_without_a_search_for_what_is_not_there(monkeypatch):
    def search(tree, name):
        raise AssertionError(f"{name} is looked for in every look-up")

    monkeypatch.setattr(BaseModel, "__getattr__", search)
    assert [settings.FRED.chain_id for _ in range(2)] == ["manifest-localnet"] * 2
