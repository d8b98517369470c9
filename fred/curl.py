"""One outgoing HTTP/1.1 exchange on one libcurl handle: requests, responses, and what an error proves."""

import ipaddress
import socket
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import msgspec
import pycurl

KIBIBYTE = 1024
MEBIBYTE = 1024 * KIBIBYTE
ERROR_BODY_BYTES: Final = 4 * KIBIBYTE + 1
"""How much of a non-2xx body is kept: one byte more than an error body may have, so that a longer one shows."""
_DRAIN_BYTES = 64 * KIBIBYTE
_IDLE_SECONDS = 90
_STATUS_LINE = b"HTTP/"
_NOTHING = memoryview(b"")


class ErrorKind(StrEnum):
    """What went wrong. Only the first five prove that no byte of the request left."""

    INVALID = "invalid"  # the request could not be built
    DNS = "dns"
    REFUSED = "refused"  # no connection
    TLS = "tls"  # no trusted connection
    CONNECT_TIMEOUT = "connect_timeout"
    TIMEOUT = "timeout"  # no complete answer in time
    TOO_LARGE = "too_large"  # a good answer with a body over the cap
    AMBIGUOUS = "ambiguous"  # anything after bytes may have left


_SENT_NOTHING = frozenset(
    {ErrorKind.INVALID, ErrorKind.DNS, ErrorKind.REFUSED, ErrorKind.TLS, ErrorKind.CONNECT_TIMEOUT}
)


@dataclass(frozen=True, slots=True)
class HttpError:
    """A request without a usable answer. `message` is for operators; it holds no query and no header of the request."""

    kind: ErrorKind
    message: str

    @property
    def sent_nothing(self) -> bool:
        """Whether it is proven that not one byte of the request was written."""
        return self.kind in _SENT_NOTHING


@dataclass(frozen=True, slots=True)
class Tls:
    """How a peer is verified, and our certificate. Nothing given means the system's roots and no certificate.

    Certificates are named by their files, or given as PEM, which wins: a connection made with other bytes is then not
    used again. The name or address in the URL is always that of the peer, unless verification is skipped.
    """

    ca_file: str = ""
    client_cert_file: str = ""
    client_key_file: str = ""
    skip_verify: bool = False
    minimum_1_3: bool = True
    ca_pem: bytes = field(default=b"", repr=False)
    client_cert_pem: bytes = field(default=b"", repr=False)
    client_key_pem: bytes = field(default=b"", repr=False)


_DEFAULT_TLS = Tls()


