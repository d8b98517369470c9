"""The request signature, both directions, against published vectors."""

import base64
import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fred import signing
from fred.signing import Failure

VECTORS = json.loads((Path(__file__).parents[2] / "fixtures/vectors/hmac.json").read_text())["vectors"]
SECRET = "0123456789abcdef0123456789abcdef"
LEASE_BODY = b'{"lease_uuid":"0199c1d2-3e4f-7a5b-8c6d-7e8f90a1b2c3"}'
MAC = "dcb9d2cc56208226025c202d3b98cbd8a22fb0ac3fbda1e1e19f3dbdd07e6af8"
HEADER = f"t=1760000000,sha256={MAC}"


def check(
    header, *, now=1760000000.0, keys=(SECRET,), method="POST", target="/deprovision", body=LEASE_BODY, prefix=""
):
    return signing.verify(header, keys=keys, now=now, method=method, target=target, body=body, prefix=prefix)


@pytest.mark.parametrize("vector", [v for v in VECTORS if "sign" in v], ids=lambda v: v["id"])
def test_vector_signs_to_the_same_header(vector):
    asked = vector["sign"]
    header = signing.sign(
        asked["secret"],
        timestamp=asked["timestamp"],
        method=asked["method"],
        target=asked["uri"],
        body=base64.b64decode(asked["body_base64"]),
    )
    assert header == asked["header_value"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["id"])
def test_vector_verifies_to_the_same_verdict(vector):
    got = vector["verify"]
    verdict = signing.verify(
        got["header_value"],
        keys=[got["secret"]],
        now=got["now"],
        method=got["method"],
        target=got["request_target"],
        body=base64.b64decode(got["body_base64"]),
        prefix=got["canonical_path_prefix"],
    )
    expected = vector["expect"]
    assert (verdict.ok, verdict.failure) == (expected["verdict"] == "accept", expected.get("stage"))


def test_bc1_signs_a_post():
    assert signing.sign(SECRET, timestamp=1760000000, method="POST", target="/deprovision", body=LEASE_BODY) == HEADER


@pytest.mark.parametrize("body", [b"", None], ids=["empty", "none"])
def test_bc2_no_body_signs_like_an_empty_one(body):
    target = "/provisions?lease_uuid=0199c1d2-3e4f-7a5b-8c6d-7e8f90a1b2c3"
    extra = {} if body is None else {"body": body}
    header = signing.sign(SECRET, timestamp=1760000000, method="GET", target=target, **extra)
    assert header.endswith("9d9d46fa11e4d562ef97f859149dbce66a94147387bd1e6b537da9232d6c2bb8")


@pytest.mark.parametrize(
    ("now", "failure"),
    [
        (1760000300, None),
        (1760000300.001, Failure.EXPIRED),
        (1760000301, Failure.EXPIRED),
        (1759999940, None),
        (1759999939, Failure.FUTURE),
    ],
)
def test_bc3_freshness_is_exact(now, failure):
    assert check(HEADER, now=now).failure == failure


def test_bc4_blanks_and_upper_case_digits_are_fine():
    assert check(f" t=1760000000 , sha256={MAC.upper()} ").ok


@pytest.mark.parametrize(
    ("header", "failure"),
    [
        (None, Failure.MISSING),
        ("", Failure.MISSING),
        (f"{HEADER},v=1", Failure.ENCODING),
        (HEADER[:-1], Failure.ENCODING),
        (HEADER[:-2], Failure.MISMATCH),
        (f"t=1760000000,sha256={MAC[:32]} {MAC[32:]}", Failure.ENCODING),
        (f"t=1760000000,sha256=\u0661{MAC[1:]}", Failure.ENCODING),
        (f"sha256={MAC},t=1760000000", Failure.FORMAT),
        ("t=17.6,sha256=00", Failure.FORMAT),
        (f"t=1_760_000_000,sha256={MAC}", Failure.FORMAT),
        (f"t=\u0661760000000,sha256={MAC}", Failure.FORMAT),
        (f"t={'9' * 5000},sha256={MAC}", Failure.FORMAT),
        ("junk", Failure.FORMAT),
    ],
)
def test_bc5_broken_headers_are_refused(header, failure):
    assert check(header).failure == failure


@pytest.mark.parametrize(
    "other", [{"target": "/provision"}, {"method": "post"}, {"target": "/deprovision?x=1"}, {"body": LEASE_BODY + b" "}]
)
def test_bc6_a_signature_is_good_for_one_request_only(other):
    assert check(HEADER, **other).failure == Failure.MISMATCH


@given(
    body=st.binary(max_size=200), target=st.text(st.characters(codec="utf-8"), max_size=40), at=st.integers(0, 2**40)
)
def test_bc7_any_bytes_sign_and_verify(body, target, at):
    header = signing.sign(SECRET, timestamp=at, method="POST", target=target, body=body)
    assert check(header, now=at, target=target.encode(), body=body).ok


def test_bc8_keys_that_hmac_cannot_tell_apart_are_equivalent():
    long = b"k" * 70
    digest = hashlib.sha256(long).digest()
    assert signing.equivalent(SECRET, SECRET + "\0")
    assert signing.equivalent(long, digest)
    assert not signing.equivalent(SECRET, SECRET.upper())


def test_bc9_either_key_of_a_rotation_verifies_and_is_named():
    header = signing.sign("n" * 32, timestamp=1760000000, method="POST", target="/deprovision", body=LEASE_BODY)
    assert check(header, keys=[SECRET, "n" * 32]).matched == (1,)
    assert check(HEADER, keys=[SECRET, "n" * 32]).matched == (0,)
    assert check(HEADER, keys=[SECRET, "n" * 32, SECRET]).matched == (0, 2)


def test_bc11_the_prefix_a_proxy_stripped_is_put_back():
    body = b'{"lease_uuid":"0199c1d2-3e4f-7a5b-8c6d-7e8f90a1b2c3","status":"success","backend":"k3s-1"}'
    target = "/callbacks/provision?operation_id=4b0f7a3e-2c1d-4e5f-8a9b-0c1d2e3f4a5b"
    header = "t=1760000000,sha256=7d69e4c697240b5d4f7a764844e4578a658f0f327b8777da76fe020945f7f0c6"
    assert check(header, target=target, body=body, prefix="/fred").ok
    assert check(header, target=target, body=body).failure == Failure.MISMATCH


def test_key_id_is_short_and_stable():
    assert signing.key_id(SECRET) == "a4651f6d303c"


def test_a_bad_encoding_counts_as_a_bad_format():
    assert Failure.ENCODING.label == "format"
    assert Failure.FUTURE.label == "future"
