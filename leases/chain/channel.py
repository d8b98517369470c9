"""The gRPC connection of a process: lazy, made after fork, with a time limit on every call."""

from __future__ import annotations

import os
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.x509.oid import NameOID
from google.protobuf.unknown_fields import UnknownFieldSet

from leases.chain import noticed
from leases.chain.errors import CallRefused, ChainError, ChainUnavailable

HEIGHT_HEADER = "x-cosmos-block-height"
_MEBIBYTE = 1024 * 1024
_OPTIONS: tuple[tuple[str, int], ...] = (
    # A node closes connections that ping more often ("too many pings").
    ("grpc.keepalive_time_ms", 300_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 0),
    # A node that comes back is used within seconds, not after gRPC's usual two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Answers are repeated by whoever asked, with its own patience.
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", 64 * _MEBIBYTE),
)
_SILENT = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.CANCELLED,
    }
)
_TRANSPORT = {grpc.StatusCode.UNAVAILABLE: "unavailable", grpc.StatusCode.DEADLINE_EXCEEDED: "timeout"}
_SLOW_SECONDS = 1.0
# Connections of a parent process: kept, unused, because tearing one down here could disturb the parent's.
_inherited: list[grpc.Channel] = []

RETRIED = frozenset({code.name for code in _SILENT} - {"CANCELLED"})
"""Names of the gRPC statuses after which the same call may work: everything but our own cancelling and refusals."""


@dataclass(frozen=True, slots=True)
class Tls:
    """How to trust the node. An empty `ca_file` means the system's roots; without `verify` any certificate will do."""

    ca_file: str = ""
    verify: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """A response and the height it was read at; -1 when the node did not say."""

    message: Any
    height: int


class NodeChannel:
    """One endpoint (`host:port`). Threads share the connection; a forked child makes its own.

    Nothing is connected before the first call. `on_outcome` hears of every call whether it was answered; an error of
    the node is an answer, silence and a broken connection are none.
    """

    def __init__(
        self, endpoint: str, *, tls: Tls | None = None, on_outcome: Callable[[bool], object] | None = None
    ) -> None:
        self.endpoint = endpoint
        self._on_outcome = on_outcome
        self._tls = tls
        self._roots = _read_roots(tls) if tls is not None else None
        self._lock = threading.Lock()
        self._owner = 0
        self._channel: grpc.Channel | None = None
        self._methods: dict[str, Callable[..., Any]] = {}

    def call(self, method: str, request: Any, response_type: type[Any], *, timeout: float) -> Answer:
        """Call a unary method and wait at most `timeout` seconds. Raises `grpc.RpcError`."""
        started = time.monotonic()
        try:
            response, call = self._method(method, response_type).with_call(request, timeout=timeout)  # type: ignore[attr-defined]
        except grpc.RpcError as error:
            self.heard([error])
            raise
        self.heard([], slow=method if time.monotonic() - started > _SLOW_SECONDS else "")
        found = Answer(response, _height(call.initial_metadata()))
        _look_for_strange_fields(response, method)
        return found

    def heard(self, errors: Sequence[grpc.RpcError], *, answers: int = 0, slow: str = "") -> None:
        """Calls that were under way together have ended: with these errors, and so many answers.

        Together they are one failure at most: a node that is gone fails all of them at once.
        """
        silent = [error for error in errors if status_of(error)[0] in _TRANSPORT]
        for error in errors:
            code, text = status_of(error)
            if code in _TRANSPORT:
                noticed.fault(_TRANSPORT[code], text)
            elif code in _SILENT and "with gas used:" not in text and not says_no_grant(error):
                noticed.fault("grpc_error", f"{code.name}: {text}")
        if slow:
            noticed.fault("slow", slow)
        if self._on_outcome is not None:
            self._on_outcome(answers > 0 or len(silent) < len(errors) or not errors)

    def start(self, method: str, request: Any, response_type: type[Any], *, timeout: float) -> Any:
        """Start a unary call and return its future; `answer` waits for it."""
        return self._method(method, response_type).future(request, timeout=timeout)  # type: ignore[attr-defined]

    def close(self) -> None:
        """Close this process's connection; a later call opens another."""
        with self._lock:
            if self._channel is not None and self._owner == os.getpid():
                self._channel.close()
            elif self._channel is not None:
                _inherited.append(self._channel)
            self._channel = None
            self._methods = {}

    def _method(self, method: str, response_type: type[Any]) -> Callable[..., Any]:
        with self._lock:
            if self._channel is None or self._owner != os.getpid():
                if self._channel is not None:
                    _inherited.append(self._channel)
                self._channel = self._connect()
                self._owner = os.getpid()
                self._methods = {}
            found = self._methods.get(method)
            if found is None:
                found = self._channel.unary_unary(
                    method,
                    request_serializer=_serialize,
                    response_deserializer=response_type.FromString,
                )
                self._methods[method] = found
            return found

    def _connect(self) -> grpc.Channel:
        if self._tls is None:
            return grpc.insecure_channel(self.endpoint, options=_OPTIONS)
        if self._tls.verify:
            return grpc.secure_channel(self.endpoint, grpc.ssl_channel_credentials(self._roots), options=_OPTIONS)
        certificate = _presented_certificate(self.endpoint)
        options = (*_OPTIONS, ("grpc.ssl_target_name_override", _name_of(certificate)))
        return grpc.secure_channel(self.endpoint, grpc.ssl_channel_credentials(certificate), options=options)


