"""What may be shown of the settings: a masked view, a fingerprint, warnings at start."""

import hashlib
import hmac
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, SecretStr

from fred.conf.house import HouseConfig
from fred.conf.provider import RETIRED_KEYS, ProviderConfig
from fred.conf.rules import strict_breaches
from fred.conf.values import Coin, format_duration

REDACTED = "[REDACTED]"
_KEY_ID_LABEL = b"fred-hmac-key-id/v1"
_SMALL_GAS_CAP = 5_000_000
_URL_KEYS = frozenset({"database_url", "redis_url", "celery_broker_url"})


def key_id(secret: str, /) -> str:
    """Twelve hex digits that tell keys apart and tell nothing of the key; equal for equivalent keys."""
    return hmac.digest(secret.encode(), _KEY_ID_LABEL, "sha256")[:6].hex()


def shown(tree: BaseModel, /) -> dict[str, Any]:
    """Every key with its value as one would write it; secrets are redacted, an unset secret is empty."""
    return {key: _shown(key, getattr(tree, key)) for key in type(tree).model_fields}


def fingerprint(provider: ProviderConfig, /) -> str:
    """Equal for processes that run with the same settings: SHA-256 over all that is not secret and the ids of keys."""
    content = shown(provider)
    content["key_ids"] = key_ids(provider)
    secret = provider.callback_secret.get_secret_value()
    content["callback_key_id"] = key_id(secret) if secret else ""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def key_ids(provider: ProviderConfig, /) -> list[dict[str, str]]:
    """Per backend the id of the key that signs, and of the one that is still accepted."""
    made = []
    for backend in provider.backends:
        entry = {"name": backend.name, "current_key_id": key_id(provider.hmac_key(backend.name))}
        previous = provider.previous_hmac_key(backend.name)
        if previous is not None:
            entry["previous_key_id"] = key_id(previous)
        made.append(entry)
    return made


def warnings_at_start(provider: ProviderConfig, house: HouseConfig, /) -> Iterator[tuple[str, dict[str, object]]]:
    """What is allowed but unwise: an event for the log and its fields."""
    if provider.grpc_tls_enabled and provider.grpc_tls_skip_verify:
        yield "insecure: chain TLS is not verified (grpc_tls_skip_verify)", {}
    for backend in provider.backends:
        if backend.tls_skip_verify:
            yield "insecure: backend TLS is not verified (tls_skip_verify)", {"backend": backend.name}
    if provider.gas_adjustment <= 1.0:
        yield "gas_adjustment leaves no headroom: first attempts will run out of gas", {}
    if 0 < provider.max_gas_limit < _SMALL_GAS_CAP:
        yield (
            "max_gas_limit is small: large batches may be refused for ever while small ones pass",
            {"max_gas_limit": provider.max_gas_limit, "recommended_min": _SMALL_GAS_CAP},
        )
    retired = [key for key in RETIRED_KEYS if getattr(provider, key)]
    if retired:
        yield "state is stored in Postgres: these keys change nothing", {"keys": retired}
    if house.fred_mnemonic and not provider.sub_signer_count:
        yield "FRED_MNEMONIC is set though no sub-signer is asked for", {}
    if provider.production_mode:
        yield from _warnings_in_production(provider)


def _warnings_in_production(provider: ProviderConfig) -> Iterator[tuple[str, dict[str, object]]]:
    if "*" in provider.cors_origins:
        yield "cors_origins allows every site", {}
    if not provider.trusted_proxies:
        yield "trusted_proxies is empty: all clients behind a proxy share one rate bucket", {}
    if not provider.production_strict:
        for text in strict_breaches(provider):
            yield "weaker than production_strict allows", {"breach": text}


def _shown(key: str, value: object) -> Any:
    result: Any
    match value:
        case SecretStr():
            secret = value.get_secret_value()
            hidden = REDACTED if secret else ""
            result = _without_password(secret) if key in _URL_KEYS else hidden
        case timedelta():
            result = format_duration(value)
        case Coin():
            result = str(value)
        case BaseModel():
            result = shown(value)
        case tuple() | list():
            result = [_shown(key, item) for item in value]
        case None | bool() | int() | float() | str():
            result = value
        case _:
            result = str(value)
    return result


def _without_password(url: str) -> str:
    try:
        parts = urlsplit(url)
        if parts.password is None:
            return url
        user = parts.username or ""
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{user}:{REDACTED}@{host}"))
    except ValueError:
        return REDACTED
