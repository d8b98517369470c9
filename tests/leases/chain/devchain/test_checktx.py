"""CheckTx: what a node refuses before a transaction reaches its mempool, with its codes and texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leases.chain import devchain as simulated
from leases.chain.devchain.keys import Key, named_key
from leases.chain.devchain.records import Account
from leases.chain.proto import bank_pb2, billing_pb2, tx_pb2
from tests.devchain_fixture import Wallet

VECTORS = json.loads((Path(__file__).parents[4] / "fixtures/vectors/chain.json").read_text())
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


@pytest.fixture(scope="module")
def chain():
    with simulated.run(block_mode="manual") as chain:
        yield chain


@pytest.fixture
def wallet(chain):
    return Wallet.of(chain, "provider")


@pytest.fixture
def lease(chain):
    return chain.create_lease()


def refusal(chain, raw):
    checked = chain.broadcast(raw)
    return checked.codespace, checked.code, checked.log


def test_a_sound_transaction_is_accepted_and_its_bytes_are_remembered(chain, wallet, lease):
    """CH-144: again before its block, again after it."""
    raw = wallet.ack([lease])
    assert chain.broadcast(raw).code == 0
    assert refusal(chain, raw) == ("sdk", 19, "")
    chain.produce_block()
    assert refusal(chain, raw) == ("sdk", 19, "")
    assert chain.state_of(lease) == 2


def test_a_refused_transaction_is_checked_again(chain, wallet, lease):
    """CH-144"""
    raw = wallet.ack([lease], sequence=wallet.sequence + 1)
    assert refusal(chain, raw)[1] == 32
    assert chain.broadcast(wallet.ack([lease])).code == 0
    assert chain.broadcast(raw).code == 0
    chain.produce_block()


def high_s(key: Key):
    def sign(document: bytes) -> bytes:
        signature = key.sign(document)
        return signature[:32] + (ORDER - int.from_bytes(signature[32:], "big")).to_bytes(32, "big")

    return sign


UNVERIFIED = (
    "signature verification failed; please verify account number (2) and chain-id (manifest-localnet): "
    "(unable to verify single signer signature): unauthorized"
)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"chain_id": "other"}, ("sdk", 4, UNVERIFIED), id="CH-143 another chain's id"),
        pytest.param({"number": 77}, ("sdk", 4, UNVERIFIED), id="another account number"),
        pytest.param({"signature": lambda _: bytes(64)}, ("sdk", 4, UNVERIFIED), id="no signature at all"),
        pytest.param({"signature": lambda _: b"short"}, ("sdk", 4, UNVERIFIED), id="too short"),
        pytest.param({"signature": named_key("t1").sign}, ("sdk", 4, UNVERIFIED), id="another key's signature"),
        pytest.param(
            {"gas": 1000},
            ("sdk", 11, "out of gas in location: ReadPerByte; gasWanted: 1000, gasUsed: 1003: out of gas"),
            id="gas too low for the checks",
        ),
        pytest.param(
            {"memo": "m" * 300},
            ("sdk", 12, "maximum number of characters is 256 but received 300 characters: memo too large"),
            id="memo too long",
        ),
    ],
)
def test_refused(chain, wallet, lease, changes, expected):
    assert refusal(chain, wallet.ack([lease], **changes)) == expected


def test_a_signature_in_the_upper_half_is_refused(chain, wallet, lease):
    """CH-143"""
    assert refusal(chain, wallet.ack([lease], signature=high_s(wallet.key)))[:2] == ("sdk", 4)


@pytest.mark.parametrize("off", [-1, 3])
def test_a_wrong_sequence_names_the_expected_one(chain, lease, off):
    chain.broadcast(Wallet.of(chain, "provider").ack([lease], memo="earlier"))
    chain.produce_block()
    wallet = Wallet.of(chain, "provider")
    given = wallet.sequence + off
    text = f"account sequence mismatch, expected {wallet.sequence}, got {given}: incorrect account sequence"
    assert refusal(chain, wallet.ack([lease], sequence=given)) == ("sdk", 32, text)


def test_the_mempool_counts_sequences_on(chain):
    """A second transaction of an account enters before the first is in a block."""
    wallet, leases = Wallet.of(chain, "provider"), chain.create_leases(3)
    for step, lease in enumerate(leases):
        assert chain.broadcast(wallet.ack([lease], sequence=wallet.sequence + step)).code == 0
    chain.produce_block()
    assert [chain.state_of(lease) for lease in leases] == [2, 2, 2]


def test_a_time_out_height_in_the_past_is_refused(chain, wallet, lease):
    chain.produce_block(count=3)
    text = f"block height: {chain.height}, timeout height: 2: tx timeout height"
    assert refusal(chain, wallet.ack([lease], timeout_height=2)) == ("sdk", 30, text)
    assert chain.broadcast(wallet.ack([lease], timeout_height=chain.height)).code == 0


def test_a_message_in_anothers_name_is_refused_by_its_key(chain, lease):
    stranger = Wallet.of(chain, "t0")
    provider = chain.keys["provider"].address
    raw = stranger.sign(billing_pb2.MsgAcknowledgeLease(sender=provider, lease_uuids=[lease]))
    text = f"pubKey does not match signer address {provider} with signer index: 0: invalid pubkey"
    assert refusal(chain, raw) == ("sdk", 8, text)


def test_an_unknown_payer_is_refused(chain, lease):
    nobody = Wallet(named_key("nobody-has-this"), chain.chain_id)
    assert refusal(chain, nobody.ack([lease]))[:2] == ("sdk", 9)


def test_an_unknown_message_type_is_refused(chain, wallet):
    body = tx_pb2.TxBody()
    body.messages.add(type_url="/liftedinit.billing.v1.MsgNope")
    raw = tx_pb2.TxRaw(body_bytes=body.SerializeToString(), signatures=[bytes(64)]).SerializeToString()
    text = "unable to resolve type URL /liftedinit.billing.v1.MsgNope: tx parse error"
    assert refusal(chain, raw) == ("sdk", 2, text)


@pytest.mark.parametrize("raw", [b"\xff\xff", b"\x22\x01a"], ids=["broken bytes", "an unknown field"])
def test_what_does_not_parse_is_refused(chain, raw):
    assert refusal(chain, raw)[:2] == ("sdk", 2)


def test_two_signers_in_one_transaction_are_refused(chain, wallet):
    sends = [
        bank_pb2.MsgSend(
            from_address=chain.keys[name].address, to_address=wallet.address, amount=[{"denom": "umfx", "amount": "1"}]
        )
        for name in ("provider", "t0")
    ]
    assert refusal(chain, wallet.sign(*sends))[:2] == ("sdk", 4)


@pytest.mark.parametrize(
    ("uuids", "text"),
    [
        ([], "lease_uuids cannot be empty: invalid lease"),
        (["nope"], "lease_uuids[0] invalid format: nope: invalid lease"),
        (["01902A9B-1234-7000-8000-000000000001"], None),
        (["01902a9b-1234-4000-8000-000000000001"], None),
        (["01902a9b-1234-7000-8000-000000000001"] * 2, None),
        ([f"01902a9b-1234-7000-8000-{number:012x}" for number in range(101)], None),
    ],
    ids=["none", "no uuid", "upper case", "version 4", "twice", "101"],
)
def test_the_form_of_lease_lists_is_checked(chain, wallet, uuids, text):
    """CH-132"""
    codespace, code, log = refusal(chain, wallet.ack(uuids))
    assert (codespace, code) == ("billing", 9)
    assert text in (None, log)


def test_withdraw_takes_one_mode_and_a_limit(chain, wallet, lease):
    """CH-140"""
    both = billing_pb2.MsgWithdraw(sender=wallet.address, lease_uuids=[lease], provider_uuid=chain.provider_uuid)
    text = "cannot specify both lease_uuids and provider_uuid: invalid request"
    assert refusal(chain, wallet.sign(both)) == ("billing", 25, text)
    much = billing_pb2.MsgWithdraw(sender=wallet.address, provider_uuid=chain.provider_uuid, limit=101)
    assert refusal(chain, wallet.sign(much))[:2] == ("billing", 9)


def test_a_fee_below_the_minimum_uses_no_sequence():
    """CH-143"""
    with simulated.run(fixture="scenario", block_mode="manual") as chain:
        wallet = Wallet.of(chain, "t0")
        message = bank_pb2.MsgSend(
            from_address=wallet.address, to_address=chain.keys["t1"].address, amount=[{"denom": "umfx", "amount": "1"}]
        )
        expected = "insufficient fees; got: 10umfx required: 2000000umfx: insufficient fee"
        assert refusal(chain, wallet.sign(message, fee=10)) == ("sdk", 13, expected)
        expected = "insufficient fees; got:  required: 2000000umfx: insufficient fee"
        assert refusal(chain, wallet.sign(message)) == ("sdk", 13, expected)
        assert chain.broadcast(wallet.sign(message, fee=2_000_000)).code == 0


SKIPPED = {"large_sequence_and_gas", "go_golden_ack_seq7"}


@pytest.mark.parametrize("entry", [e for e in VECTORS["txs"] if e["name"] not in SKIPPED], ids=lambda e: e["name"])
def test_every_recorded_transaction_is_accepted_under_its_account(entry):
    """The bytes another implementation made pass every check, and with another sequence the answer names theirs."""
    with simulated.run(block_mode="manual") as chain:
        address, sequence = entry["signer"]["address"], int(entry["sequence"])
        account = Account(address, int(entry["account_number"]), sequence)

        def place(value):
            state = chain.node.chain.state
            state.accounts[address] = value
            state.add(address, (("umfx", 10**12), (VECTORS_PWR, 10**12)))
            chain.node.chain.check_sequences.clear()

        raw = bytes.fromhex(entry["tx_raw_hex"])
        chain.call(lambda: place(account._replace(sequence=sequence + 1)))
        if sequence + 1 < 2**64:
            assert f"expected {sequence + 1}, got {sequence}" in chain.broadcast(raw).log
        chain.call(lambda: place(account))
        timeout = int(entry.get("timeout_height") or 0)
        assert timeout == 0 or chain.height <= timeout
        checked = chain.broadcast(raw)
        assert (checked.code, checked.log) == (0, "")
        assert checked.hash == entry["tx_hash"]


VECTORS_PWR = "factory/manifest1afk9zr2hn2jsac63h4hm60vl9z3e5u69gndzf7c99cqge3vzwjzsfmy9qj/upwr"
