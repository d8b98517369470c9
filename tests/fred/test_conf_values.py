"""The syntax of single values."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fred.conf import values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("1h30m", timedelta(minutes=90)),
        ("1.5h", timedelta(minutes=90)),
        (".5s", timedelta(milliseconds=500)),
        ("90s", timedelta(seconds=90)),
        ("-1m", timedelta(minutes=-1)),
        ("+2s", timedelta(seconds=2)),
        ("10us", timedelta(microseconds=10)),
        ("10µs", timedelta(microseconds=10)),
        ("10μs", timedelta(microseconds=10)),
        ("2000ns", timedelta(microseconds=2)),
        ("0", timedelta(0)),
        ("0s", timedelta(0)),
        (0, timedelta(0)),
    ],
)
def test_durations_are_go_durations(text, expected):
    assert values.parse_duration(text) == expected


@pytest.mark.parametrize(
    "text", ["14d", "1w", "10 s", "5", "PT5M", "", "s", "1h ", "1.2.3s", "1e3s", "--1s", None, True, 60, 1.5]
)
def test_a_duration_without_a_unit_or_with_another_syntax_is_refused(text):
    with pytest.raises(ValueError, match=r"duration|unit"):
        values.parse_duration(text)


def test_a_duration_below_a_microsecond_is_refused():
    with pytest.raises(ValueError, match="below one microsecond"):
        values.parse_duration("999ns")


def test_a_duration_go_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="longer"):
        values.parse_duration("9999999h")


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        (timedelta(hours=2), "2h0m0s"),
        (timedelta(minutes=1, seconds=1.5), "1m1.5s"),
        (timedelta(milliseconds=500), "500ms"),
        (timedelta(microseconds=1500), "1.5ms"),
        (timedelta(microseconds=3), "3µs"),
        (timedelta(0), "0s"),
        (timedelta(seconds=-90), "-1m30s"),
    ],
)
def test_durations_are_printed_as_go_prints_them(duration, expected):
    assert values.format_duration(duration) == expected


@given(st.timedeltas(min_value=timedelta(days=-1000), max_value=timedelta(days=1000)))
def test_what_is_printed_is_read_back(duration):
    assert values.parse_duration(values.format_duration(duration)) == duration


@pytest.mark.parametrize("text", ["1", "t", "T", "true", "TRUE", "True", True, 1])
def test_true(text):
    assert values.parse_bool(text) is True


@pytest.mark.parametrize("text", ["0", "f", "F", "false", "FALSE", "False", False, 0])
def test_false(text):
    assert values.parse_bool(text) is False


@pytest.mark.parametrize("text", ["enabled", "yes", "on", "tRUE", "", "2", 2, None])
def test_unknown_booleans_are_refused_not_taken_for_false(text):
    with pytest.raises(ValueError, match="boolean"):
        values.parse_bool(text)


@pytest.mark.parametrize("value", ["1.0", "x", "", 1.0, True, None, "0x10", "1_000"])
def test_integers_are_decimal_and_whole(value):
    with pytest.raises(ValueError, match="integer"):
        values.parse_int(value)


@pytest.mark.parametrize("value", ["nan", "NaN", "inf", "-inf", float("nan"), float("inf")])
def test_floats_are_finite(value):
    with pytest.raises(ValueError, match="must"):
        values.parse_float(value)


@pytest.mark.parametrize(("value", "expected"), [("1e3", 1000.0), ("-.5", -0.5), (2, 2.0), ("7.", 7.0)])
def test_floats_may_have_an_exponent(value, expected):
    assert values.parse_float(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [("a, b ,,c", ("a", "b", "c")), ('["a", " b "]', ("a", "b")), ("[]", ()), (["x", ""], ("x",)), ("", ())],
)
def test_lists_are_commas_json_or_yaml(value, expected):
    assert values.parse_list(value) == expected


@pytest.mark.parametrize("value", ['["a", 1]', "[a]", 5, ["a", 1], {"a": 1}])
def test_lists_hold_text_only(value):
    with pytest.raises(ValueError, match=r"list|text|JSON"):
        values.parse_list(value)


@pytest.mark.parametrize("value", ["10.5umfx", "100", "umfx", "-1umfx", "1 umfx", 100])
def test_coins_are_an_integer_and_a_denom(value):
    with pytest.raises(ValueError, match="coin"):
        values.parse_coin(value)


def test_a_coin_is_read_and_written():
    coin = values.parse_coin("10000000umfx")
    assert coin == (10_000_000, "umfx")
    assert str(coin) == "10000000umfx"


@pytest.mark.parametrize("value", ["10.0.0.0/33", "proxy.example", "10.0.0.1/8/9"])
def test_a_bad_proxy_refuses_the_list(value):
    with pytest.raises(ValueError, match="CIDR"):
        values.parse_networks(f"10.0.0.1,{value}")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(":8080", ("", 8080)), ("localhost:9090", ("localhost", 9090)), ("[::1]:80", ("::1", 80)), ("a:0", ("a", 0))],
)
def test_host_and_port(value, expected):
    assert values.split_host_port(value) == expected


@pytest.mark.parametrize("value", ["localhost", "::1:80", "a:", "a:x", "a:70000", "a:-1", "a:٣"])
def test_bad_host_and_port(value):
    with pytest.raises(ValueError, match=r"port|colons"):
        values.split_host_port(value)
