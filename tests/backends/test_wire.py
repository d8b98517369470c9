"""What backends write, as facts: times to the digit, words we don't know, numbers where text belongs."""

import json
import tracemalloc
from datetime import UTC, datetime
from uuid import UUID

import msgspec
import pytest

from backends import wire
from backends.contract import ProvisionStatus, TerminalBudget
from backends.releases import read_releases

LEASE = UUID("0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b")


def provision(**fields):
    return wire.to_provision(msgspec.convert({"lease_uuid": str(LEASE), **fields}, wire.Row))


@pytest.mark.parametrize(
    ("text", "moment", "again"),
    [
        ("2026-09-21T14:13:20Z", (20, 0), "2026-09-21T14:13:20Z"),
        ("2026-09-21T14:13:20.5Z", (20, 500_000), "2026-09-21T14:13:20.5Z"),
        ("2026-09-21T14:13:20.500Z", (20, 500_000), "2026-09-21T14:13:20.5Z"),
        ("2026-09-21T14:13:20.999999999Z", (20, 999_999), "2026-09-21T14:13:20.999999999Z"),
        ("2026-09-21T16:13:20.1234567+02:00", (20, 123_456), "2026-09-21T14:13:20.1234567Z"),
        ("2026-09-21T09:13:20.000-05:00", (20, 0), "2026-09-21T14:13:20Z"),
    ],
)
def test_a_time_is_cut_never_rounded_and_told_in_utc(text, moment, again):
    seconds, micros = moment
    assert wire.read_time(text) == datetime(2026, 9, 21, 14, 13, seconds, micros, tzinfo=UTC)
    assert wire.utc_text(text) == again


@pytest.mark.parametrize("text", [None, "", "0001-01-01T00:00:00Z", "soon", "2026-09-21T14:13:20", "2026-09-21"])
def test_no_time_is_the_year_one(text):
    assert wire.read_time(text) is None
    assert wire.utc_text(text) == "0001-01-01T00:00:00Z"


def test_a_status_that_we_do_not_know_keeps_its_word():
    found = provision(status="hibernating")
    assert (found.status, found.said) == (ProvisionStatus.UNKNOWN, "hibernating")
    assert provision(status="ready").said == ""


def test_ta131_a_terminal_budget_is_read_and_its_absence_is_none():
    reported = {"verdict": "exhausted", "consecutive_failures": 3}
    assert provision(terminal_budget=reported).terminal_budget == TerminalBudget("exhausted", 3)
    assert provision().terminal_budget is None
    assert provision(terminal_budget=None).terminal_budget is None


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (wire.ProvisionsPage, {"provisions": [{"lease_uuid": str(LEASE), "fail_count": 2**31}]}),
        (wire.ProvisionsPage, {"provisions": [{"lease_uuid": str(LEASE), "items": [{"quantity": 2**63}]}]}),
        (wire.ProvisionsPage, {"provisions": [{"lease_uuid": str(LEASE), "quantity": 10**30}]}),
        (wire.Row, {"lease_uuid": str(LEASE), "fail_count": 10**30}),
        (wire.Row, {"lease_uuid": str(LEASE), "terminal_budget": {"consecutive_failures": -(10**30)}}),
        (wire.Info, {"instances": [{"instance_index": 2**31}]}),
    ],
)
def test_a_number_that_can_not_be_kept_or_told_makes_an_answer_malformed(kind, body):
    with pytest.raises(msgspec.ValidationError):
        wire.decode(json.dumps(body).encode(), kind)


def test_a_release_has_a_version_that_can_be_told():
    with pytest.raises(ValueError, match="version"):
        read_releases(b'[{"version": 2147483648}]')


def test_the_largest_numbers_are_kept():
    found = provision(fail_count=2**31 - 1, items=[{"sku": "s", "quantity": 2**63 - 1}])
    assert (found.fail_count, found.items[0].quantity) == (2**31 - 1, 2**63 - 1)


@pytest.mark.parametrize(("port", "text"), [("8080", "8080"), (8080, "8080"), (None, ""), ("", ""), (-1, "-1")])
def test_a_port_may_be_a_number(port, text):
    info = wire.to_info(msgspec.convert({"ports": {"80/tcp": {"host_port": port}}}, wire.Info))
    assert info.ports["80/tcp"].host_port == text


@pytest.mark.parametrize(
    ("body", "kind", "same"),
    [
        (
            b'{"lease_uuid":"%b","fail_count":null,"status":null,"items":[{"sku":null}]}',
            wire.Row,
            b'{"lease_uuid":"%b","items":[{}]}',
        ),
        (
            b'{"host":"h","ports":{"1":null},"metadata":{"a":null,"b":"c"}}',
            wire.Info,
            b'{"host":"h","ports":{},"metadata":{"b":"c"}}',
        ),
        (
            b'{"services":{"web":{"instances":[{"instance_index":null}]}}}',
            wire.Info,
            b'{"services":{"web":{"instances":[{}]}}}',
        ),
    ],
)
def test_a_null_is_absent_wherever_it_stands(body, kind, same):
    lease = str(LEASE).encode()
    body, same = (text % lease if b"%b" in text else text for text in (body, same))
    assert wire.decode(body, kind) == wire.decode(same, kind)


@pytest.mark.parametrize(
    "body", [b"null", b"[]", b'{"lease_uuid":null}', b'{"lease_uuid":"x"}', b"{", b'{"fail_count":"1"}']
)
def test_what_is_no_row_stays_none(body):
    with pytest.raises(msgspec.MsgspecError):
        wire.decode(body, wire.Row)


def test_a_page_without_its_list_is_no_page():
    with pytest.raises(ValueError, match="provisions"):
        wire.decode(b'{"provisions":null}', wire.ProvisionsPage)


def test_nothing_is_remembered_of_a_provider():
    tracemalloc.start()
    try:
        for number in range(100):
            for text in (f"{number}" + "x" * 100_000, "{" * 100_000 + str(UUID(int=number))):
                provision(provider_uuid=text)
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()
