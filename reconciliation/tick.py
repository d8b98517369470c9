"""Every two seconds: is something due that nobody has taken? Then its hint was lost, and it is hinted again."""

from __future__ import annotations

from django.db import connection

from fred.tasks import DIALECTS, DISPATCH, LANES, LOOK, hint

_DUE = """
    SELECT EXISTS (SELECT FROM leases_lease WHERE due_at <= now()),
           EXISTS (SELECT FROM placements_operation WHERE due_at <= now() AND settled_at IS NULL)
           OR EXISTS (SELECT FROM placements_teardown WHERE due_at <= now())
           OR EXISTS (SELECT FROM placements_maintenancecommand WHERE due_at <= now() AND state = 'reserved'),
           EXISTS (SELECT FROM leases_chaintx WHERE due_at <= now())
           OR EXISTS (SELECT FROM leases_chainaction WHERE due_at <= now() AND state = 'queued'),
           EXISTS (SELECT FROM backends_backend WHERE configured AND NOT fenced AND retired_at IS NULL
                      AND contract = 'auto' AND dialect = 'unset')
"""


def hint_overdue() -> list[str]:
    """Hint the tasks for which something is due; return their names. Claims nothing."""
    with connection.cursor() as cursor:
        cursor.execute(_DUE)
        row = cursor.fetchone()
    wanted = [task for task, is_due in zip((LOOK, DISPATCH, LANES, DIALECTS), row, strict=True) if is_due]
    for task in wanted:
        hint.send(task)
    return wanted
