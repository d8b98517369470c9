"""The configured backends as requests need them: address, key and limits from the settings, the rest from the rows.

Everything that contacts a backend, or asks who there is, gets it here: a retired one is not in it, a fenced one says
so and is never contacted, and one whose dialect is not settled says why nothing may be pushed to it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from django.conf import settings

from backends.client import BackendClient
from backends.contract import Dialect
from backends.models import Backend
from backends.requests import BackendTarget
from fred import breaker, on_loop
from fred.certificates import CertificateError, ClientCertificates, ClientFiles
from fred.conf.backends import BackendConfig
from fred.http import Tls

FRESH_S = 1.5
"""How old a process's view of the rows may be."""
SPARE_S = 2.5
"""How much older while somebody reads them anew; a fence is seen everywhere within both times together.

A pool of connections whose session was lost pauses for a second or two before it opens the next."""
UNSETTLED = "its dialect is not known yet"
UNSERVED = "it speaks the current dialect, which nothing is pushed in"


@dataclass(frozen=True, slots=True)
class _Known:
    """What was made of one configuration and the rows as they were at one time: targets by name, names by SKU."""

    config: Sequence[BackendConfig] = ()
    read_at: float = float("-inf")
    targets: Mapping[str, BackendTarget] = field(default_factory=dict)
    serving: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def is_fresh(self, config: Sequence[BackendConfig], *, spare_s: float = 0.0) -> bool:
        return self.config is config and time.monotonic() - self.read_at <= FRESH_S + spare_s


class _View:
    """What is known, read from the database anew when it is wanted and too old."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._known = _Known()

    def now(self) -> _Known:
        known, config = self._known, settings.FRED.backends
        if known.is_fresh(config):
            return known
        if self._turn.acquire(blocking=False):
            try:
                return on_loop.brief(self._read)
            finally:
                self._turn.release()
        return known if known.is_fresh(config, spare_s=SPARE_S) else on_loop.brief(self._read)

    def _read(self) -> _Known:
        config = settings.FRED.backends
        with self._lock:
            if not self._known.is_fresh(config):
                since = time.monotonic()
                rows = {row.name: row for row in Backend.objects.all()}
                known = {
                    one.name: _target(one, row)
                    for one in config
                    if (row := rows.get(one.name)) is None or row.retired_at is None
                }
                self._known = _Known(config, since, known, _serving(config))
            return self._known

    def forget(self) -> None:
        with self._lock:
            self._known = _Known()


_view = _View()


def configured() -> Mapping[str, BackendTarget]:
    """Every backend of the configuration that is not retired, in its order; a fenced one is never contacted."""
    return _view.now().targets


def serving(sku: str) -> Sequence[str]:
    """Names of the backends whose configuration lists this SKU, in its order; a retired one is among them."""
    return _view.now().serving.get(sku, ())


def target(name: str) -> BackendTarget | None:
    """The target of one backend, None when the configuration has none of this name, or it is retired."""
    return _view.now().targets.get(name)


def client(name: str) -> BackendClient | None:
    """Reads from one backend, through its circuit breaker; None when it is not configured or not to be contacted."""
    found = target(name)
    return None if found is None or found.shut else BackendClient(found, breaker.of(name))


def forget() -> None:
    """Read the rows again at the next use: something about a backend was changed here."""
    _view.forget()


def _serving(config: Sequence[BackendConfig]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in config:
        for sku in dict.fromkeys(one.skus):
            found.setdefault(str(sku), []).append(one.name)
    return found


def _target(one: BackendConfig, row: Backend | None) -> BackendTarget:
    seen = one.contract if one.contract != "auto" else row.dialect if row is not None else "unset"
    fenced = one.fenced or (row is not None and row.fenced)
    closed = {Dialect.V0_13.value: "", Dialect.CURRENT.value: UNSERVED}.get(seen, UNSETTLED)
    tls, broken = Tls(), ""
    if not fenced:  # files of a fenced backend are not opened
        try:
            tls = _tls(one)
        except CertificateError as error:
            broken = f"its TLS files cannot be used: {error}"
    return BackendTarget(
        name=one.name,
        url=one.url,
        secret=settings.FRED.hmac_key(one.name),
        timeout=one.timeout.total_seconds(),
        dialect=Dialect.CURRENT if seen == Dialect.CURRENT else Dialect.V0_13,
        tls=tls,
        fenced=fenced,
        closed=closed,
        broken=broken,
        guarded=settings.FRED.production_mode,
    )


_certificates: dict[str, ClientCertificates] = {}


def _tls(one: BackendConfig) -> Tls:
    """The backend's TLS as its files are now. Raises `CertificateError` when they never could be read."""
    files = ClientFiles(one.tls_ca_file, one.tls_client_cert_file, one.tls_client_key_file)
    known = _certificates.get(one.name)
    if known is None or known.files != files:
        known = _certificates[one.name] = ClientCertificates(one.name, files)
    return known.tls(skip_verify=one.tls_skip_verify)
