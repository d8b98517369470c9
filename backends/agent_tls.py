"""TLS at an agent's door: its certificate, which clients may come in, and what is told about those that may not.

The name of a client is looked at after every handshake, also a resumed one. Files are read again when they change; a
set that does not load leaves the one before in use.
"""

import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from cryptography import x509

from backends.agent_metrics import AgentMetrics

log = structlog.get_logger(__name__)

NAMES_WITHOUT_CA = "allowed client names require a client CA (mutual TLS)"
_VERIFY_REASONS: Mapping[int, str] = {
    2: "unknown_authority",
    9: "not_yet_valid",
    10: "expired",
    18: "unknown_authority",
    19: "unknown_authority",
    20: "unknown_authority",
    21: "unknown_authority",
}
_VERIFY_TEXTS = {
    "unknown_authority": "client certificate signed by unknown authority",
    "not_yet_valid": "client certificate is not yet valid",
    "expired": "client certificate has expired",
}


class TlsError(Exception):
    """The files cannot be used, and why."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. A client CA demands a certificate of every client; `allowed_names` are CNs and DNS names, exactly."""

    certificate: str
    key: str
    client_ca: str = ""
    allowed_names: frozenset[str] = frozenset()

    @property
    def paths(self) -> tuple[str, ...]:
        """Those that are given."""
        return tuple(path for path in (self.certificate, self.key, self.client_ca) if path)


def names_of(certificate: Mapping[str, Any]) -> tuple[str, ...]:
    """Common names and DNS names of a verified certificate, as `ssl` gives it."""
    common = [value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"]
    dns = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    return (*common, *dns)


def refusal(error: ssl.SSLError) -> tuple[str, str] | None:
    """Reason and text of a handshake we refused; None when the client left of its own."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = _VERIFY_REASONS.get(error.verify_code, "other")
        return reason, _VERIFY_TEXTS.get(reason, f"client certificate not verified: {error.verify_message}")
    name = error.reason or ""
    if name == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "no_certificate", "client did not present a certificate"
    if "ALERT" in name:
        return None
    if name in {"UNSUPPORTED_PROTOCOL", "WRONG_VERSION_NUMBER", "VERSION_TOO_LOW", "NO_PROTOCOLS_AVAILABLE"}:
        return "protocol_version", "client does not speak TLS 1.3"
    return "other", f"TLS handshake failed: {name or error}"


class _Door:
    """Judges every handshake of one context."""

    def __init__(self, allowed: Collection[str], metrics: AgentMetrics) -> None:
        self._allowed, self._metrics = allowed, metrics

    def failed(self, error: ssl.SSLError) -> None:
        found = refusal(error)
        if found is None:
            log.info("agent.tls_client_left", reason=error.reason)
            return
        self._refuse(*found)

    def admit(self, connection: ssl.SSLObject) -> None:
        if not self._allowed:
            return
        names = names_of(connection.getpeercert() or {})
        if not set(names) & set(self._allowed):
            text = f"client certificate identity not allowed: {', '.join(names) or 'no names'}"
            self._refuse("name_not_allowed", text)
            raise ssl.SSLError(1, text)

    def _refuse(self, reason: str, text: str) -> None:
        self._metrics.tls_refused[reason] += 1
        log.warning("agent.tls_refused", reason=reason, error=text)


def _watched(door: _Door) -> type[ssl.SSLObject]:
    class Watched(ssl.SSLObject):
        """A connection whose handshake is judged."""

        def do_handshake(self) -> None:
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                door.failed(error)
                raise
            door.admit(self)

    return Watched


def _load(files: TlsFiles, metrics: AgentMetrics) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise TlsError(f"failed to load TLS certificates: {files.certificate}, {files.key}: {error}") from None
    if files.client_ca:
        try:
            context.load_verify_locations(cadata=Path(files.client_ca).read_text(encoding="ascii"))
        except (OSError, ssl.SSLError, ValueError):
            raise TlsError(f"no certificates found in {files.client_ca}") from None
        context.verify_mode = ssl.CERT_REQUIRED
    elif files.allowed_names:
        raise TlsError(NAMES_WITHOUT_CA)
    context.sslobject_class = _watched(_Door(files.allowed_names, metrics))
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted; TLS keys must be plain PEM")


class ServerTls(ssl.SSLContext):
    """The context a server is given for its whole life; new connections get the files as they are now."""

    files: TlsFiles
    _metrics: AgentMetrics
    _current: ssl.SSLContext
    _seen: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, files: TlsFiles, metrics: AgentMetrics) -> "ServerTls":
        """Load the files. Raises `TlsError`."""
        outer = cls(ssl.PROTOCOL_TLS_SERVER)
        outer.files, outer._metrics = files, metrics
        outer._seen = outer._stamps()
        outer._current = _load(files, metrics)
        metrics.certificate_ends = outer.ends
        return outer

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """A new connection, under the files loaded last."""
        return self._current.wrap_bio(*arguments, **named)

    def reload(self, *, always: bool = False) -> bool:
        """Read the files again if any has changed; returns whether others are in use now."""
        stamps = self._stamps()
        if stamps == self._seen and not always:
            return False
        self._seen = stamps
        try:
            self._current = _load(self.files, self._metrics)
        except TlsError as error:
            log.error("agent.tls_not_reloaded", error=str(error))  # noqa: TRY400 (the text says everything)
            return False
        log.info("agent.tls_reloaded", certificate=self.files.certificate)
        return True

    def ends(self) -> dict[str, float]:
        """When each certificate file's first to end does, in unix seconds."""
        found = {}
        for path in (self.files.certificate, self.files.client_ca):
            if not path:
                continue
            try:
                certificates = x509.load_pem_x509_certificates(Path(path).read_bytes())
            except (OSError, ValueError):
                continue
            found[path] = min(one.not_valid_after_utc.timestamp() for one in certificates)
        return found

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        return tuple(_stamp(path) for path in self.files.paths)


def _stamp(path: str) -> tuple[int, int]:
    try:
        found = Path(path).stat()
    except OSError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_size)
