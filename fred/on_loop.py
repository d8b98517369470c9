"""Synchronous code on the event loop: it runs in a greenlet, which steps aside wherever the code has to wait.

So one view serves both ways: on a thread it blocks, on the loop `wait` hands what it waits for to the loop. What has no
form for a loop goes to a thread by `blocking`. Statements of Django's are refused here by Django itself, which sees the
running loop.
"""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from greenlet import getcurrent, greenlet

_T = TypeVar("_T")
_P = ParamSpec("_P")

Aside = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function on a thread; its result can be awaited."""


class _Guest(greenlet):
    """The greenlet of one call; its parent is that of the loop."""

    aside: Aside


async def run(function: Callable[[], _T], *, aside: Aside) -> _T:
    """Call a function that may wait; returns what it returns, raises what it raises.

    A cancelled call gets the cancellation where it waits. It sees the context variables of its caller and keeps its own
    changes to them to itself. `aside` is where its `blocking` parts run.
    """
    guest = _Guest(function)
    guest.aside = aside
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
    return type(getcurrent()) is _Guest


def wait(awaitable: Awaitable[_T]) -> _T:
    """What is awaited; only where `is_here`. Others run meanwhile, so no lock of threads may be held."""
    found: _T = _guest().parent.switch(awaitable)
    return found


def blocking(function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call a function that blocks: at once on a thread, on the loop by way of one, with the same context variables."""
    current = getcurrent()
    if not isinstance(current, _Guest):
        return function(*args, **kwargs)
    called = partial(contextvars.copy_context().run, function, *args, **kwargs)
    found: _T = wait(current.aside(called))
    return found


def _guest() -> Any:
    current: Final = getcurrent()
    if not isinstance(current, _Guest):
        raise TypeError("nothing is awaited outside of `run`")
    return current
