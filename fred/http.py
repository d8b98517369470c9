"""Outgoing HTTP/1.1: many requests from one thread (`Multi`), one or a few that it waits for (`fetch`, `fetch_each`).

What the callers rely on:

* a POST is never repeated here. Its body can't be rewound, so libcurl can't send it a second time on a new connection
  when a kept one dies under it (a GET it may);
* an error says whether anything may have left this machine (`HttpError.sent_nothing`);
* redirects are not followed, proxies of the environment are not used, response bodies are capped while they arrive;
* connections are kept and used again, for 90 s when idle.
"""

import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence

import pycurl

from fred.curl import ERROR_BODY_BYTES, MEBIBYTE, ErrorKind, HttpError, Request, Response, Tls, Transfer

__all__ = [
    "ERROR_BODY_BYTES",
    "MEBIBYTE",
    "ErrorKind",
    "Hears",
    "HttpError",
    "Multi",
    "Request",
    "Response",
    "Tls",
    "fetch",
    "fetch_each",
]

Hears = Callable[[Response], object]
"""Gets a response when it is there; must not raise."""


def _invalid(request: Request, error: ValueError) -> Response:
    return Response(tag=request.tag, status=None, body=b"", error=HttpError(ErrorKind.INVALID, str(error)), elapsed=0.0)


class Multi:
    """Many requests at once from one thread.

    `submit` and `wakeup` may be called by any thread; `poll` and `close` only by the one that owns the loop. Nothing
    here survives a fork: make the object in the process that uses it. Idle handles and connections are used again.
    """

    def __init__(self, *, max_host_connections: int = 0, kept_connections: int = 256) -> None:
        """`max_host_connections`: further requests to one host wait, inside their time limit; 0 means no bound."""
        self._queue: deque[tuple[Request, Hears | None]] = deque()
        self._idle: list[Transfer] = []
        self._done: list[Response] = []
        self._running: dict[pycurl.Curl, tuple[Transfer, Hears | None]] = {}
        self._timer_at: float | None = None
        self._awake = False
        self._epoll = select.epoll()
        self._watched: dict[int, int] = {}
        self._waker, self._wake_end = socket.socketpair()
        self._waker.setblocking(False)
        self._wake_end.setblocking(False)
        self._epoll.register(self._waker, select.EPOLLIN)
        self._multi = multi = pycurl.CurlMulti()
        multi.setopt(pycurl.M_MAXCONNECTS, kept_connections)
        if max_host_connections:
            multi.setopt(pycurl.M_MAX_HOST_CONNECTIONS, max_host_connections)
        multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)

    def fileno(self) -> int:
        """A descriptor that is readable while `poll(0)` has something to do, for callers with a loop of their own."""
        return self._epoll.fileno()

    @property
    def due_at(self) -> float | None:
        """At which `monotonic` time `poll` must be called even if the descriptor stays silent; None: not at all."""
        return time.monotonic() if self._queue or self._done else self._timer_at

    @property
    def timer(self) -> float | None:
        """The same as seconds from now."""
        due_at = self.due_at
        return None if due_at is None else max(0.0, due_at - time.monotonic())

    @property
    def pending(self) -> int:
        """Requests submitted whose response `poll` has not returned yet."""
        return len(self._queue) + len(self._running) + len(self._done)

    def submit(self, request: Request, *, wake: bool = True, hears: Hears | None = None) -> None:
        """Queue a request; it starts in the next `poll`, which is interrupted if it waits, unless not to `wake`.

        Its response is handed to whoever `hears` it, inside a `poll`; without anybody it is returned by one.
        """
        self._queue.append((request, hears))
        if wake:
            self.wakeup()

    def wakeup(self) -> None:
        """Make a waiting `poll` return, or the next one not wait."""
        if self._awake:
            return
        self._awake = True
        try:
            self._wake_end.send(b"\0")
        except (BlockingIOError, InterruptedError):
            return  # full: it will wake up anyway

    def poll(self, timeout: float) -> list[Response]:
        """Drive all transfers; return those that ended, at the latest after `timeout` seconds, perhaps none.

        Those that somebody `hears` are not among them.
        """
        self._start_queued()
        wait = 0.0 if self._done else max(0.0, timeout)
        if self._timer_at is not None:
            wait = min(wait, max(0.0, self._timer_at - time.monotonic()))
        for fd, events in self._epoll.poll(wait, len(self._watched) + 1):
            if fd == self._waker.fileno():
                self._clear_waker()
                continue
            flags = (pycurl.CSELECT_IN if events & ~select.EPOLLOUT else 0) | (
                pycurl.CSELECT_OUT if events & ~select.EPOLLIN else 0
            )
            self._multi.socket_action(fd, flags & self._watched.get(fd, 0))  # wishes and events have the same numbers
        if self._timer_at is not None and self._timer_at <= time.monotonic():
            self._timer_at = None
            self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        self._collect()
        done, self._done = self._done, []
        return done

    def break_off(self, chosen: Callable[[object], bool], *, reason: str) -> None:
        """End running requests whose tag is chosen; what they may have sent stays unknown. For the loop's owner only.

        Their responses, ambiguous with this reason, are heard at once, or come out of the next `poll`.
        """
        for easy, (transfer, _) in list(self._running.items()):
            if chosen(transfer.request.tag):
                self._release(easy, code=pycurl.E_ABORTED_BY_CALLBACK, message=reason)

    def close(self) -> None:
        """Drop everything, running transfers included; their responses never come."""
        self._multi.close()
        self._epoll.close()
        self._waker.close()
        self._wake_end.close()
        self._queue.clear()

    def _start_queued(self) -> None:
        while self._queue:
            request, hears = self._queue.popleft()
            transfer = self._idle.pop() if self._idle else Transfer()
            try:
                easy = transfer.prepare(request)
            except ValueError as error:
                self._idle.append(transfer)
                self._answer(_invalid(request, error), hears)
                continue
            self._multi.add_handle(easy)
            self._running[easy] = transfer, hears

    def _collect(self) -> None:
        more: int | bool = bool(self._running)
        while more:
            more, good, bad = self._multi.info_read()
            for easy in good:
                self._release(easy)
            for easy, code, message in bad:
                self._release(easy, code=code, message=message)

    def _release(self, easy: pycurl.Curl, *, code: int = 0, message: str = "") -> None:
        transfer, hears = self._running.pop(easy)
        response = transfer.finish(code=code, message=message)
        self._multi.remove_handle(easy)
        self._idle.append(transfer)
        self._answer(response, hears)

    def _answer(self, response: Response, hears: Hears | None) -> None:
        if hears is None:
            self._done.append(response)
        else:
            hears(response)

    def _clear_waker(self) -> None:
        try:
            while len(self._waker.recv(4096)) == 4096:
                pass
        except BlockingIOError:
            pass
        self._awake = False  # what was queued before this is started by the next poll, before it waits

    def _watch(self, wanted: int, fd: int, _multi: object, _data: object) -> None:
        if wanted == pycurl.POLL_REMOVE:
            self._watched.pop(fd, None)
            try:
                self._epoll.unregister(fd)
            except OSError:
                return  # it is closed, or libcurl never asked to watch it
            return
        events = (select.EPOLLIN if wanted & pycurl.POLL_IN else 0) | (
            select.EPOLLOUT if wanted & pycurl.POLL_OUT else 0
        )
        if fd in self._watched:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
        self._watched[fd] = wanted

    def _set_timer(self, milliseconds: int) -> None:
        self._timer_at = None if milliseconds < 0 else time.monotonic() + milliseconds / 1000


