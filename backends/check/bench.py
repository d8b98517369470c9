"""What the checks work with: signed calls to the backend, fresh leases, callbacks, and waiting with an end."""

import json
import os
import secrets
import shlex
import subprocess
import threading
import time
import uuid
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from backends import envelope
from backends.check.cases import Failed, Skipped, expect
from backends.check.listener import Heard, Listener
from backends.contract import Dialect
from fred import signing
from fred.http import ErrorKind, Request, Tls, fetch

T = TypeVar("T")

_POLL_SECONDS = 0.02
_MAX_BODY = 32 << 20
_HOOK_SECONDS = 60
_BRIEFLY = 200


@dataclass(frozen=True)
class Options:
    """What the backend is and what it may be asked. Manifests are bytes as a tenant would upload them."""

    url: str
    key: str = field(repr=False)
    key_next: str = field(default="", repr=False)
    dialect: Dialect = Dialect.V0_13
    tls: Tls = field(default_factory=Tls)
    sku: str = "01987111-0000-7000-8000-000000000001"
    unknown_sku: str = ""
    too_much: int = 0
    small_sku: str = ""
    manifest: bytes = b'{"image":"docker.io/library/nginx:1.27"}'
    other_manifest: bytes = b'{"image":"docker.io/library/nginx:1.28"}'
    bad_manifest: bytes = b"[]"
    forbidden_manifest: bytes = b""
    failing_manifest: bytes = b""
    retention: bool | None = None
    log_file: str = ""
    hooks: Mapping[str, str] = field(default_factory=dict)
    patience: float = 30.0


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of the backend."""

    status: int
    body: bytes
    kind: str
    seconds: float

    @property
    def json(self) -> Any:
        """The body; raises `Failed` where it is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise Failed(f"the body of a {self.status} is no JSON: {self.brief}") from None

    @property
    def brief(self) -> str:
        """The beginning of the body, for the report."""
        return repr(self.body[:_BRIEFLY].decode(errors="replace"))

    @property
    def error(self) -> str:
        """The text of the envelope, empty without one."""
        found = envelope.read(self.body, dialect=Dialect.V0_13)
        return found.error if isinstance(found, envelope.Envelope) else ""

    @property
    def code(self) -> str:
        """`validation_code` or `code` of the envelope."""
        found = envelope.read(self.body, dialect=Dialect.V0_13)
        return (found.validation_code or found.code) if isinstance(found, envelope.Envelope) else ""


def fresh_lease() -> str:
    """A lease nobody has: a UUID of version 7."""
    stamp = time.time_ns() // 1_000_000
    number = (stamp << 80) | (0x7 << 76) | (secrets.randbits(12) << 64) | (0b10 << 62) | secrets.randbits(62)
    return str(uuid.UUID(int=number))


