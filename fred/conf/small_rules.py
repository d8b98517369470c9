"""What our own settings and an agent's settings must be."""

import ipaddress

from fred.conf.agent import AgentConfig
from fred.conf.house import HouseConfig
from fred.conf.rule import MIN_SECRET, Rule, not_negative, positive, required, when
from fred.conf.service_urls import SERVICE_URL_RULES
from fred.conf.values import split_host_port

_MIN_SECRET_KEY = 50
_MIN_TOKEN = 16

SERVICE_RULES: tuple[Rule[HouseConfig], ...] = (
    Rule(
        ("database_url",),
        lambda c: when(not c.database_url, "DATABASE_URL is required"),
        "for example postgres://fred@localhost/fred",
    ),
    Rule(
        ("redis_url",),
        lambda c: when(not c.redis_url, "REDIS_URL is required"),
        "for example redis://localhost:6379/0",
    ),
    Rule(
        ("django_secret_key",),
        lambda c: when(not c.django_secret_key, "DJANGO_SECRET_KEY is required"),
        f"{_MIN_SECRET_KEY} random characters",
    ),
)

HOUSE_RULES: tuple[Rule[HouseConfig], ...] = (
    *SERVICE_URL_RULES,
    *(
        positive(key, name=key.upper())
        for key in ("fred_retention_news", "fred_retention_history", "fred_retention_settled")
    ),
)

PRODUCTION_RULES: tuple[Rule[HouseConfig], ...] = (
    Rule(
        ("fred_debug",),
        lambda c: when(c.fred_debug, "production_mode: FRED_DEBUG cannot be enabled"),
        "leave it out",
    ),
    Rule(
        ("django_secret_key",),
        lambda c: when(
            0 < len(c.django_secret_key.get_secret_value()) < _MIN_SECRET_KEY,
            f"production_mode: DJANGO_SECRET_KEY must be at least {_MIN_SECRET_KEY} characters",
        ),
        "write random characters",
    ),
    Rule(
        ("fred_allowed_hosts",),
        lambda c: when(
            c.fred_role == "admin" and "*" in c.fred_allowed_hosts,
            "production_mode: FRED_ALLOWED_HOSTS must name the hosts of the admin site",
        ),
        "write the names it is reached by",
    ),
)

AGENT_RULES: tuple[Rule[AgentConfig], ...] = (
    required("name", "the name the provider knows it by"),
    Rule(
        ("callback_secret",),
        lambda c: when(
            len(c.callback_secret.get_secret_value().encode()) < MIN_SECRET,
            "callback_secret is required and must be at least 32 characters",
        ),
        "the same secret as the provider's",
    ),
    *(not_negative(key) for key in ("delay", "retention")),
    *(
        positive(key)
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
        lambda c: when(not 0.0 <= c.fail_ratio <= 1.0, "fail_ratio must be between 0 and 1"),
        "0 never fails, 1 always",
    ),
    Rule(
        ("tls_cert_file", "tls_key_file"),
        lambda c: when(
            bool(c.tls_cert_file) != bool(c.tls_key_file), "both tls_cert_file and tls_key_file must be set together"
        ),
        "name both, or neither for plain HTTP",
    ),
    Rule(
        ("tls_client_ca_file", "tls_cert_file"),
        lambda c: when(bool(c.tls_client_ca_file) and not c.tls_cert_file, "a client CA requires a TLS certificate"),
        "name tls_cert_file and tls_key_file too",
    ),
    Rule(
        ("tls_client_allowed_names", "tls_client_ca_file"),
        lambda c: when(
            bool(c.tls_client_allowed_names) and not c.tls_client_ca_file,
            "allowed client names require a client CA (mutual TLS)",
        ),
        "name tls_client_ca_file",
    ),
    Rule(
        ("callback_secret_next", "callback_secret"),
        lambda c: when(
            0 < len(c.callback_secret_next.get_secret_value().encode()) < MIN_SECRET,
            "callback_secret_next must be at least 32 characters",
        ),
        "write the next key, or leave it out",
    ),
    Rule(
        ("control_token",),
        lambda c: when(
            0 < len(c.control_token.get_secret_value()) < _MIN_TOKEN, "control_token must be at least 16 characters"
        ),
        "write random characters, or leave it out",
    ),
    Rule(
        ("control", "control_token", "control_anywhere", "addr"),
        lambda c: when(
            c.control
            and bool(c.control_token.get_secret_value())
            and not c.control_anywhere
            and not _is_loopback(c.addr),
            "the control API is offered on loopback addresses only",
        ),
        "listen on 127.0.0.1, or set control_anywhere",
    ),
    *(not_negative(key) for key in ("total_cpu_cores", "total_memory_mb", "total_disk_mb")),
)


def _is_loopback(address: str) -> bool:
    host, _ = split_host_port(address)
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
