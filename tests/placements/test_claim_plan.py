"""A claim reads what it takes: not the whole backlog, also while the database has not counted its rows yet."""

from __future__ import annotations

import json

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from placements import push_sql
from tests.placements import due_rows

COPIES = """
    WITH more AS (
        INSERT INTO leases_lease (uuid, epoch, attempts, chain_height, news_height, items, meta_hash, phase, reason,
                                  chain_reason, last_error)
        SELECT gen_random_uuid(), 0, 0, -1, -1, '[]', '', 'observed', '', '', '' FROM generate_series(1, 2000)
     RETURNING uuid)
    INSERT INTO placements_operation
           (id, lease_uuid, kind, backend, tenant, provider_uuid, items, callback_url, lifecycle_url, state, refusal,
            error, dispatch_count, due_at, epoch, attempts, valid_until)
    SELECT gen_random_uuid(), more.uuid, o.kind, o.backend, o.tenant, o.provider_uuid, o.items, o.callback_url,
           o.lifecycle_url, o.state, '', '', 0, o.due_at, 0, 0, o.valid_until
      FROM more, placements_operation AS o
"""


@pytest.mark.django_db
def test_a_claim_walks_the_due_operations_of_its_backend_in_order():
    operation = due_rows.due()
    with connection.cursor() as cursor:
        cursor.execute(COPIES)
        with CaptureQueriesContext(connection) as sent:
            assert len(push_sql.claim_operations({operation.backend_id: 30})) == 30
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sent[-1]['sql']}")
        plan = cursor.fetchone()[0]
    text = plan if isinstance(plan, str) else json.dumps(plan)
    assert "operation_due_open" in text
    assert '"Sort"' not in text