class Bench:
    """One run against one backend. Every wait ends after the options' patience."""

    def __init__(self, options: Options, listener: Listener | None) -> None:
        self.options = options
        self.listener = listener
        self.leases: list[str] = []
        self.marks: dict[str, str] = {}
        self._lock = threading.Lock()

    def header(self, method: str, target: str, body: bytes, *, key: str = "", at: int | None = None) -> str:
        """A signature for this request."""
        moment = int(time.time()) if at is None else at
        return signing.sign(key or self.options.key, timestamp=moment, method=method, target=target, body=body)

    def call(
        self,
        target: str,
        body: Mapping[str, Any] | bytes | None = None,
        *,
        header: str | None = None,
        is_known: bool = True,
    ) -> Reply:
        """Send a GET, or a POST of this body; `header` replaces the right signature, "" sends none.

        Raises `Failed` where there is no answer, and on a known route where a body is no JSON or an error no envelope.
        """
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        method = "GET" if raw is None else "POST"
        signature = self.header(method, target, raw or b"") if header is None else header
        headers: tuple[tuple[str, str], ...] = ((signing.HEADER, signature),) if signature else ()
        if raw is not None:
            headers += (("Content-Type", "application/json"),)
        url = self.options.url.rstrip("/") + target
        response = fetch(
            Request(url, headers, raw, timeout=self.options.patience, max_body=_MAX_BODY, tls=self.options.tls)
        )
        where = f"{method} {target.partition('?')[0]}"
        if response.error is not None and response.error.kind is not ErrorKind.TOO_LARGE:
            raise Failed(f"{where}: no answer: {response.error.message}")
        kind = (response.header("Content-Type") or [""])[0]
        reply = Reply(response.status or 0, response.body, kind, response.elapsed)
        if is_known:
            self._inspect(reply, where)
        return reply

    def _inspect(self, reply: Reply, where: str) -> None:
        if not 200 <= reply.status < 300:
            expect(reply.error, f"{where}: {reply.status} without the JSON error envelope: {reply.brief}")
        if reply.body:
            is_json = reply.kind.partition(";")[0].strip().lower() == "application/json"
            expect(is_json, f"{where}: {reply.status} has a body of type {reply.kind or 'none'}")

    def expect(self, status: int | Sequence[int], reply: Reply, what: str, *, error: str = "", code: str = "") -> Reply:
        """Raise `Failed` unless the answer has this status, text and code; returns it."""
        wanted = [status] if isinstance(status, int) else list(status)
        expect(reply.status in wanted, f"{what}: {reply.status}, not {' or '.join(map(str, wanted))}: {reply.brief}")
        if error:
            expect(reply.error == error, f"{what}: says {reply.error!r}, not {error!r}")
        if code:
            expect(reply.code == code, f"{what}: has code {reply.code!r}, not {code!r}")
        return reply

    def need_listener(self) -> Listener:
        """Where callbacks arrive. Raises `Skipped` without one."""
        if self.listener is None:
            raise Skipped("needs --listen HOST:PORT and --callback-base URL")
        return self.listener

    def need(self, name: str, option: str) -> Any:
        """An option that the check cannot do without. Raises `Skipped`."""
        value = getattr(self.options, name)
        if not value:
            raise Skipped(f"needs {option}")
        return value

    def hook(self, name: str, **values: str) -> None:
        """Run a command of the operator's, with its values in the environment. Raises `Skipped` if there is none."""
        command = self.options.hooks.get(name)
        if not command:
            raise Skipped(f"needs --hook {name}=CMD")
        environment = {**os.environ, **values}
        try:
            done = subprocess.run(
                shlex.split(command), env=environment, timeout=_HOOK_SECONDS, check=False, capture_output=True
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Failed(f"the hook {name} did not run: {error}") from None
        expect(done.returncode == 0, f"the hook {name} ended with {done.returncode}")

    def callback_url(self, mark: str = "") -> str:
        """Where a result is to go; without a listener to a port nobody listens on."""
        base = self.listener.base if self.listener is not None else "http://127.0.0.1:9"
        return f"{base}/callbacks/provision?operation_id={mark or uuid.uuid4()}"

    def order(self, lease: str = "", **changes: Any) -> dict[str, Any]:
        """The body of a good provision of a fresh lease, with these fields changed; None leaves one out."""
        lease = lease or fresh_lease()
        mark = str(uuid.uuid4())
        with self._lock:
            self.leases.append(lease)
            self.marks[lease] = mark
        payload = changes.pop("manifest", self.options.manifest)
        body: dict[str, Any] = {
            "lease_uuid": lease,
            "tenant": "manifest1checktenant",
            "provider_uuid": "01987000-aaaa-7bbb-8ccc-ddddeeeeffff",
            "items": [{"sku": self.options.sku, "quantity": 1}],
            "callback_url": self.callback_url(mark),
            "payload": b64encode(payload).decode(),
            **changes,
        }
        return {name: value for name, value in body.items() if value is not None}

    def ready(self, **changes: Any) -> str:
        """A fresh lease that is up."""
        body = self.order(**changes)
        lease = str(body["lease_uuid"])
        self.expect(202, self.call("/provision", body), "provision")
        if self.listener is not None:
            first = self.callbacks(lease, 1)[0]
            expect(
                first.fields.get("status") == "success", f"the result is {first.fields.get('status')!r}, not success"
            )
        self.until(lambda: self.status(lease) == "ready", "the lease never got ready")
        return lease

    def row(self, lease: str) -> dict[str, Any]:
        """The point read; empty for a lease that is not there."""
        reply = self.call(f"/provisions/{lease}")
        if reply.status == 404:
            return {}
        self.expect(200, reply, "point read")
        return dict(reply.json)

    def status(self, lease: str) -> str:
        """The status of the point read, empty for none."""
        return str(self.row(lease).get("status", ""))

    def listed(self, lease: str) -> list[dict[str, Any]]:
        """The rows of a lookup."""
        reply = self.expect(200, self.call(f"/provisions?lease_uuid={lease}"), "lookup")
        return list(reply.json["provisions"])

    def deprovision(self, lease: str) -> Reply:
        """Tear it down; an answer that asks for patience is repeated."""
        replies: list[Reply] = []

        def ask() -> bool:
            replies.append(self.call("/deprovision", {"lease_uuid": lease}))
            return replies[-1].status not in (409, 503)

        self.until(ask, "deprovision asks for another try for ever")
        return replies[-1]

    def callbacks(self, lease: str, count: int, *, seconds: float = 0.0) -> list[Heard]:
        """The first so many callbacks about a lease, waited for."""
        listener = self.need_listener()
        patience = seconds or self.options.patience

        def enough() -> bool:
            return sum(one.lease == lease for one in listener.heard) >= count

        came = listener.wait(enough, seconds=patience)
        expect(came, f"{len(listener.of(lease))} of {count} callbacks within {patience:g} s")
        return listener.of(lease)

    def no_more(self, lease: str, count: int) -> None:
        """Raise `Failed` if more callbacks than these have come once a later lease has been through."""
        self.ready()
        found = [str(one.fields.get("status")) for one in self.need_listener().of(lease)]
        expect(len(found) == count, f"{len(found)} callbacks, not {count}: {', '.join(found)}")

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Ask again and again until it is true; raise `Failed` when patience ends."""
        end = time.monotonic() + self.options.patience
        pause = threading.Event()
        while not true():
            expect(time.monotonic() < end, f"{what} (within {self.options.patience:g} s)")
            pause.wait(_POLL_SECONDS)

    def at_once(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Make all these calls at the same time."""
        with ThreadPoolExecutor(len(calls)) as pool:
            return [one.result() for one in [pool.submit(call) for call in calls]]

    def maintain(self, verb: str, lease: str, **fields: Any) -> Reply:
        """Restart or update a lease, the result to the URL of its provision."""
        url = self.callback_url(self.marks.get(lease, ""))
        return self.call(f"/{verb}", {"lease_uuid": lease, "callback_url": url, **fields})

    def clean(self) -> list[str]:
        """Remove every lease of this run; returns those that could not be."""
        left = []
        for lease in self.leases:
            try:
                if self.deprovision(lease).status != 200:
                    left.append(lease)
            except Failed:
                left.append(lease)
        return left
