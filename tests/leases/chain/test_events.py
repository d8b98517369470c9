from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leases.chain import events
from leases.chain.errors import StreamBroken
from leases.chain.events import AbciAttribute, AbciEvent, EventType, Header
from leases.chain.stream import HEADER_QUERY, ChainStream, LeaseEvents, event_queries
from tests.leases.chain import vectors

PARSE_CASES = vectors.chain()["websocket"]["parse_cases"]
OURS = UUID(vectors.PROVIDER_UUID)


def _stream(provider_uuid=OURS):
    return ChainStream("ws://127.0.0.1:1/websocket", queries=(), provider_uuid=provider_uuid)


def _as_text(occurrence):
    return {
        "type": occurrence.type,
        "lease_uuid": occurrence.lease_uuid,
        "provider_uuid": occurrence.provider_uuid,
        "tenant": occurrence.tenant,
    }


@pytest.mark.parametrize("case", PARSE_CASES, ids=lambda case: case["name"])
def test_frames_give_their_events(case):
    """CH-90, CH-91"""
    flat = case["frame"].get("result", {}).get("events", {})
    found = [_as_text(occurrence) for occurrence in events.from_map(flat, vectors.PROVIDER_UUID)]
    assert found == case.get("better_events", case["events"])


def test_an_event_frame_is_read_whole():
    [case] = [case for case in PARSE_CASES if case["name"] == "created"]
    read = _stream().read(msgspec.json.encode(case["frame"]))
    assert isinstance(read, LeaseEvents)
    assert (read.height, read.tx_hash) == (42, "A" * 64)
    [event] = read.events
    assert event.type is EventType.CREATED
    assert (event.lease_uuid, event.provider_uuid) == (UUID(vectors.LEASE_UUID), OURS)
    assert event.attributes["created_by"] == "tenant"


def test_an_expiry_arrives_with_its_block():
    """CH-98"""
    [case] = [case for case in PARSE_CASES if case["name"] == "expired_in_a_block"]
    read = _stream().read(msgspec.json.encode(case["frame"]))
    assert [event.type for event in read.events] == [EventType.EXPIRED]
    assert (read.height, read.tx_hash) == (50, "")


@pytest.mark.parametrize("name", ["confirmation"])
def test_a_confirmation_holds_nothing(name):
    """CH-92"""
    [case] = [case for case in PARSE_CASES if case["name"] == name]
    assert _stream().read(msgspec.json.encode(case["frame"])) is None


def test_an_error_frame_ends_the_stream():
    """CH-92"""
    [case] = [case for case in PARSE_CASES if case["name"] == "rpc_error"]
    with pytest.raises(StreamBroken, match="not pulling messages fast enough"):
        _stream().read(msgspec.json.encode(case["frame"]))


def test_a_frame_with_a_lease_id_that_is_none_gives_no_event():
    flat = {"lease_closed.lease_uuid": ["nonsense"], "lease_closed.provider_uuid": [vectors.PROVIDER_UUID]}
    assert _stream().read(msgspec.json.encode({"id": 1, "result": {"events": flat}})) is None


def _recorded_frames():
    recording = vectors.recording()
    return [frame for frame in (*recording["ws"], *recording["ws2"]) if frame.get("result", {}).get("events")]


def test_both_encodings_of_recorded_frames_say_the_same():
    """CH-100: frames of a real node, whose list and map must agree, wrapped messages included."""
    ours = vectors.recording()["ids"]["provider"]
    kinds = set()
    for frame in _recorded_frames():
        value = frame["result"]["data"]["value"]
        listed = value.get("TxResult", {}).get("result", {}).get("events") or value.get("events") or []
        from_list = list(events.from_list(msgspec.convert(listed, list[AbciEvent]), ours))
        from_map = list(events.from_map(frame["result"]["events"], ours))

        def order(texts):
            return sorted(texts.items())

        assert sorted((_as_text(o) for o in from_list), key=order) == sorted((_as_text(o) for o in from_map), key=order)
        kinds |= {occurrence.type for occurrence in from_list}
    assert {EventType.CREATED, EventType.CLOSED, EventType.CANCELLED, EventType.EXPIRED, EventType.AUTO_CLOSED} <= kinds


