"""Facts and rules of the contract that need no wire."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import callback_urls, paging
from backends.contract import (
    INVALID_MANIFEST,
    BackendError,
    InsufficientResources,
    LeaseItem,
    LoadStats,
    ProvisionStatus,
    ValidationRefused,
    cut_reason,
)
from backends.items import normalise_items
from tests.backends.servers import uuid_number


def test_an_unknown_status_reads_as_unknown():
    assert ProvisionStatus.parse("ready") is ProvisionStatus.READY
    assert ProvisionStatus.parse("rebalancing") is ProvisionStatus.UNKNOWN


def test_bc114_a_single_unnamed_item_becomes_the_service_app():
    assert normalise_items([LeaseItem("s", 1, custom_domain="d")]) == (LeaseItem("s", 1, "app", "d"),)


def test_named_items_stay():
    items = (LeaseItem("s", 1, "web"), LeaseItem("s", 2, "db"))
    assert normalise_items(items) == items


@pytest.mark.parametrize(
    ("items", "text", "code"),
    [
        pytest.param([], "provision request has no items", "", id="none"),
        pytest.param(
            [LeaseItem("s", 1), LeaseItem("s", 1)],
            "legacy single-service form requires exactly 1 item; got 2",
            INVALID_MANIFEST,
            id="bc114 two unnamed",
        ),
        pytest.param(
            [LeaseItem("s", 1, "web"), LeaseItem("s", 1)],
            "mixed service_name presence across items (got 1 named, 1 unnamed)",
            INVALID_MANIFEST,
            id="bc114 mixed",
        ),
        pytest.param(
            [LeaseItem("s", 1025, "web")],
            'item 0 (SKU "s", service "web") quantity 1025 out of range [0, 1024]',
            "",
            id="bc115 too many",
        ),
        pytest.param(
            [LeaseItem("s", 1, "web"), LeaseItem("s", -1, "db")],
            'item 1 (SKU "s", service "db") quantity -1 out of range [0, 1024]',
            "",
            id="negative",
        ),
        pytest.param(
            [LeaseItem("s", 600, "web"), LeaseItem("s", 600, "db")],
            "total quantity 1200 out of range [0, 1024]",
            "",
            id="total",
        ),
    ],
)
def test_items_a_backend_refuses(items, text, code):
    with pytest.raises(ValidationRefused) as refusal:
        normalise_items(items)
    assert (str(refusal.value), refusal.value.validation_code) == (text, code)


def test_bc115_the_limit_itself_passes():
    assert normalise_items([LeaseItem("s", 1024, "web")])


@pytest.mark.parametrize(
    ("total", "allocated", "ratio"),
    [
        pytest.param(4, 2, 0.5, id="half"),
        pytest.param(2, 3, 1.5, id="overcommitted"),
        pytest.param(0, 0, None, id="bc36 no signal"),
        pytest.param(-1, 0, None, id="negative total"),
        pytest.param(4, -1, None, id="negative allocated"),
        pytest.param(float("inf"), 1, None, id="infinite"),
        pytest.param(4, float("nan"), None, id="nan"),
    ],
)
def test_load_is_usable_only_when_it_makes_sense(total, allocated, ratio):
    assert LoadStats(total_cpu_cores=total, allocated_cpu_cores=allocated).cpu_ratio == ratio


def test_bc93_a_long_reason_is_cut():
    assert cut_reason("e" * 256) == "e" * 256
    assert cut_reason("e" * 300) == "e" * 253 + "..."
    assert cut_reason("e" * 252 + "\u20ac" * 9) == "e" * 252 + "..."


@given(st.text())
def test_a_cut_reason_fits_and_is_valid(text):
    text = text.encode(errors="replace").decode()
    assert len(cut_reason(text).encode()) <= 256


def test_errors_carry_what_the_envelope_needs():
    error = InsufficientResources("insufficient CPU")
    assert (str(error), error.code, error.http_status) == ("insufficient CPU", "insufficient_resources", 503)
    assert str(BackendError()) == "internal server error"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "callback_url is required"),
        ("http://169.254.169.254/x", "invalid callback_url: link-local addresses are not allowed"),
        ("http://[fe80::1%25eth0]/x", "invalid callback_url: link-local addresses are not allowed"),
        ("http://[::ffff:169.254.169.254]/x", "invalid callback_url: link-local addresses are not allowed"),
        ("http://169.254.169.254./x", "invalid callback_url: link-local addresses are not allowed"),
        ("http://0.0.0.0/x", "invalid callback_url: unspecified addresses are not allowed"),
        ("ftp://h/x", "invalid callback_url: scheme must be http or https"),
        ("/x", "invalid callback_url: scheme must be http or https"),
        ("http:///x", "invalid callback_url: host is required"),
        ("http://h:port/x", "invalid callback_url: malformed URL"),
        ("http://h/\r\nX: y", "invalid callback_url: malformed URL"),
        ("http://[h/x", "invalid callback_url: malformed URL"),
    ],
)
def test_bc112_callback_urls_that_are_refused(url, why):
    with pytest.raises(ValidationRefused) as refusal:
        callback_urls.check(url)
    assert str(refusal.value) == why


@pytest.mark.parametrize("url", ["http://127.0.0.1/x", "https://cp.example:8443/p/callbacks/provision?operation_id=1"])
def test_bc112_callback_urls_that_pass(url):
    callback_urls.check(url)


def page_of(numbers, query):
    """The numbers of the page that this query gets, and the number in its token."""
    page = paging.parse({name: [value] for name, value in query.items()})
    after = -1 if page.after is None else page.after.int
    rows = [uuid_number(n) for n in numbers if uuid_number(n).int > after][: page.wanted]
    chosen, token = paging.cut(rows, page, key=lambda row: row)
    return [row.int & 0xFF for row in chosen], (int(token[-2:], 16) if token else None)


@pytest.mark.parametrize(
    ("numbers", "query", "expected"),
    [
        pytest.param([1, 2, 3, 4, 5], {"limit": "2"}, ([1, 2], 2), id="bc37 first"),
        pytest.param([1, 2, 3, 4, 5], {"limit": "2", "continue": str(uuid_number(2))}, ([3, 4], 4), id="bc37 second"),
        pytest.param([1, 2, 3, 4, 5], {"limit": "2", "continue": str(uuid_number(4))}, ([5], None), id="bc37 last"),
        pytest.param([1, 2, 3, 4], {"limit": "2", "continue": str(uuid_number(2))}, ([3, 4], None), id="bc38 exact"),
        pytest.param([1, 2, 5, 6], {"limit": "9", "continue": str(uuid_number(3))}, ([5, 6], None), id="bc39 deleted"),
        pytest.param([1, 2], {"limit": "9", "continue": str(uuid_number(7))}, ([], None), id="bc40 past the end"),
        pytest.param([1, 2], {}, ([1, 2], None), id="everything"),
        pytest.param([1, 2], {"limit": ""}, ([1, 2], None), id="empty limit"),
        pytest.param([1, 2], {"limit": "0"}, ([1, 2], None), id="zero limit"),
        pytest.param([1, 2], {"limit": "+1"}, ([1], 1), id="signed"),
        pytest.param(
            [1, 2], {"limit": "1", "continue": str(uuid_number(1)).upper()}, ([2], None), id="bc43 upper case"
        ),
        pytest.param([1, 2], {"limit": "1", "continue": f"{{{uuid_number(1)}}}"}, ([2], None), id="bc43 braces"),
        pytest.param([1, 2], {"limit": "1", "continue": uuid_number(1).hex}, ([2], None), id="compact"),
        pytest.param([1, 2], {"limit": "1", "continue": uuid_number(1).urn}, ([2], None), id="urn"),
    ],
)
def test_pages(numbers, query, expected):
    assert page_of(numbers, query) == expected


def test_bc41_a_page_has_at_most_5000_rows():
    assert paging.parse({"limit": ["5000000"]}).limit == 5000


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"limit": "abc"}, 'invalid limit "abc": must be a non-negative integer'),
        ({"limit": "-1"}, 'invalid limit "-1": must be a non-negative integer'),
        ({"limit": "1_0"}, 'invalid limit "1_0": must be a non-negative integer'),
        ({"limit": "9" * 30}, f'invalid limit "{"9" * 30}": must be a non-negative integer'),
        ({"continue": "not-a-uuid"}, 'invalid continue token "not-a-uuid": must be a UUID'),
        ({"limit": "x", "continue": "y"}, 'invalid limit "x": must be a non-negative integer'),
        ({"continue": str(uuid_number(1))}, "continue requires a positive limit"),
        ({"continue": str(uuid_number(1)), "limit": "0"}, "continue requires a positive limit"),
    ],
)
def test_bc42_queries_that_are_refused(query, text):
    with pytest.raises(ValidationRefused) as refusal:
        page_of([], query)
    assert str(refusal.value) == text
