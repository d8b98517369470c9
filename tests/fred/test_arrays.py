"""Lists as parameters: what PostgreSQL reads is what was given."""

from uuid import UUID, uuid4

import pytest
from django.db import connection
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.types.array import ListDumper

from fred.arrays import QuickListDumper


def as_read(values, kind):
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT %s::{kind}[]", [values])
        return cursor.fetchone()[0]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        pytest.param([], "uuid", id="no uuid at all"),
        pytest.param([UUID(int=0), uuid4(), UUID(int=2**128 - 1)], "uuid", id="uuids with leading zeros and without"),
        pytest.param([None, uuid4(), None], "uuid", id="nulls between uuids"),
        pytest.param([None, None], "uuid", id="nothing but nulls"),
        pytest.param([0, -1, 2**63 - 1, -(2**63)], "bigint", id="numbers up to their bounds"),
        pytest.param(["", "NULL", "null", '"', "\\", '\\"', "a,b", "{}", " ", "'", "ü\n\t"], "text", id="awkward text"),
        pytest.param([True, None, False], "boolean", id="booleans are no numbers"),
        pytest.param([b"\x00\xff", None, b""], "bytea", id="bytes are left to psycopg"),
        pytest.param([["a", 'b"'], ["c", "d"]], "text", id="nested lists are left to psycopg"),
    ],
)
def test_a_list_arrives_as_it_is(values, kind):
    found = as_read(values, kind)
    assert [bytes(one) if isinstance(one, memoryview) else one for one in found] == values


@pytest.mark.django_db
@given(st.lists(st.none() | st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))))
@settings(max_examples=60)
def test_any_text_arrives_as_it_is(values):
    assert as_read(values, "text") == values


@pytest.mark.django_db
def test_every_connection_writes_lists_the_quick_way():
    connection.ensure_connection()
    dumper = connection.connection.adapters.get_dumper(list, "t")
    assert issubclass(dumper, QuickListDumper)
    assert issubclass(dumper, ListDumper)
