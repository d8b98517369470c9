"""Tenant tokens against the vectors, and what the vectors leave open."""

import base64
import gc
import hashlib
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leases.chain.keys import SigningKey
from tenants_api import tokens
from tests.tenants_api.vectors import ALICE, BOB, KEYS, LEASE, VECTORS, vector

ALICE_KEY = SigningKey.from_hex(KEYS["alice"]["private_key_hex"])
VERIFY = {"access": tokens.access_token, "payload": tokens.payload_token}


def outcome(entry):
    """Return the stage at which a vector is refused, or its replay key."""
    try:
        token = VERIFY[entry["variant"]](entry["token"], prefix=entry["bech32_prefix"], now=entry["now"])
    except tokens.InvalidToken as error:
        return error.stage
    if token.lease_uuid != entry["request_path_lease_uuid"]:
        return "lease_match"
    if token.meta_hash is not None and token.meta_hash.hex() != entry["lease_meta_hash_hex"].lower():
        return "meta_hash_match"
    return token.replay_key


@pytest.mark.parametrize("entry", VECTORS["accept"], ids=lambda entry: f"TA-1 {entry['id']} {entry['why']}")
def test_a_good_token_is_accepted(entry):
    assert outcome(entry) == entry["expect"]["replay_key"]


@pytest.mark.parametrize("entry", VECTORS["reject"], ids=lambda entry: f"TA-1 {entry['id']} {entry['why']}")
def test_a_bad_token_is_refused_at_its_stage(entry):
    assert outcome(entry) == entry["expect"]["stage"]


@pytest.mark.parametrize("entry", VECTORS["authorization_headers"], ids=lambda entry: f"TA-2 {entry['header']!r}")
def test_the_header_yields_its_token_text_or_nothing(entry):
    if entry["extracted"] is None:
        with pytest.raises(tokens.InvalidToken):
            tokens.bearer(entry["header"])
    else:
        assert tokens.bearer(entry["header"]) == entry["extracted"]


def test_a_missing_header_is_not_authenticated():
    with pytest.raises(tokens.InvalidToken):
        tokens.bearer(None)


@pytest.mark.parametrize("entry", VECTORS["sign_docs"], ids=lambda entry: f"TA-3 {entry['message_utf8']!r:.20}")
def test_the_sign_document_is_byte_for_byte_that_of_the_wallets(entry):
    document = tokens.sign_document(base64.b64decode(entry["message_base64"]), entry["signer"])
    assert document.decode() == entry["sign_doc_bytes_utf8"]
    assert hashlib.sha256(document).hexdigest() == entry["sha256_hex"]


@pytest.mark.parametrize(
    "entry", [entry for entry in VECTORS["accept"] if entry["id"] in {"acc-01", "acc-04", "pay-01", "pay-04"}]
)
def test_minted_tokens_are_those_of_the_vectors(entry):
    fields = json.loads(entry["token_json"])
    key = SigningKey.from_hex(KEYS[entry["key"]]["private_key_hex"])
    text = tokens.mint(
        key,
        tenant=fields["tenant"],
        lease_uuid=fields["lease_uuid"],
        timestamp=fields["timestamp"],
        meta_hash=fields.get("meta_hash"),
    )
    assert json.loads(base64.b64decode(text)) == fields


def test_a_token_that_was_good_is_looked_at_again():
    entry = vector("acc-01")
    for _ in range(2):
        assert outcome(entry) == entry["expect"]["replay_key"]
    for now in (1790000031, 1789999989):
        with pytest.raises(tokens.InvalidToken, match=r"expired|ahead"):
            tokens.access_token(entry["token"], prefix="manifest", now=now)
    with pytest.raises(tokens.InvalidToken, match="another address"):
        tokens.access_token(entry["token"], prefix="other", now=entry["now"])


