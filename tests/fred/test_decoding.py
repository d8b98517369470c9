"""The decoder takes and refuses exactly what the peers' decoder does."""

import re
from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fred.decoding import DecodeError, decode_base64, decode_object, decode_uuid

FIELDS = {"name": str, "count": int, "data": bytes, "flag": bool}
ZERO = {"name": "", "count": 0, "data": b"", "flag": False}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(b"{}", {}, id="an empty object leaves zero values"),
        pytest.param(b"null", {}, id="null is an empty object"),
        pytest.param(b'{"name":null,"count":null,"data":null,"flag":null}', {}, id="null leaves a field as it is"),
        pytest.param(b'{"name":"a","name":null}', {"name": "a"}, id="a later null changes nothing"),
        pytest.param(b'{"data":"aGk=","data":null}', {}, id="a later null empties bytes"),
        pytest.param(b'{"name":"a","name":"b"}', {"name": "b"}, id="the last of two wins"),
        pytest.param(b'{"NAME":"a"}', {"name": "a"}, id="letter case of a name does not matter"),
        pytest.param(b'{"other":{"name":[1,2.5e9]}}', {}, id="unknown members are skipped"),
        pytest.param(b' {"count" : -0 } \n', {"count": 0}, id="white space around"),
        pytest.param(b'{"count":9223372036854775807}', {"count": 2**63 - 1}, id="the largest integer"),
        pytest.param(b'{"count":-9223372036854775808}', {"count": -(2**63)}, id="the smallest integer"),
        pytest.param(b'{"name":"\xff"}', {"name": "\ufffd"}, id="bytes that are no UTF-8 are replaced"),
        pytest.param(b'{"name":"\\ud800x"}', {"name": "\ufffdx"}, id="half a surrogate pair is replaced"),
        pytest.param('{"name":"é\\ud83d\\ude00"}'.encode(), {"name": "é😀"}, id="a surrogate pair is one letter"),
        pytest.param(b'{"data":"dGVz\\ndA=="}', {"data": b"test"}, id="line ends inside base64 are skipped"),
        pytest.param(b'{"data":"dGVzdB=="}', {"data": b"test"}, id="spare bits are ignored"),
        pytest.param(b'{"data":[104,105]}', {"data": b"hi"}, id="bytes as a list of numbers"),
        pytest.param(b'{"flag":true}', {"flag": True}, id="a boolean"),
    ],
)
def test_is_read(text, expected):
    assert decode_object(text, FIELDS) == ZERO | expected


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'"x"',
        b"5",
        b"{",
        b'{"name":"a"} x',
        b'{"name":"a"}{}',
        b'\xef\xbb\xbf{"name":"a"}',
        '{"name":"a"}'.encode("utf-16"),
        b'{"name":5}',
        b'{"name":5,"name":"a"}',
        b'{"name":NaN}',
        b'{"other":Infinity}',
        b'{"name":"a",}',
        b'{"name":"a"/*x*/}',
        b"{'name':'a'}",
        b'{"name":"\n"}',
        b'{"count":1.0}',
        b'{"count":1e3}',
        b'{"count":"1"}',
        b'{"count":true}',
        b'{"count":9223372036854775808}',
        b'{"count":' + b"9" * 10_000 + b"}",
        b'{"count":01}',
        b'{"data":"dGVzdA"}',
        b'{"data":"-_8="}',
        b'{"data":"dG Vz"}',
        b'{"data":[256]}',
        b'{"data":["a"]}',
        b'{"flag":1}',
        b'{"flag":"true"}',
        b"[" * 100_000,
    ],
)
def test_is_refused(text):
    with pytest.raises(DecodeError):
        decode_object(text, FIELDS)


@pytest.mark.parametrize("text", [b'{"name":"a","name":"a"}', b'{"Name":"a"}', b'{"name":null,"name":"a"}', b"null"])
def test_strict_refuses_what_could_be_read_two_ways(text):
    decode_object(text, FIELDS)
    with pytest.raises(DecodeError):
        decode_object(text, FIELDS, strict=True)


def test_strict_takes_plain_objects_with_unknown_members():
    assert decode_object(b'{"name":"a","Other":1,"Other":2}', FIELDS, strict=True)["name"] == "a"


@pytest.mark.parametrize("text", ["=", "A===", "AA=", "AAA==", "AAAA=", "AA==AA==", "AAAAA", "ÄAAA", "AAA\u2028A"])
def test_base64_of_another_form_is_refused(text):
    with pytest.raises(DecodeError):
        decode_base64(text)


BY_QUADS = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


@given(st.text("Aa0+/=\n\r-_ \xc4", max_size=13) | st.binary(max_size=50).map(lambda raw: b64encode(raw).decode()))
def test_base64_is_quads_of_which_the_last_may_be_padded(text):
    bare = text.replace("\n", "").replace("\r", "")
    if BY_QUADS.fullmatch(bare):
        assert decode_base64(text) == b64decode(bare)
    else:
        with pytest.raises(DecodeError):
            decode_base64(text)


@pytest.mark.parametrize(
    "text",
    [
        "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b",
        "0190A1B2-C3D4-7E5F-8A9B-0C1D2E3F4A5B",
        "URN:uuid:0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b",
        "{0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b}",
        "x0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5by",
        "0190a1b2c3d47e5f8a9b0c1d2e3f4a5b",
    ],
)
def test_a_uuid_is_read_in_any_of_its_spellings(text):
    assert str(decode_uuid(text)) == "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not-a-uuid",
        "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5",
        "0190a1b2-c3d47-e5f-8a9b-0c1d2e3f4a5b",
        "0190a1b2c3d47e5f8a9b0c1d2e3f4a5g",
        "uri:uuid:0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b",
        "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b\n",
        "\u0660190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b",
    ],
)
def test_another_text_is_no_uuid(text):
    with pytest.raises(DecodeError):
        decode_uuid(text)


@pytest.mark.parametrize("text", [b'{"a":"x"}{"a":1}', b' \n{"a":"x"} rest', b'{"a":"x"}\x00', b'{"a":"x"}'])
def test_what_stands_after_the_object_may_be_ignored(text):
    assert decode_object(text, {"a": str}, more=True) == {"a": "x"}
    if text != b'{"a":"x"}':
        with pytest.raises(DecodeError):
            decode_object(text, {"a": str})


@pytest.mark.parametrize("text", [b"", b"  ", b"rest", b"[]x", b'"x"', b'\xef\xbb\xbf{"a":"x"}', b"NaN"])
def test_the_object_must_stand_first(text):
    with pytest.raises(DecodeError):
        decode_object(text, {"a": str}, more=True)