def test_recorded_frames_read_as_events_and_headers():
    stream = _stream(UUID(vectors.recording()["ids"]["provider"]))
    read = [stream.read(msgspec.json.encode(frame)) for frame in _recorded_frames()]
    headers = [item for item in read if isinstance(item, Header)]
    assert headers
    assert headers[0].chain_id == "manifest-ledger-beta"
    assert headers[0].time.tzinfo is UTC
    found = [item for item in read if isinstance(item, LeaseEvents)]
    assert found
    assert all(item.height > 0 and event.height == item.height for item in found for event in item.events)
    assert all(len(item.tx_hash) == 64 for item in found if item.events[0].type is not EventType.EXPIRED)


def _withdrawal(*, auto_closed):
    attributes = {"lease_uuid": vectors.LEASE_UUID, "amount": "0", "provider_uuid": vectors.PROVIDER_UUID}
    if auto_closed:
        attributes["auto_closed"] = "true"
    pairs = [AbciAttribute(name, value) for name, value in attributes.items()]
    return AbciEvent("provider_withdraw", pairs)


@pytest.mark.parametrize("auto_closed", [True, False])
def test_a_withdrawal_counts_only_where_it_closed_the_lease(auto_closed):
    found = list(events.from_list([_withdrawal(auto_closed=auto_closed)], vectors.PROVIDER_UUID))
    assert len(found) == auto_closed


def test_values_out_of_step_are_left_out():
    flat = {
        "lease_closed.lease_uuid": ["u1", "u2"],
        "lease_closed.provider_uuid": [vectors.PROVIDER_UUID] * 2,
        "lease_closed.closure_reason": ["belongs to one of the two"],
        "lease_closed.closed_by": ["tenant", "provider"],
    }
    first, second = events.from_map(flat, vectors.PROVIDER_UUID)
    assert (first.attributes["closed_by"], second.attributes["closed_by"]) == ("tenant", "provider")
    assert "closure_reason" not in first.attributes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-29T20:13:16.295389066Z", datetime(2026, 11, 29, 20, 13, 16, 295389, tzinfo=UTC)),
        ("2026-11-29T20:13:16.5Z", datetime(2026, 11, 29, 20, 13, 16, 500000, tzinfo=UTC)),
        ("2026-11-29T20:13:16Z", datetime(2026, 11, 29, 20, 13, 16, tzinfo=UTC)),
    ],
)
def test_times_of_the_node(text, expected):
    assert events.moment(text) == expected


def test_five_queries_fit_one_connection_and_its_length_limit():
    """CH-89"""
    queries = event_queries(uuid4())
    assert len(queries) == 5
    assert all(len(query) <= 512 for query in (*queries, HEADER_QUERY))
    go = [frame["params"]["query"] for frame in vectors.chain()["websocket"]["subscribe_frames_go"]]
    assert list(event_queries(OURS)[:3]) == go[:3]
    assert event_queries(OURS)[3] == go[3].replace("'Tx'", "'NewBlockEvents'")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("TxResult", "header", "height", "events", "result", "value")


@given(
    st.dictionaries(
        st.sampled_from(FIELDS), JSON | st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3), max_size=4
    ),
    st.dictionaries(st.sampled_from(("tx.hash", "lease_closed.lease_uuid", "lease_closed.tenant")), JSON, max_size=3),
)
def test_no_frame_breaks_the_reader(value, flat):
    """Anything a node may say is read, skipped, or counted as unreadable: never another error."""
    frame = {"id": 1, "result": {"data": {"value": value}, "events": flat}}
    try:
        _stream().read(msgspec.json.encode(frame))
    except (StreamBroken, ValueError):
        return


@given(st.binary(max_size=40) | st.text(max_size=40))
def test_no_bytes_break_the_reader(text):
    try:
        _stream().read(text)
    except (StreamBroken, ValueError):
        return
