"""Token buckets for an event loop, which they never block: what is asked for while a script runs goes into the next.

All kinds of a loop share one task with one connection of its own, and go to Valkey together. It ends with its loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from fred import valkey
from fred.buckets import QUIET_S, TAKE, Asked, Buckets, Draw, Drawn, draw_each, draws_of, run_of
from fred.time_limits import TimeLimit
from fred.together import Together
from fred.valkey_link import ScriptLink


class LoopBuckets(Buckets):
    """Buckets whose tokens a loop takes by `await`, and threads as ever; in the same Valkey as all others."""

    def __init__(self, kind: str, *, url: Callable[[], str] = valkey.url, **limits: Any) -> None:
        """`url` of Valkey, asked for at each connection; `limits` as of `Buckets`."""
        super().__init__(kind, **limits)
        self._draws = _draws(url)

    async def take_soon(self, key: str) -> Draw:
        """Take a token. Waits 200 ms at the longest."""
        first, _ = await self._draws.ask(Asked(self, key))
        return first

    def take_both(self, key: str, others: LoopBuckets, other: str) -> asyncio.Future[Drawn]:
        """Take a token and, only if there was one, another of this other kind: in one step, in the order of asking.

        None stands for a draw that was not made. All kinds must be in the same Valkey. Waits 200 ms at the longest.
        """
        return self._draws.begin(Asked(self, key, (others, other)))

    async def close(self) -> None:
        """End the task and its connection; whoever else asks begins anew."""
        await self._draws.close()


@lru_cache(maxsize=8)
def _draws(url: Callable[[], str]) -> Together[Asked, Drawn]:
    return Together(lambda: _Draws(ScriptLink(TAKE, url)))


class _Draws:
    """Draws of one loop, over a connection of its own."""

    def __init__(self, link: ScriptLink) -> None:
        self._link = link
        self._quiet_until = float("-inf")

    async def answer(self, asked: Sequence[Asked], /) -> list[Drawn]:
        # What threads met with one kind does not count here: another one in the batch would be counted apart for it.
        if time.monotonic() >= self._quiet_until:
            try:
                with TimeLimit(valkey.LIMIT_S):
                    return draws_of(asked, await self._link.run(*run_of(asked)))
            except Exception as error:  # noqa: BLE001 - all who wait in this batch must get a draw
                self._quiet_until = time.monotonic() + QUIET_S
                for buckets in {one.buckets for one in asked} | {one.then[0] for one in asked if one.then}:
                    buckets.be_quiet(error)
                await self._link.close()
        return draw_each(asked, Buckets.draw_here)

    async def close(self) -> None:
        await self._link.close()
