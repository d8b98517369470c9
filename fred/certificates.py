"""Certificates in files: read again when they change, never replaced by what does not load, and when they end.

No Django inside, no network.
"""

import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from cryptography import x509

from fred.curl import Tls

log = structlog.get_logger("fred.certificates")


class CertificateError(Exception):
    """The files cannot be used; the text names them and says why, and holds nothing of a key."""


@dataclass(frozen=True, slots=True)
class ClientFiles:
    """Paths of PEM files for calling a server: roots in place of the system's, and our certificate with its key."""

    ca: str = ""
    certificate: str = ""
    key: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """Those that are given."""
        return tuple(path for path in (self.ca, self.certificate, self.key) if path)


@dataclass(slots=True)
class ClientCertificates:
    """What these files hold, as of their last change that could be used."""

    name: str
    files: ClientFiles
    _seen: tuple[object, ...] | None = None
    _loaded: tuple[bytes, bytes, bytes] | None = None
    _complaint: str = field(default="")

    def tls(self, *, skip_verify: bool = False) -> Tls:
        """How to call the server now. The files are looked at every time, and read when one has changed.

        A set that does not load leaves the one before in use, with one line in the log. Raises `CertificateError` as
        long as none was ever loaded. Connections made with an older set are not used again.
        """
        if not self.files.paths:
            return Tls(skip_verify=skip_verify)
        seen = _marks(self.files.paths)
        if seen != self._seen:
            self._reload(seen)
        if self._loaded is None:
            raise CertificateError(self._complaint)
        ca, certificate, key = self._loaded
        return Tls(ca_pem=ca, client_cert_pem=certificate, client_key_pem=key, skip_verify=skip_verify)

    def _reload(self, seen: tuple[object, ...]) -> None:
        self._seen = seen
        try:
            loaded = _load(self.files)
        except CertificateError as error:
            self._complaint = str(error)
            log.error("tls.not_reloaded", name=self.name, error=str(error), kept=self._loaded is not None)  # noqa: TRY400
            return
        if self._loaded is not None:
            log.info("tls.reloaded", name=self.name)
        self._loaded = loaded


class ListenerTls(ssl.SSLContext):
    """What a listener is given for its whole life: new connections get the pair as it was loaded last."""

    paths: tuple[str, str]
    _current: ssl.SSLContext
    _seen: tuple[object, ...]

    @classmethod
    def of(cls, certificate: str, key: str) -> "ListenerTls":
        """Load a PEM certificate chain and its plain PEM key. Raises CertificateError."""
        outer = cls(ssl.PROTOCOL_TLS_SERVER)
        outer.paths = (certificate, key)
        outer._seen = _marks(outer.paths)
        outer._current = _listener_context(certificate, key)
        return outer

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """A new connection."""
        return self._current.wrap_bio(*arguments, **named)

    def reload(self, *, always: bool = False) -> bool:
        """Read the pair again if a file has changed; returns whether another is in use now.

        A pair that does not load leaves the one before in use. Connections keep the one they began with.
        """
        seen = _marks(self.paths)
        if seen == self._seen and not always:
            return False
        self._seen = seen
        try:
            self._current = _listener_context(*self.paths)
        except CertificateError as error:
            log.error("tls.not_reloaded", name="api", error=str(error), kept=True)  # noqa: TRY400
            return False
        log.info("tls.reloaded", name="api")
        return True


def ends_at(pem: bytes) -> float | None:
    """Unix time at which the first of these PEM certificates ends; None without a readable one."""
    try:
        found = x509.load_pem_x509_certificates(pem)
    except ValueError:
        return None
    return min(one.not_valid_after_utc.timestamp() for one in found)


def ends_of(path: str) -> float | None:
    """The same of a file; None also when it cannot be read."""
    try:
        return ends_at(Path(path).read_bytes())
    except OSError:
        return None


def _marks(paths: Iterable[str]) -> tuple[object, ...]:
    """What tells a file from its next version: also a link that was turned to another file."""
    marks: list[object] = []
    for path in paths:
        try:
            found = Path(path).stat()
        except OSError as error:
            marks.append(error.errno)
        else:
            marks.append((found.st_ino, found.st_size, found.st_mtime_ns))
    return tuple(marks)


def _load(files: ClientFiles) -> tuple[bytes, bytes, bytes]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        ca, certificate, key = (
            Path(path).read_bytes() if path else b"" for path in (files.ca, files.certificate, files.key)
        )
        if files.ca:
            context.load_verify_locations(cadata=ca.decode("ascii"))
    except (OSError, ValueError, ssl.SSLError) as error:
        raise CertificateError(f"no certificates found in {files.ca or files.certificate}: {_why(error)}") from None
    if files.certificate:
        try:
            context.load_cert_chain(files.certificate, files.key, password=_no_password)
        except (OSError, ValueError, ssl.SSLError) as error:
            raise CertificateError(f"{files.certificate}, {files.key}: {_why(error)}") from None
    return ca, certificate, key


def _listener_context(certificate: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError, ssl.SSLError) as error:
        raise CertificateError(f"failed to load TLS certificates: {certificate}, {key}: {_why(error)}") from None
    return context


def _why(error: Exception) -> str:
    return (
        error.strerror or str(error)
        if isinstance(error, OSError) and not isinstance(error, ssl.SSLError)
        else str(error)
    )


def _no_password() -> str:
    raise ValueError("the key is encrypted; TLS keys must be plain PEM")
