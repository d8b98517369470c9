"""What the list of backends must be."""

import hashlib
from collections.abc import Iterator

from fred.conf.provider import ProviderConfig
from fred.conf.rule import MIN_SECRET
from fred.conf.urls import check_production_url, check_url, path_of

_BLOCK = 64


def key_block(secret: str, /) -> bytes:
    """The block HMAC-SHA-256 makes of a key: two keys with the same block are the same key."""
    raw = secret.encode()
    if len(raw) > _BLOCK:
        raw = hashlib.sha256(raw).digest()
    return raw.ljust(_BLOCK, b"\0")


def backend_problems(config: ProviderConfig) -> Iterator[str]:
    """Everything wrong with `backends`, in the order of the entries for each kind of check."""
    if not config.backends:
        yield "at least one backend must be configured"
        return
    yield from _names(config)
    yield from _urls(config)
    yield from _tls(config)
    if sum(backend.default for backend in config.backends) > 1:
        yield "multiple default backends specified"
    yield from _keys(config)
    yield from _fences(config)


def _names(config: ProviderConfig) -> Iterator[str]:
    seen: set[str] = set()
    for index, backend in enumerate(config.backends):
        if not backend.name:
            yield f"backends[{index}].name is required"
        elif backend.name in seen:
            yield f"duplicate backend name: {backend.name}"
        seen.add(backend.name)


def _urls(config: ProviderConfig) -> Iterator[str]:
    for index, backend in enumerate(config.backends):
        if not backend.url:
            yield f"backends[{index}].url is required"
            continue
        faults = list(check_url(backend.url))
        for text in faults:
            yield f"backends[{index}].url: {text}"
        if not faults and path_of(backend.url) and backend.contract != "v0_13":
            yield f"backends[{index}].url: a path prefix is only possible with contract: v0_13"
        if config.production_mode and not faults:
            for text in check_production_url(backend.url):
                yield f"production_mode: backends[{index}].url: {text}"


def _tls(config: ProviderConfig) -> Iterator[str]:
    for index, backend in enumerate(config.backends):
        if backend.timeout.total_seconds() <= 0:
            yield f"backends[{index}].timeout must be positive"
        if bool(backend.tls_client_cert_file) != bool(backend.tls_client_key_file):
            yield f"backends[{index}]: both tls_client_cert_file and tls_client_key_file must be set together"
        if backend.has_tls_fields and not backend.url.startswith("https://"):
            yield (
                f"backends[{index}]: TLS settings (tls_ca_file/tls_skip_verify/tls_client_cert_file/"
                "tls_client_key_file) require an https:// url"
            )


def _keys(config: ProviderConfig) -> Iterator[str]:
    owners: dict[bytes, str] = {}
    with_key = [backend for backend in config.backends if backend.hmac_secret]
    if with_key and len(with_key) != len(config.backends):
        yield "backends: either every backend has an hmac_secret or none has"
    for index, backend in enumerate(config.backends):
        for name, secret in (
            ("hmac_secret", backend.hmac_secret.get_secret_value()),
            ("hmac_secret_previous", backend.hmac_secret_previous.get_secret_value()),
        ):
            if not secret:
                continue
            place = f"backends[{index}].{name}"
            if len(secret.encode()) < MIN_SECRET:
                yield f"{place} must be at least 32 characters"
            other = owners.setdefault(key_block(secret), place)
            if other != place:
                yield f"{place} duplicates {other}"
        if backend.hmac_secret_previous and not backend.hmac_secret:
            yield f"backends[{index}].hmac_secret_previous needs hmac_secret on the same entry"


def _fences(config: ProviderConfig) -> Iterator[str]:
    all_keyed = all(backend.hmac_secret for backend in config.backends)
    for index, backend in enumerate(config.backends):
        if backend.fenced and not all_keyed:
            yield f"backends[{index}].fenced requires a per-backend hmac_secret on every backend"
    if all(backend.fenced for backend in config.backends):
        yield "every backend is fenced"