class _ThreadsOwn:
    """The loop of one thread, closed when the thread ends."""

    def __init__(self) -> None:
        self.multi = Multi(kept_connections=32)

    def __del__(self) -> None:
        self.multi.close()


_local = threading.local()
_inherited: list[object] = []


def _leave_to_parent() -> None:
    """After a fork: handles of the parent are kept, unused, for closing one could end the parent's TLS connections."""
    for name in ("transfer", "loop"):
        held = getattr(_local, name, None)
        if held is not None:
            _inherited.append(held)
            delattr(_local, name)


os.register_at_fork(after_in_child=_leave_to_parent)


def fetch(request: Request) -> Response:
    """Send one request and wait for its end; never raises for what the network does.

    Each thread keeps a handle, and with it its connections.
    """
    transfer = getattr(_local, "transfer", None)
    if transfer is None:
        transfer = _local.transfer = Transfer()
    try:
        easy = transfer.prepare(request)
    except ValueError as error:
        return _invalid(request, error)
    try:
        easy.perform()
    except pycurl.error as error:
        code, *message = error.args
        return transfer.finish(code=int(code), message=str(message[0]) if message else "")
    return transfer.finish()


def fetch_each(requests: Sequence[Request]) -> Generator[Response]:
    """Send some requests at once and yield each response as soon as it is there, known by its request's tag.

    Whoever stops listening breaks off what still runs. Each thread keeps a loop, and with it its connections.
    """
    own = getattr(_local, "loop", None)
    if own is None:
        own = _local.loop = _ThreadsOwn()
    multi = own.multi
    for request in requests:
        multi.submit(request)
    try:
        while multi.pending:
            yield from multi.poll(1.0)
    finally:
        multi.break_off(lambda _: True, reason="its answer is no longer wanted")
        multi.poll(0.0)
