"""News about leases: store the fact, mark its lease due for a look, in one transaction.

News never acts. Whoever hears something of a lease stores it inside :func:`news_about` and wakes the leases for which
it was new; a look then decides. A lost hint costs two seconds, a lost transaction is as if nothing had been heard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from django.db import transaction

from fred import crash, due
from fred.tasks import LOOK, hint
from leases import sql


@dataclass(slots=True)
class News:
    """The leases that a transaction holds, and those that it woke."""

    locked: set[UUID]
    woken: set[UUID] = field(default_factory=set)

    def wake(self, uuids: Iterable[UUID] | Mapping[UUID, int | None], *, touched: bool = False) -> None:
        """Mark these leases due, raise their epoch and forget their failed attempts.

        A mapping gives the height of the news: a lease that was read at that height or above knows it already and
        sleeps on. ``touched``: inventory walks begun before now prove nothing about these leases any more.
        """
        heights = dict(uuids) if isinstance(uuids, Mapping) else dict.fromkeys(uuids)
        self.woken |= sql.wake(
            {uuid: height for uuid, height in heights.items() if uuid in self.locked}, touched=touched
        )


@contextmanager
def news_about(uuids: Iterable[UUID], *, skip_locked: bool = False, known: bool = False) -> Iterator[News]:
    """Lock these leases in uuid order, stubs for unknown ones; inside, store the news and wake those it is new for.

    With ``skip_locked`` leases that somebody holds at this moment are left out of ``News.locked``. After the commit one
    hint asks a worker to look, also when nothing was new: a claim passes over rows that are locked here, so the hint of
    whoever brought the news first may have found nothing.
    """
    with transaction.atomic():
        news = News(locked=(sql.lock if known else sql.lock_or_stub)(uuids, skip_locked=skip_locked))
        yield news
        if news.locked:
            transaction.on_commit(hint_look)


def leases(uuids: Iterable[UUID]) -> set[UUID]:
    """Ask for a look at these leases, nothing else; return those that exist and were woken."""
    wanted = sorted(set(uuids))

    def write() -> set[UUID]:
        woken = sql.wake(dict.fromkeys(sql.lock(wanted)))
        if woken:
            transaction.on_commit(hint_look)
        return woken

    return due.in_transaction(write)


def hint_after_commit() -> None:
    """Hint once the running transaction has woken leases for good."""
    transaction.on_commit(hint_look)


def hint_look() -> None:
    """Tell a worker, once per second at most, that leases are due."""
    crash.point("news.committed")
    hint.send(LOOK)
