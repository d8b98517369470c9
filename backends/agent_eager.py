"""Running a coroutine at once, and as a task only if it has to wait.

Most of a memory-only agent's work never waits; a task for each request and each result would cost more than the work.
What runs this way must not ask for the current task before its first wait (`asyncio.timeout` does).
"""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")

_running: set[asyncio.Task[Any]] = set()


class _Rest:
    """What is left of a coroutine that has been started and waits for a future."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        waits_for = self._waits_for
        try:
            while True:
                try:
                    yield waits_for
                except BaseException as error:  # noqa: BLE001 (thrown into the coroutine, where it belongs)
                    waits_for = self._coroutine.throw(error)
                else:
                    waits_for = self._coroutine.send(None)
        except StopIteration as end:
            return end.value


async def _finish(rest: _Rest) -> Any:
    return await rest


def run(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any] | None:
    """Run until it ends (None) or first waits; then a task of the running loop does the rest.

    What it raises before it waits is raised here.
    """
    try:
        waits_for = coroutine.send(None)
    except StopIteration:
        return None
    task = asyncio.get_running_loop().create_task(_finish(_Rest(coroutine, waits_for)))
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task
