"""Synchronous code on the event loop: it runs in a greenlet, which steps aside wherever the code has to wait.

So one view serves both ways: on a thread it blocks, on the loop `wait` hands what it waits for to the loop. What has no
form for a loop goes to a thread by `blocking`. Statements of Django's are refused here by Django itself, which sees the
running loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from greenlet import getcurrent, greenlet

_T = TypeVar("_T")
_P = ParamSpec("_P")


class NoRoom(Exception):
    """As many calls as may be are aside already; this one was not begun."""


Aside = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function on a thread; its result can be awaited."""
MOST_IDLE: Final = 100
"""So many greenlets of a thread are kept for its next calls; each takes 16 KiB."""


class _Guest(greenlet):
    """The greenlet of one call at a time; its parent is that of the loop.

    It is used again, because the memory that a new one starts with costs as much as all the rest of a call.
    """

    aside: Aside
    briefly: Aside
    is_busy = False
    found: Any = None
    failed: BaseException | None = None


def _calls(function: Callable[[], Any]) -> None:
    """What a guest does all its life: one call after the other, each handed in by a switch."""
    while True:
        guest: Any = getcurrent()
        try:
            guest.found = function()
        except BaseException as error:  # noqa: BLE001 - whatever it is, `run` raises it
            guest.failed = error
        guest.is_busy, loops = False, guest.parent
        del function, guest  # an idle one would hold itself, and what it called
        function = loops.switch()


class _Idle(threading.local):
    """Guests without a call; a greenlet can't leave its thread."""

    def __init__(self) -> None:
        self.guests: list[_Guest] = []


_idle: Final = _Idle()


async def run(function: Callable[[], _T], *, aside: Aside, briefly: Aside) -> _T:
    """Call a function that may wait; returns what it returns, raises what it raises.

    A cancelled call gets the cancellation where it waits. It sees the context variables of its caller and keeps its own
    changes to them to itself. `aside` and `briefly` are where its `blocking` and its `brief` parts run.
    """
    idle = _idle.guests
    guest = idle.pop() if idle else _Guest(_calls)
    guest.aside, guest.briefly = aside, briefly
    guest.gr_context = contextvars.copy_context()
    guest.is_busy = True
    wanted = guest.switch(function)
    while guest.is_busy:
        try:
            found = await wanted
        except BaseException as error:  # noqa: BLE001 - whatever it is, whoever waits for it gets it
            wanted = guest.throw(error)
        else:
            wanted = guest.switch(found)
    result: _T = guest.found
    failed = guest.failed
    guest.found = guest.failed = guest.gr_context = None
    if len(idle) < MOST_IDLE:
        idle.append(guest)
    if failed is None:
        return result
    try:
        raise failed
    finally:
        del failed  # its traceback holds this frame


def is_here() -> bool:
    """Whether this code was called by `run`, on a loop that must not be blocked."""
    return _guest() is not None


def wait(awaitable: Awaitable[_T]) -> _T:
    """What is awaited; only where `is_here`. Others run meanwhile, so no lock of threads may be held."""
    guest = _guest()
    if guest is None or guest.parent is None:
        raise TypeError("nothing is awaited outside of `run`")
    found: _T = guest.parent.switch(awaitable)
    return found


def blocking(function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call a function that blocks: at once on a thread, on the loop by way of one, with the same context variables.

    Raises NoRoom where too many are at it.
    """
    guest = _guest()
    if guest is None:
        return function(*args, **kwargs)
    found: _T = wait(guest.aside(partial(contextvars.copy_context().run, function, *args, **kwargs)))
    return found


def brief(function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """The same for a function that blocks for moments only: it never waits for a thread behind one that takes long."""
    guest = _guest()
    if guest is None:
        return function(*args, **kwargs)
    found: _T = wait(guest.briefly(partial(contextvars.copy_context().run, function, *args, **kwargs)))
    return found


def surely(function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """The same for one that is owed: it runs also when its caller is cancelled before it has a thread."""
    guest = _guest()
    if guest is None:
        return function(*args, **kwargs)
    begun = guest.briefly(partial(contextvars.copy_context().run, function, *args, **kwargs))
    found: _T = wait(asyncio.shield(begun))
    return found


def _guest() -> _Guest | None:
    current = getcurrent()
    return current if type(current) is _Guest else None
