"""What was asked for ahead goes to the check that it was asked for, and only once."""

from __future__ import annotations

import gc
from contextlib import suppress
from contextvars import Context
from uuid import UUID
from weakref import ref

import pytest

from fred.address_limit import Along
from fred.buckets import Draw
from fred.loop_buckets import LoopBuckets
from tenants_api import ahead
from tenants_api.ahead import Ahead
from tenants_api.tokens import InvalidToken
from tests.tenants_api.vectors import ALICE, BOB, LEASE

MINE, OTHER = UUID(LEASE), UUID(int=7)
DRAW, VERDICT = Draw(0.0, 4.0, 5, 1.0), object()


@pytest.fixture
def context():
    """That of a request of Alice's, for which all was asked."""
    found = Context()
    along = Along(LoopBuckets("test", rate=1.0, burst=5), ALICE, DRAW)
    found.run(ahead.keep, Ahead("Bearer a", VERDICT, along, MINE, object()))
    return found


@pytest.mark.parametrize(
    ("take", "of_another"),
    [(ahead.draw, BOB), (ahead.row, OTHER), (ahead.token, "Bearer b"), (ahead.token, None)],
    ids=["draw", "row", "token", "no token"],
)
def test_nothing_of_another_is_taken(take, of_another, context):
    assert context.run(take, of_another) is None


@pytest.mark.parametrize(("take", "own"), [(ahead.draw, ALICE), (ahead.row, MINE)], ids=["draw", "row"])
def test_a_draw_and_a_row_are_taken_once(take, own, context):
    assert context.run(take, own) is not None
    assert context.run(take, own) is None


def test_a_verdict_holds_for_its_request(context):
    assert [context.run(ahead.token, "Bearer a") for _ in range(2)] == [VERDICT] * 2
    context.run(ahead.keep, Ahead("Bearer c", InvalidToken("parse", "no bearer token")))
    for _ in range(2):
        with pytest.raises(InvalidToken, match="no bearer token"):
            context.run(ahead.token, "Bearer c")


def test_where_nothing_was_asked_there_is_nothing():
    assert [Context().run(take, own) for take, own in ((ahead.draw, ALICE), (ahead.row, MINE))] == [None, None]
    assert Context().run(ahead.token, "Bearer a") is None


def test_a_refusal_that_was_told_holds_nothing_of_its_request():
    gc.collect()
    gc.disable()
    try:
        assert _told_refusal()() is None
    finally:
        gc.enable()


def _told_refusal():
    context, refused = Context(), InvalidToken("parse", "no bearer token")
    context.run(ahead.keep, Ahead("header", refused))
    for _ in range(2):
        with suppress(InvalidToken):
            context.run(ahead.token, "header")
    return ref(refused)
