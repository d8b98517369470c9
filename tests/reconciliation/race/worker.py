"""A worker of the race: looks at what is due and runs the sender, until it is killed. No Celery, no broker.

With the argument `sweep` it runs one sweep and ends: what it finds is woken, and the workers look at it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from uuid import UUID

import django

django.setup()

from django.db import DatabaseError, connection  # noqa: E402

from placements import dispatch  # noqa: E402
from reconciliation import facts  # noqa: E402
from reconciliation import look as look_module  # noqa: E402
from reconciliation.decisions import Rest, Wait  # noqa: E402
from reconciliation.sources import Sources  # noqa: E402
from reconciliation.sweep import sweep  # noqa: E402
from tests.reconciliation.race.tables import TableChain, counts, run  # noqa: E402

_seen: dict[UUID, int] = {}


def gather(claimed: Mapping[UUID, int], sources: Sources):
    """The real gather; notes first how much news of each lease it can have seen."""
    _seen.update(counts(list(claimed)))
    return facts.gather(claimed, sources)


def watched_act(decided):
    """The real act; under the locks of its finish, looks whether there is more news than the facts had."""
    decided = list(decided)
    acting = [one for one in decided if not isinstance(one.act, Wait | Rest)]
    now = counts([one.uuid for one in acting])
    for one in acting:
        if now[one.uuid] > _seen[one.uuid]:
            run(
                "INSERT INTO race_violations (what) VALUES (%s)",
                f"{type(one.act).__name__} for {one.uuid} on {_seen[one.uuid]} of {now[one.uuid]} news",
            )
    return real_act(decided)


real_act = look_module.act
look_module.act = watched_act


def main() -> None:
    looker = look_module.Looker(sources=Sources(TableChain()), gather=gather)
    run("INSERT INTO race_workers VALUES (%s) ON CONFLICT DO NOTHING", os.getpid())
    tick = threading.Event()
    while not tick.wait(0.05):
        try:
            looker.at_due_leases(limit=40)
            dispatch.sender().pull()
        except DatabaseError:
            connection.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["sweep"]:
        sweep(Sources(TableChain()))
    else:
        main()
