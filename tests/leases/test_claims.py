"""A claim of due rows takes as many as it was asked for, however the database plans it."""

from __future__ import annotations

import pytest
from django.db import connection

from fred import due
from leases.models import Signer


@pytest.mark.django_db
def test_a_table_that_grew_since_it_was_counted_gives_no_more_than_the_limit():
    """Counted with one row, the planner reads the table first and asks for the pick anew with each row of it."""
    with connection.cursor() as cursor:
        for number in range(4):
            Signer.objects.create(address=f"manifest1{number}", role="sub_signer", index=number)
            if number == 0:
                cursor.execute("ANALYZE leases_signer")
        cursor.execute("UPDATE leases_signer SET due_at = now() - interval '1 second'")
    assert len(due.claim(Signer, 1)) == 1
    assert Signer.objects.filter(attempts=1).count() == 1
    assert len(due.claim(Signer, 2)) == 2
    assert Signer.objects.filter(attempts=1).count() == 3
