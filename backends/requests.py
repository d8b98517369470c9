"""Building the signed requests of the backend contract."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import urlencode, urlsplit
from uuid import UUID

import orjson

from backends import wire
from backends.contract import Dialect, ProvisionSpec
from fred import request_ids, signing
from fred.http import MEBIBYTE, Request, Tls

MUTATION_BODY_BYTES = MEBIBYTE // 16
LIST_BODY_BYTES = 8 * MEBIBYTE
LOG_BODY_BYTES = 48 * MEBIBYTE
LOG_BODY_BYTES_V0_13 = 16 * MEBIBYTE
MAX_LOOKUP = 100
TEARDOWN_SECONDS_V0_13 = 90.0
"""A `v0_13` backend works inside the request and breaks off with its caller; its own stop time alone is 30 s."""

_JSON = ("Content-Type", "application/json")


@dataclass(frozen=True, slots=True)
class BackendTarget:
    """Where a backend is and how to speak to it. Its repr holds no key.

    `timeout` is in seconds and covers one request. `url` may have a path of its own, which is signed with the rest.
    `closed` says why nothing may be pushed to it although it may be read, `broken` why it can't even be contacted, such
    as TLS files that do not load; both are empty for a backend in use. `guarded` is that of `Request`.
    """

    name: str
    url: str
    secret: str = field(repr=False, default="")
    timeout: float = 30.0
    dialect: Dialect = Dialect.V0_13
    tls: Tls = field(default_factory=Tls)
    page_size: int = 1000
    fenced: bool = False
    closed: str = ""
    broken: str = ""
    guarded: bool = False

    @property
    def shut(self) -> str:
        """Why it is not contacted at all; empty: it is."""
        if self.fenced:
            return f'backend "{self.name}" is fenced'
        return f'backend "{self.name}": {self.broken}' if self.broken else ""


def request(
    backend: BackendTarget,
    path: str,
    *,
    body: bytes | None = None,
    timeout: float | None = None,
    max_body: int = MEBIBYTE,
    tag: object = None,
    want_headers: bool = True,
) -> Request:
    """A request of the contract, signed now if the backend has a key; a `body` makes it a POST.

    What is asked for a request of ours carries its ids; they are not signed.
    """
    address, own_path = _base(backend.url)
    headers = (*((_JSON,) if body is not None else ()), *request_ids.outbound())
    if backend.secret:
        method = "GET" if body is None else "POST"
        signature = signing.sign(
            backend.secret, timestamp=int(time.time()), method=method, target=own_path + path, body=body or b""
        )
        headers = (*headers, (signing.HEADER, signature))
    limit = backend.timeout if timeout is None else timeout
    return Request(
        address + path,
        headers,
        body,
        limit,
        max_body=max_body,
        tls=backend.tls,
        tag=tag,
        want_headers=want_headers,
        guarded=backend.guarded,
    )


@lru_cache
def _base(url: str) -> tuple[str, str]:
    """What stands before the path of a request to this URL, and the part of that which is signed with the path."""
    base = url.rstrip("/")
    parts = urlsplit(base + "/")
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    return base, target[:-1]


def provision_request(backend: BackendTarget, spec: ProvisionSpec, *, tag: object = None) -> Request:
    """`POST /provision`. Build it when it is sent: the signature carries the time and is good for five minutes."""
    body = wire.provision_body(spec)
    return request(backend, "/provision", body=body, max_body=MUTATION_BODY_BYTES, tag=tag, want_headers=False)


def deprovision_request(backend: BackendTarget, lease_uuid: UUID, *, tag: object = None) -> Request:
    """`POST /deprovision`, with the long time limit that a `v0_13` backend needs to finish."""
    timeout = max(backend.timeout, TEARDOWN_SECONDS_V0_13) if backend.dialect is Dialect.V0_13 else backend.timeout
    return request(
        backend,
        "/deprovision",
        body=orjson.dumps({"lease_uuid": str(lease_uuid)}),
        timeout=timeout,
        max_body=MUTATION_BODY_BYTES,
        tag=tag,
        want_headers=False,
    )


def info_request(
    backend: BackendTarget, lease_uuid: UUID, *, timeout: float | None = None, tag: object = None
) -> Request:
    """`GET /info/<lease>`."""
    return request(backend, f"/info/{lease_uuid}", timeout=timeout, tag=tag)


def provision_info_request(
    backend: BackendTarget, lease_uuid: UUID, *, timeout: float | None = None, tag: object = None
) -> Request:
    """`GET /provisions/<lease>`, the point read."""
    return request(backend, f"/provisions/{lease_uuid}", timeout=timeout, tag=tag)


def logs_request(
    backend: BackendTarget, lease_uuid: UUID, *, tail: int, timeout: float | None = None, tag: object = None
) -> Request:
    """`GET /logs/<lease>?tail=<lines>`."""
    path, cap = f"/logs/{lease_uuid}?tail={tail}", log_body_bytes(backend)
    return request(backend, path, timeout=timeout, max_body=cap, tag=tag)


def log_body_bytes(backend: BackendTarget) -> int:
    """The most that an answer with logs of this backend may have."""
    return LOG_BODY_BYTES_V0_13 if backend.dialect is Dialect.V0_13 else LOG_BODY_BYTES


def lookup_request(
    backend: BackendTarget, leases: Iterable[UUID], *, timeout: float | None = None, tag: object = None
) -> Request:
    """`GET /provisions?lease_uuid=…`, in sorted order. Raises ValueError unless there are 1 to 100 leases."""
    wanted = sorted({str(lease) for lease in leases})
    if not 1 <= len(wanted) <= MAX_LOOKUP:
        raise ValueError(f"lookup provisions: invalid uuid count: {len(wanted)}")
    query = urlencode([("lease_uuid", lease) for lease in wanted])
    return request(backend, f"/provisions?{query}", timeout=timeout, max_body=LIST_BODY_BYTES, tag=tag)


def page_request(
    backend: BackendTarget,
    path: str,
    *,
    token: str = "",
    size: int = 0,
    timeout: float | None = None,
    tag: object = None,
) -> Request:
    """One page of `/provisions` or `/retentions`, the first or the one after `token`; `size` 0: the usual one."""
    size = size or (backend.page_size if backend.page_size > 0 else 1000)
    fields: Mapping[str, str] = {"continue": token, "limit": str(size)} if token else {"limit": str(size)}
    cap = LIST_BODY_BYTES if path == "/provisions" else MEBIBYTE
    return request(backend, f"{path}?{urlencode(fields)}", timeout=timeout, max_body=cap, tag=tag)


def stats_request(backend: BackendTarget, *, timeout: float | None = None, tag: object = None) -> Request:
    """`GET /stats`."""
    return request(backend, "/stats", timeout=timeout, tag=tag)


def health_request(backend: BackendTarget, *, timeout: float | None = None, tag: object = None) -> Request:
    """`GET /health`, signed like everything else although backends don't ask for it."""
    return request(backend, "/health", timeout=timeout, tag=tag)