def answer(future: Any) -> Answer:
    """Wait for a started call. Raises `grpc.RpcError`."""
    response = future.result()
    return Answer(response, _height(future.initial_metadata()))


def height_of(error: grpc.RpcError) -> int:
    """Return the height in the headers of a failed call, -1 when there is none."""
    try:
        return _height(error.initial_metadata())  # type: ignore[attr-defined]
    except (AttributeError, ValueError):
        return -1


def status_of(error: grpc.RpcError) -> tuple[grpc.StatusCode, str]:
    """Return status and text of a failed call."""
    if isinstance(error, grpc.Call):
        return error.code() or grpc.StatusCode.UNKNOWN, error.details() or ""
    return grpc.StatusCode.UNKNOWN, str(error)


def is_not_found(error: grpc.RpcError) -> bool:
    """Whether the node answered that there is no such thing."""
    return status_of(error)[0] is grpc.StatusCode.NOT_FOUND


def says_no_grant(error: grpc.RpcError) -> bool:
    """Whether a failed question for a grant means that there is none: the node has only this text for it."""
    return "authorization not found" in status_of(error)[1]


def failure(error: grpc.RpcError, doing: str) -> ChainUnavailable | CallRefused:
    """Turn a failed call into the error that says what to do next."""
    code, text = status_of(error)
    reason = f"failed to {doing}: {code.name}: {text}"
    if code in _SILENT:
        return ChainUnavailable(reason, code=code.name)
    return CallRefused(reason, code=code.name)


def _look_for_strange_fields(message: Any, method: str) -> None:
    if len(UnknownFieldSet(message)):
        noticed.fault("unknown_field", method)


def _serialize(request: Any) -> bytes:
    return bytes(request.SerializeToString(deterministic=True))


def _height(metadata: Any) -> int:
    for key, value in metadata or ():
        if key == HEIGHT_HEADER:
            return int(value) if str(value).isdecimal() else -1
    return -1


def _read_roots(tls: Tls) -> bytes | None:
    if not tls.ca_file:
        return None
    try:
        text = Path(tls.ca_file).read_bytes()
    except OSError as error:
        raise ChainError(f"failed to read CA file: {error}") from error
    try:
        certificates = x509.load_pem_x509_certificates(text)
    except ValueError:
        certificates = []
    if not certificates:
        raise ChainError("failed to parse CA certificate")
    return text


def _presented_certificate(endpoint: str) -> bytes:
    """Fetch the certificate the node shows, to trust exactly that one: gRPC has no switch to trust any."""
    host, _, port = endpoint.rpartition(":")
    try:
        return ssl.get_server_certificate((host.strip("[]"), int(port)), timeout=10).encode()
    except (OSError, ValueError) as error:
        raise ChainUnavailable(f"failed to read the node's certificate: {error}", code="UNAVAILABLE") from error


def _name_of(certificate: bytes) -> str:
    parsed = x509.load_pem_x509_certificate(certificate)
    try:
        names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        common = parsed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return str(common[0].value) if common else "localhost"
    dns = names.get_values_for_type(x509.DNSName)
    addresses = names.get_values_for_type(x509.IPAddress)
    return dns[0].replace("*", "any", 1) if dns else str(addresses[0]) if addresses else "localhost"