class Request(msgspec.Struct, frozen=True):
    """One request. A `body` that is not None makes it a POST.

    `timeout` (seconds) covers everything from submission to the last byte, `connect_timeout` name, TCP and TLS.
    `guarded` refuses peers at link-local and unspecified addresses, whatever name led there: that is where clouds keep
    their machine credentials.

    `max_body` caps a 2xx body in bytes, after decompression. `tag` comes back with the response, untouched. Headers of
    the response are kept only if they are wanted: libcurl hands over each of them in a call of its own, which costs a
    busy process more than the rest; without them the whole answer, whatever its status, is read up to `max_body`.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    timeout: float = 30.0
    connect_timeout: float = 10.0
    max_body: int = MEBIBYTE
    tls: Tls = _DEFAULT_TLS
    tag: object = None
    want_headers: bool = True
    guarded: bool = False

    @property
    def method(self) -> str:
        """GET or POST."""
        return "GET" if self.body is None else "POST"


@dataclass(frozen=True, slots=True)
class Response:
    """What came back: a status with its body, or an error. `elapsed` is in seconds.

    `status` may be set beside an error (a body that broke off). A non-2xx body is cut after `ERROR_BODY_BYTES`.
    `raw_headers` are the lines of the head as they came, with the status line and those of interim answers.
    """

    tag: object
    status: int | None
    body: bytes
    error: HttpError | None
    elapsed: float
    raw_headers: tuple[bytes, ...] = field(default=(), repr=False)

    def header(self, name: str) -> list[str]:
        """All values of this header field, in order; case of the name does not matter."""
        wanted = name.lower().encode()
        values: list[str] = []
        for line in self.raw_headers:
            if line.startswith(_STATUS_LINE):
                values.clear()  # what came before belongs to an interim answer such as 103
                continue
            found, colon, value = line.partition(b":")
            if colon and found.lower() == wanted:
                values.append(value.strip().decode("latin-1"))
        return values


_KINDS_BEFORE_SENDING: dict[int, ErrorKind] = {
    pycurl.E_UNSUPPORTED_PROTOCOL: ErrorKind.INVALID,
    pycurl.E_URL_MALFORMAT: ErrorKind.INVALID,
    pycurl.E_COULDNT_RESOLVE_HOST: ErrorKind.DNS,
    pycurl.E_COULDNT_CONNECT: ErrorKind.REFUSED,
    pycurl.E_OPERATION_TIMEDOUT: ErrorKind.CONNECT_TIMEOUT,
    pycurl.E_SSL_CONNECT_ERROR: ErrorKind.TLS,
    pycurl.E_SSL_CERTPROBLEM: ErrorKind.TLS,
    pycurl.E_SSL_CIPHER: ErrorKind.TLS,
    pycurl.E_PEER_FAILED_VERIFICATION: ErrorKind.TLS,
    pycurl.E_SSL_CACERT_BADFILE: ErrorKind.TLS,
    pycurl.E_SSL_ISSUER_ERROR: ErrorKind.TLS,
}


class Transfer:
    """One libcurl handle and what it is doing. Used again and again, by one thread at a time."""

    def __init__(self) -> None:
        self.request: Request
        self._tls: Tls | None = None
        self._pending = _NOTHING
        self._lines: list[bytes] = []  # one object for good: libcurl appends to it without a call into Python code
        self._chunks: list[bytes] = []
        self._size = 0
        self._status = 0
        self._over = False
        self._hears_headers = False
        self._is_guarded = False
        self._barred = ""
        self._handed: list[socket.socket] = []
        self._started = 0.0
        self.easy = pycurl.Curl()
        self._set_defaults()

    def _set_defaults(self) -> None:
        easy = self.easy
        for option, value in (
            (pycurl.NOSIGNAL, 1),
            (pycurl.USERAGENT, "fred"),
            (pycurl.FOLLOWLOCATION, 0),
            (pycurl.PROXY, ""),  # an empty proxy also switches off the proxies of the environment
            (pycurl.NOPROXY, "*"),
            (pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS),
            (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),
            (pycurl.ACCEPT_ENCODING, "identity"),  # set, so that a body compressed all the same is inflated as it comes
            (pycurl.MAXAGE_CONN, _IDLE_SECONDS),
            (pycurl.PATH_AS_IS, 1),  # the signature covers the path as it was given
            (pycurl.READFUNCTION, self._read),
            (pycurl.WRITEFUNCTION, self._write),
        ):
            easy.setopt(option, value)

    def _read(self, size: int) -> bytes:
        chunk = self._pending[:size]
        self._pending = self._pending[size:]
        return bytes(chunk)

    def _heard_status(self) -> int:
        # libcurl can't be asked for it inside a callback.
        line = next((line for line in reversed(self._lines) if line.startswith(_STATUS_LINE)), b"")
        status = line.partition(b" ")[2][:3]
        return int(status) if status.isdigit() else 0

    def _write(self, chunk: bytes) -> int | None:
        cap = self.request.max_body
        self._size += len(chunk)
        if self._size <= cap and self._size <= ERROR_BODY_BYTES:  # allowed whatever the status is
            self._chunks.append(chunk)
            return None
        # Without headers the status is not known yet, and the smaller cap of an error body is applied at the end.
        if self._hears_headers and not self._status:
            self._status = self._heard_status()
        good = not self._hears_headers or 200 <= self._status < 300
        if not good:
            cap = ERROR_BODY_BYTES
        room = cap - (self._size - len(chunk))
        if len(chunk) <= room:
            self._chunks.append(chunk)
            return None
        if room > 0:
            self._chunks.append(chunk[:room])
        if good or self._size > cap + _DRAIN_BYTES:
            self._over = True
            return 0  # ends the transfer and its connection
        return None

    def prepare(self, request: Request) -> pycurl.Curl:
        """Load the handle with a request. Raises ValueError for one that can't be built."""
        lines = _header_lines(request)
        easy = self.easy
        has_other_tls = request.tls is not self._tls and request.tls != self._tls
        if has_other_tls and self._tls is not None:
            # A client certificate can not be unset alone. Connections stay; one is used again only for equal TLS.
            easy.reset()
            self._set_defaults()
            self._tls, self._hears_headers, self._is_guarded = None, False, False
        self.request = request
        self._lines.clear()
        self._chunks.clear()
        self._size, self._status, self._over, self._barred = 0, 0, False, ""
        try:
            easy.setopt(pycurl.URL, request.url)
            if request.body is None:
                easy.setopt(pycurl.HTTPGET, 1)
                easy.setopt(pycurl.FRESH_CONNECT, 0)
            else:
                # With no body there is nothing that can't be rewound: only a new connection is never tried again.
                easy.setopt(pycurl.FRESH_CONNECT, 0 if request.body else 1)
                lines.append("Expect:")  # no interim round trip before a large body
                self._pending = memoryview(request.body)
                easy.setopt(pycurl.POST, 1)
                easy.setopt(pycurl.POSTFIELDSIZE_LARGE, len(request.body))
            if lines:
                easy.setopt(pycurl.HTTPHEADER, lines)
            else:
                easy.unsetopt(pycurl.HTTPHEADER)  # setting an empty list would leave those of the request before
            easy.setopt(pycurl.TIMEOUT_MS, max(1, int(request.timeout * 1000)))
            easy.setopt(pycurl.CONNECTTIMEOUT_MS, max(1, int(min(request.connect_timeout, request.timeout) * 1000)))
            if request.want_headers != self._hears_headers:
                if request.want_headers:
                    easy.setopt(pycurl.HEADERFUNCTION, self._lines.append)
                else:
                    easy.unsetopt(pycurl.HEADERFUNCTION)
                self._hears_headers = request.want_headers
            if request.guarded != self._is_guarded:
                self._guard(on=request.guarded)
            if has_other_tls:
                self._secure(request.tls)
        except (pycurl.error, UnicodeEncodeError) as error:
            raise ValueError("the request could not be built") from error
        self._started = time.monotonic()
        return easy

    def _guard(self, *, on: bool) -> None:
        # A kept connection may have been made without the guard; handles are guarded or not for all of a process.
        if on:
            self.easy.setopt(pycurl.OPENSOCKETFUNCTION, self._open)
        else:
            self.easy.unsetopt(pycurl.OPENSOCKETFUNCTION)
        self._is_guarded = on

    def _open(self, _purpose: int, address: Any) -> socket.socket | int:
        host = str(address.addr[0])
        found = ipaddress.ip_address(host.partition("%")[0])
        found = getattr(found, "ipv4_mapped", None) or found
        if found.is_link_local or found.is_unspecified:
            self._barred = host
            return int(pycurl.SOCKET_BAD)
        opened = socket.socket(address.family, address.socktype, address.protocol)
        self._handed.append(opened)  # libcurl takes a duplicate of it
        return opened

    def _secure(self, tls: Tls) -> None:
        easy = self.easy
        floor = pycurl.SSLVERSION_TLSv1_3 if tls.minimum_1_3 else pycurl.SSLVERSION_TLSv1_2
        easy.setopt(pycurl.SSLVERSION, floor)
        easy.setopt(pycurl.SSL_VERIFYPEER, 0 if tls.skip_verify else 1)
        easy.setopt(pycurl.SSL_VERIFYHOST, 0 if tls.skip_verify else 2)
        for option, value in (
            (pycurl.CAINFO, tls.ca_file),
            (pycurl.SSLCERT, tls.client_cert_file),
            (pycurl.SSLKEY, tls.client_key_file),
            (pycurl.CAINFO_BLOB, tls.ca_pem),
            (pycurl.SSLCERT_BLOB, tls.client_cert_pem),
            (pycurl.SSLKEY_BLOB, tls.client_key_pem),
        ):
            if value:
                easy.setopt(option, value)
        self._tls = tls

    def finish(self, *, code: int = 0, message: str = "") -> Response:
        """The response of a transfer that ended with this libcurl code; lets go of what it held."""
        request = self.request
        self._status = self.easy.getinfo(pycurl.RESPONSE_CODE)
        error = self._error(code, message) if code else None
        body = b"".join(self._chunks)
        response = Response(
            tag=request.tag,
            status=self._status or None,
            body=body if 200 <= self._status < 300 else body[:ERROR_BODY_BYTES],
            error=error,
            elapsed=time.monotonic() - self._started,
            raw_headers=tuple(self._lines),
        )
        self._pending = _NOTHING
        self._chunks.clear()
        self._lines.clear()
        while self._handed:
            self._handed.pop().close()
        return response

    def _error(self, code: int, message: str) -> HttpError | None:
        if self._over:
            cap = self.request.max_body
            if 200 <= self._status < 300:
                text = f"response body too large: {cap + 1} bytes exceeds {cap} byte limit"
                return HttpError(ErrorKind.TOO_LARGE, text)
            return None  # the kept part of an error body is all anybody reads
        text = f"{message or _code_text(code)} ({code})"
        if self._barred:
            return HttpError(ErrorKind.INVALID, f"the peer's address {self._barred} is not allowed")
        untouched = self.easy.getinfo(pycurl.REQUEST_SIZE) == 0
        if untouched and code in _KINDS_BEFORE_SENDING:
            return HttpError(_KINDS_BEFORE_SENDING[code], text)
        kind = ErrorKind.TIMEOUT if code == pycurl.E_OPERATION_TIMEDOUT else ErrorKind.AMBIGUOUS
        return HttpError(kind, text)


def _header_lines(request: Request) -> list[str]:
    """The header fields as libcurl wants them. Raises ValueError for one that would be more than one line."""
    lines = [f"{name}: {value}" for name, value in request.headers]
    for line in lines:
        if "\n" in line or "\r" in line:
            raise ValueError("a header holds a line break")
    return lines


def _code_text(code: int) -> str:
    """A word for a libcurl code that came without a message."""
    return f"transfer failed with code {code}"
