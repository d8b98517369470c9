"""Synchronous code on the event loop: it runs in a greenlet, which steps aside wherever the code has to wait.

So one view serves both ways: on a thread it blocks, on the loop `wait` hands what it waits for to the loop. What has no
form for a loop goes to a thread by `blocking`. Statements of Django's are refused here by Django itself, which sees the
running loop.
"""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

from greenlet import getcurrent, greenlet

_T = TypeVar("_T")
_P = ParamSpec("_P")

Aside = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function on a thread; its result can be awaited."""


class _Guest(greenlet):
    """The greenlet of one call; its parent is that of the loop."""

    aside: Aside
    briefly: Aside


async def run(function: Callable[[], _T], *, aside: Aside, briefly: Aside) -> _T:
    """Call a function that may wait; returns what it returns, raises what it raises.

    A cancelled call gets the cancellation where it waits. It sees the context variables of its caller and keeps its own
    changes to them to itself. `aside` and `briefly` are where its `blocking` and its `brief` parts run.
    """
    guest = _Guest(function)
    guest.aside, guest.briefly = aside, briefly
    guest.gr_context = contextvars.copy_context()
    wanted = guest.switch()
    while not guest.dead:
        try:
            found = await wanted
        except BaseException as error:  # noqa: BLE001 - whatever it is, whoever waits for it gets it
            wanted = guest.throw(error)
        else:
            wanted = guest.switch(found)
    result: _T = wanted
    return result


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
    """Call a function that blocks: at once on a thread, on the loop by way of one, with the same context variables."""
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


def _guest() -> _Guest | None:
    current = getcurrent()
    return current if type(current) is _Guest else None
