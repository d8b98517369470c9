"""Opens the TLS files the settings name. No network, no database, no keyring."""

import ssl
from collections.abc import Iterator
from pathlib import Path

from fred.conf.problems import Problem
from fred.conf.provider import ProviderConfig


def tls_problems(config: ProviderConfig, /) -> Iterator[Problem]:
    """Each named certificate, key or bundle that cannot be used. Files of fenced backends are not opened."""
    if config.tls_cert_file and config.tls_key_file:
        where = "PROVIDER_TLS_CERT_FILE / PROVIDER_TLS_KEY_FILE"
        for text in _pair(config.tls_cert_file, config.tls_key_file):
            yield Problem(f"failed to load TLS certificates: {text}", where=where, fix="name a matching PEM pair")
    if config.grpc_tls_enabled and config.grpc_tls_ca_file:
        for text in _bundle(config.grpc_tls_ca_file):
            yield Problem(f"grpc_tls_ca_file: {text}", where="PROVIDER_GRPC_TLS_CA_FILE", fix="name a PEM file")
    for backend in config.backends:
        if backend.fenced:
            continue
        texts = list(_bundle(backend.tls_ca_file)) if backend.tls_ca_file else []
        if backend.tls_client_cert_file and backend.tls_client_key_file:
            texts.extend(_pair(backend.tls_client_cert_file, backend.tls_client_key_file))
        for text in texts:
            yield Problem(
                f'backend "{backend.name}": build TLS client config: {text}', where="backends in the YAML file"
            )


def _pair(certificate: str, key: str) -> Iterator[str]:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ssl.SSLError, ValueError) as error:
        yield f"{certificate}, {key}: {error}"


def _bundle(path: str) -> Iterator[str]:
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=Path(path).read_text(encoding="ascii"))
    except (OSError, ssl.SSLError, ValueError) as error:
        yield f"no certificates found in {path}: {error}"


def _no_password() -> str:
    raise ValueError("the key is encrypted; TLS keys must be plain PEM")
