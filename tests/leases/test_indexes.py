"""What the database must find quickly, whatever else its indexes are for."""

from __future__ import annotations

import pytest
from django.db import connection


@pytest.mark.django_db
def test_every_foreign_key_to_a_lease_has_an_index_that_begins_with_it():
    """Deleting a lease looks for rows that name it, in every table."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT c.conrelid::regclass::text, a.attname FROM pg_constraint AS c
              JOIN pg_attribute AS a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1]
             WHERE c.contype = 'f' AND c.confrelid = 'leases_lease'::regclass
               AND NOT EXISTS (
                   SELECT FROM pg_index AS i WHERE i.indrelid = c.conrelid AND i.indkey[0] = c.conkey[1]
                      AND COALESCE(pg_get_expr(i.indpred, i.indrelid) = '(' || a.attname || ' IS NOT NULL)', TRUE))
            """
        )
        assert cursor.fetchall() == []
