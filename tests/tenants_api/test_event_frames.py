"""Frames, server-sent messages and cursors, as values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest

from leases.event_reads import Kept, StatusFact
from leases.hub import is_gap
from tenants_api.event_frames import LIVE, NOW, Cursor, current, cursor_of, frame, message, rfc3339
from tests.tenants_api.vectors import LEASE

AT = datetime(2026, 9, 21, 14, 13, 20, 123456, UTC)
FAILED = StatusFact(7, UUID(LEASE), "failed", 'image "pull"\nfailed', AT)
READY = StatusFact(8, UUID(LEASE), "ready", "", AT.replace(microsecond=0))


@pytest.mark.parametrize(
    ("event", "how", "text"),
    [
        pytest.param(
            FAILED,
            {"with_id": False},
            f'{{"lease_uuid":"{LEASE}","status":"failed","error":"image \\"pull\\"\\nfailed",'
            '"timestamp":"2026-09-21T14:13:20.123456Z"}\n',
            id="as clients know it",
        ),
        pytest.param(
            READY,
            {"with_id": False},
            f'{{"lease_uuid":"{LEASE}","status":"ready","timestamp":"2026-09-21T14:13:20Z"}}\n',
            id="without error",
        ),
        pytest.param(
            READY,
            {"with_id": True, "gap": True},
            f'{{"lease_uuid":"{LEASE}","status":"ready","timestamp":"2026-09-21T14:13:20Z","id":"8","gap":true}}\n',
            id="id and gap",
        ),
    ],
)
def test_a_frame(event, how, text):
    assert frame(event, **how) == text


def test_ta113_a_server_sent_event_has_its_data_on_one_line():
    head, event, data, *rest = message(FAILED).decode().split("\n")
    assert (head, event) == ("id: 7", "event: status")
    assert data == "data: " + frame(FAILED, with_id=True).rstrip("\n")
    assert rest == ["", ""]


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (datetime(2026, 1, 5, 9, 30, 0, 500000, UTC), "2026-01-05T09:30:00.5Z"),
        (datetime(2026, 1, 5, 9, 30, 0, 1, UTC), "2026-01-05T09:30:00.000001Z"),
        (datetime(2026, 1, 5, 9, 30, tzinfo=timezone(timedelta(hours=2))), "2026-01-05T07:30:00Z"),
    ],
)
def test_times_are_utc_without_trailing_zeros(at, text):
    assert rfc3339(at) == text


@pytest.mark.parametrize(
    ("text", "cursor"),
    [
        (None, LIVE),
        ("", NOW),
        ("now", NOW),
        ("0", Cursor(0, resumes=True)),
        ("0042", Cursor(42, resumes=True)),
        ("9" * 4000, Cursor(2**63 - 1, resumes=True)),
    ],
)
def test_ta112_cursors(text, cursor):
    assert cursor_of(text) == cursor


@pytest.mark.parametrize("text", ["x", "-1", "+1", "1.5", " 1", "1e3", "NOW", "٣", "0x1"])
def test_ta112_what_is_no_cursor(text):
    with pytest.raises(ValueError):
        cursor_of(text)


@pytest.mark.parametrize(
    ("since", "is_one"), [(0, False), (4, True), (5, False), (6, False), (8, False), (9, True), (2**63 - 1, True)]
)
def test_ta112_a_gap_is_outside_of_what_is_kept(since, is_one):
    assert is_gap(since, Kept(5, READY, "active", AT)) == is_one


def test_ta112_how_a_lease_stands_without_kept_events():
    kept = Kept(0, None, "active", AT)
    assert is_gap(3, kept)
    assert not is_gap(0, kept)
    assert current(UUID(LEASE), kept) == StatusFact(0, UUID(LEASE), "ready", "", AT)
    assert current(UUID(LEASE), Kept(0, None, "queued", AT)).status == "provisioning"
    assert current(UUID(LEASE), Kept(0, None, "maintaining", AT)).status == "restarting"
    assert current(UUID(LEASE), Kept(5, READY, "degraded", AT)) == READY