def test_nothing_long_is_remembered_of_a_good_token():
    text = tokens.mint(ALICE_KEY, tenant=ALICE, lease_uuid="x" * 10_000, timestamp=1790000000)
    fields = json.loads(base64.b64decode(text))
    fields |= {name: "\n" * 10_000 + fields[name] for name in ("pub_key", "signature")}
    text = base64.b64encode(json.dumps(fields).encode()).decode()
    tokens._proof.cache_clear()
    tokens._key_and_address.cache_clear()
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(2):
            tokens.access_token(text, prefix="manifest", now=1790000005)
        assert tokens._proof.cache_info().hits == 1
        assert tracemalloc.get_traced_memory()[0] < 5_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tenant", BOB),
        ("lease_uuid", "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5c"),
        ("timestamp", 1790000001),
        ("pub_key", KEYS["bob"]["public_key_base64"]),
    ],
)
def test_a_signature_that_was_good_proves_nothing_else(field, value):
    assert outcome(vector("acc-01"))
    fields = json.loads(vector("acc-01")["token_json"]) | {field: value}
    text = base64.b64encode(json.dumps(fields).encode()).decode()
    for _ in range(2):
        with pytest.raises(tokens.InvalidToken, match="does not match"):
            tokens.access_token(text, prefix="manifest", now=1790000005)


def test_a_spent_token_is_remembered_until_no_host_of_ours_takes_it():
    token = tokens.access_token(vector("acc-01")["token"], prefix="manifest", now=1790000005)
    assert token.spent_until == 1790000000 + 30 + 5


@pytest.mark.parametrize("r_s", [(0, 1), (1, 0), (tokens._ORDER, 1), (1, tokens._ORDER), (2**256 - 1, 2**256 - 1)])
def test_a_signature_outside_the_group_is_refused(r_s):
    fields = json.loads(vector("acc-01")["token_json"])
    fields["signature"] = base64.b64encode(b"".join(part.to_bytes(32, "big") for part in r_s)).decode()
    text = base64.b64encode(json.dumps(fields).encode()).decode()
    with pytest.raises(tokens.InvalidToken, match="out of range"):
        tokens.access_token(text, prefix="manifest", now=1790000005)


@pytest.mark.parametrize("meta_hash", [5, None, ["x"], {"a": 1}, True, "zz"])
def test_an_access_token_may_carry_a_meta_hash_of_any_type(meta_hash):
    fields = json.loads(vector("acc-01")["token_json"]) | {"meta_hash": meta_hash}
    text = base64.b64encode(json.dumps(fields).encode()).decode()
    assert tokens.access_token(text, prefix="manifest", now=1790000005).meta_hash is None


@given(timestamp=st.integers(-(2**63), 2**63 - 1))
def test_no_timestamp_breaks_the_check(timestamp):
    text = tokens.mint(ALICE_KEY, tenant=ALICE, lease_uuid=LEASE, timestamp=timestamp)
    if -10 <= 1790000005 - timestamp <= 30:
        assert tokens.access_token(text, prefix="manifest", now=1790000005).timestamp == timestamp
    else:
        with pytest.raises(tokens.InvalidToken):
            tokens.access_token(text, prefix="manifest", now=1790000005)


@given(text=st.one_of(st.text(), st.binary().map(lambda raw: base64.b64encode(raw).decode())))
def test_no_text_raises_anything_else(text):
    with pytest.raises(tokens.InvalidToken):
        tokens.access_token(text, prefix="manifest", now=1790000005)


@given(value=st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
@pytest.mark.parametrize("field", ["tenant", "lease_uuid", "timestamp", "pub_key", "signature"])
def test_no_value_in_a_field_raises_anything_else(field, value):
    fields = json.loads(vector("acc-01")["token_json"])
    if fields[field] == value:
        return
    fields[field] = value
    text = base64.b64encode(json.dumps(fields).encode()).decode()
    with pytest.raises(tokens.InvalidToken):
        tokens.access_token(text, prefix="manifest", now=1790000005)
