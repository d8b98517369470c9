"""The sender of this process: hand it rows, or tell it that some are due."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable

from fred.connections import let_go
from fred.tasks import DISPATCH, hint
from placements.awaited import Met, Silent, expected
from placements.pushes import Claimed
from placements.sender import DRAIN_S, Sender

__all__ = ["Claimed", "Met", "Silent", "drain", "free", "pull", "push_and_wait", "sender", "take", "use_in_web"]

_lock = threading.Lock()
_current: Sender | None = None
_pid = 0
_pulls = True


def _after_fork() -> None:
    global _lock  # noqa: PLW0603 - a lock held by another thread of the parent stays locked in the child
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def use_in_web() -> None:
    """Make this process's sender push only what it is handed and claim nothing by itself. Call before its first use."""
    global _pulls  # noqa: PLW0603 - one sender per process is the point
    _pulls = False


def sender() -> Sender:
    """This process's one sender; a forked child gets a new one, made at its first use."""
    global _current, _pid
    with _lock:
        if _current is None or _pid != os.getpid():
            _current, _pid = Sender(pulls=_pulls), os.getpid()
        return _current


def free(backend: str) -> int:
    """How many operations for this backend a maker in this process may insert already claimed."""
    return sender().free(backend)


def take(claimed: Iterable[Claimed]) -> None:
    """Push operations that were inserted claimed; call it after their commit."""
    claims = list(claimed)
    if claims:
        sender().take(claims)


def push_and_wait(claimed: Claimed, *, until: float) -> Met | Silent:
    """Push one row that was inserted claimed, after its commit, and wait for its written outcome.

    ``until`` is a time of ``time.monotonic()``. What has not left by then is withdrawn, which may take a second more.
    Meanwhile the caller's thread holds no connection to the database.
    """
    let_go()
    with expected(claimed.id) as waiter:
        sender().take([claimed])
        return waiter.wait(until) or waiter.leave()


def pull() -> None:
    """Let the sender claim what is due; the body of the dispatch task."""
    hint.taken(DISPATCH)
    sender().pull()


def drain(*, deadline: float = DRAIN_S) -> None:
    """End this process's sender in order: see :meth:`Sender.drain`. Nothing happens if it has none."""
    global _current  # noqa: PLW0603 - same
    with _lock:
        ending, mine = _current, _pid == os.getpid()
        _current = None
    if ending is not None and mine:
        ending.drain(deadline=deadline)
