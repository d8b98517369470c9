"""Attempt after attempt: which sequence and gas is signed, what is asked of the node, and how it ends."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest
from django.db.models import F
from django.db.models.functions import Now

from fred import breaker, metrics
from leases import inclusion, lane_draft, lanes, node
from leases.chain.client import Absent
from leases.models import ChainAction, ChainTx, Lease, Signer
from leases.status import LeaseState
from tests.leases.house import action_states, messages_on_chain, ours_on_chain, pending, sent, states, stored, want
from tests.leases.signers import make_due
from tests.waiting import wait_until

ACTIVE, CLOSED = int(LeaseState.ACTIVE), int(LeaseState.CLOSED)
SIMULATE = "/cosmos.tx.v1beta1.Service/Simulate"
BROADCAST = "/cosmos.tx.v1beta1.Service/BroadcastTx"


def step() -> None:
    """One run of the lanes, all pauses over."""
    make_due()
    lanes.run()


def run_until_settled() -> None:
    """Run lanes until no action is open."""

    def is_settled() -> bool:
        step()
        return not ChainAction.objects.filter(state__in=["queued", "in_tx"]).exists()

    wait_until(is_settled)


def fail_one() -> None:
    """One transaction is sent, and fails in its block; nothing is sent after it."""
    lanes.send_next()

    def has_failed() -> bool:
        make_due()
        inclusion.check_due()
        return ChainTx.objects.filter(state="failed").exists()

    wait_until(has_failed)


def mismatch(expected: str) -> str:
    return f"account sequence mismatch, expected {expected}, got 5: incorrect account sequence"


def refuse(house, code: int, text: str, times: int = 1, nth: object = None):
    """CheckTx says this."""
    match = {} if nth is None else {"nth": nth}
    return house.fault(
        "chain_error", where="chain:checktx", codespace="sdk", code=code, raw_log=text, times=times, match=match
    )


def asked(house, method: str) -> int:
    """How often a method was called."""
    return sum(number for name, number in house.counts().items() if name.endswith(f"/{method}"))


def test_the_first_attempt_reads_the_account_once_and_simulates_once(house):
    """CH-30"""
    want("ack", pending(house, 3))
    lanes.send_next()
    assert (asked(house, "Account"), asked(house, "Simulate")) == (1, 1)


@pytest.mark.parametrize("text", [mismatch("9" * 23), "incorrect account sequence"])
def test_a_mismatch_that_names_no_usable_sequence_is_read_again(house, text):
    """CH-35"""
    leases = pending(house, 1)
    want("ack", leases)
    with refuse(house, 32, text):
        step()
    run_until_settled()
    assert [tx.sequence for tx in sent(house)] == [0]
    assert states(house, leases) == [ACTIVE]


def test_of_two_mismatches_the_last_counts(house):
    """CH-37, CH-39: every attempt is signed at once with the sequence just named; nothing else is lost."""
    want("ack", pending(house, 1))
    with refuse(house, 32, mismatch("6")), refuse(house, 32, mismatch("8")):
        step()
    assert [tx.sequence for tx in sent(house)][:3] == [0, 6, 8]


def test_a_named_sequence_is_used_once(house):
    """CH-38: what follows an attempt that met silence is signed with the sequence the chain shows."""
    leases = pending(house, 1)
    want("ack", leases)
    with refuse(house, 32, mismatch("7")), house.fault("lose_request", where=BROADCAST, match={"nth": 2}):
        wait_until(lambda: (step(), ChainTx.objects.count() == 2)[-1])
    second = ChainTx.objects.get(sequence=7)
    house.produce_block(count=second.timeout_height + 3 - house.height)
    step()
    ChainTx.objects.filter(missed_at__isnull=False).update(missed_at=F("missed_at") - timedelta(seconds=5))
    run_until_settled()
    assert [(tx.sequence, tx.state) for tx in sent(house)] == [(0, "dropped"), (7, "dropped"), (0, "included")]
    assert states(house, leases) == [ACTIVE]


def test_another_programs_transactions_are_noticed_and_survived_at_the_first_push(house):
    """Somebody took three sequences between our question and our broadcast: the node names the next one."""
    leases = pending(house, 3)
    want("ack", leases)
    with house.fault("sequence_skip", where="chain:checktx", n=3, times=1):
        step()
    run_until_settled()
    assert [tx.sequence for tx in sent(house)] == [0, 3]
    assert states(house, leases) == [ACTIVE] * 3


def test_a_sequence_taken_after_the_broadcast_is_found_out_before_the_timeout_height(house):
    """The bytes wait in a mempool and another program's get into the block: the chain shows it, and no clock."""
    leases = pending(house, 3)
    want("ack", leases)
    with house.fault("never_include", times=1):
        step()
        [tx] = sent(house)
        house.call(lambda: use_sequence(house, 2))
        house.produce_block()
        step()
        assert ChainTx.objects.get().state == "broadcast", "not at once: its own index may be late"
        ChainTx.objects.update(created_at=F("created_at") - timedelta(seconds=6))
        step()
    run_until_settled()
    assert house.height < tx.timeout_height
    assert [(one.state, one.sequence) for one in sent(house)] == [("dropped", 0), ("included", 2)]
    assert states(house, leases) == [ACTIVE] * 3
    assert set(ChainAction.objects.values_list("attempts", flat=True)) == {0}


def use_sequence(house, number: int) -> None:
    """Another program signs with the provider's key."""
    state, address = house.node.chain.state, house.keys["provider"].address
    state.set(state.accounts, address, state.accounts[address]._replace(sequence=number))
    house.node.chain.mempool.clear()


def test_a_used_sequence_alone_drops_nothing(house):
    """Our own bytes used it, and the index is late: the leases are where they were wanted to be, the hash decides."""
    leases = pending(house, 3)
    want("ack", leases)
    number = house.add_fault("index_lag", blocks=50)
    step()
    for _ in range(3):
        ChainTx.objects.update(created_at=Now() - timedelta(seconds=6))
        step()
    assert [tx.state for tx in sent(house)] == ["broadcast"]
    house.remove_fault(number)
    run_until_settled()
    assert len(ours_on_chain(house)) == 1


def test_while_the_height_stands_still_the_same_bytes_are_offered_and_the_lane_says_so(house, log_events):
    """Nothing is dropped by a clock, however long the chain makes no block."""
    house.set_block_mode("manual")
    leases = pending(house, 2)
    want("ack", leases)
    step()
    [tx] = sent(house)
    inclusion._said_still.clear()
    pushes = asked(house, "BroadcastTx")
    step()
    for _ in range(3):
        ChainTx.objects.update(
            created_at=F("created_at") - timedelta(hours=1), height_since=F("height_since") - timedelta(hours=1)
        )
        step()
    assert asked(house, "BroadcastTx") >= pushes + 3
    assert [(one.tx_hash, one.state) for one in sent(house)] == [(tx.tx_hash, "broadcast")]
    assert [event for event in log_events() if event == "lane.height_stands_still"] == ["lane.height_stands_still"]
    house.set_block_mode("instant")
    house.produce_block()
    run_until_settled()
    assert states(house, leases) == [ACTIVE] * 2
    assert len(sent(house)) == 1


@pytest.fixture
def log_events(monkeypatch):
    """Names of what the lanes logged."""
    from structlog.testing import LogCapture

    capture = LogCapture()
    import structlog

    monkeypatch.setattr(inclusion, "log", structlog.wrap_logger(None, processors=[capture]))
    return lambda: [entry["event"] for entry in capture.entries]


def test_gas_climbs_by_halves_and_the_fee_with_it(house):
    """CH-40, CH-45, CH-31: from the simulated gas on; the fee is that of each."""
    want("ack", pending(house, 4))
    with house.fault("gas_factor", where=SIMULATE, factor=0.3):
        run_until_settled()
    gas = [tx.gas_limit for tx in sent(house)]
    assert gas[0] < node.provider().gas.gas_limit
    assert all(after == before + before // 2 for before, after in pairwise(gas))
    assert len(gas) >= 3
    assert [tx.fee for tx in sent(house)] == [f"{node.provider().gas.fee(one)}umfx" for one in gas]


def test_raised_gas_survives_a_wrong_sequence(house):
    """CH-43: the third has the raised gas and the sequence the node named."""
    leases = pending(house, 4)
    want("ack", leases)
    with house.fault("gas_factor", where=SIMULATE, factor=0.3, times=1):
        fail_one()
    [first] = sent(house)
    with refuse(house, 32, mismatch("5")):
        step()
    run_until_settled()
    raised = first.gas_limit + first.gas_limit // 2
    assert [(tx.sequence, tx.state) for tx in sent(house)] == [(0, "failed"), (1, "included"), (5, "dropped")]
    assert sent(house)[1].gas_limit == sent(house)[2].gas_limit >= raised
    assert states(house, leases) == [ACTIVE] * 4


def test_raised_gas_survives_silence(house):
    """CH-44: the bytes are the same."""
    want("ack", pending(house, 4))
    with house.fault("gas_factor", where=SIMULATE, factor=0.3, times=1):
        fail_one()
    with house.fault("lose_request", where=BROADCAST, times=1):
        step()
    run_until_settled()
    first, second = sent(house)[:2]
    assert second.gas_limit >= first.gas_limit + first.gas_limit // 2
    assert len(sent(house)) == 2


def test_at_the_cap_one_lease_alone_is_not_sent_again(house, settings):
    """CH-41, CH-42: it waits as a failed attempt; nothing more is paid for."""
    house.change_params()
    settings.FRED = settings.FRED.model_copy(update={"max_gas_limit": 80_000, "gas_limit": 80_000})
    want("ack", pending(house, 1))
    exhausted = metrics.OUT_OF_GAS_RETRIES.labels("exhausted")._value.get()
    with house.fault("gas_factor", where=SIMULATE, factor=0.4):
        for _ in range(6):
            step()
    assert [(tx.state, tx.code, tx.gas_limit) for tx in sent(house)][-1] == ("failed", 11, 80_000)
    number = len(sent(house))
    assert metrics.OUT_OF_GAS_RETRIES.labels("exhausted")._value.get() > exhausted
    action = ChainAction.objects.get()
    assert (action.state, action.last_error) == ("queued", "out of gas at max_gas_limit 80000")
    with house.fault("gas_factor", where=SIMULATE, factor=0.4):
        step()
    assert len(sent(house)) == number


@pytest.mark.parametrize("hidden", [False, True], ids=["CH-49 included", "CH-50 not yet included"])
def test_bytes_that_a_mempool_has_already_are_waited_for(house, hidden):
    """CH-52 too: their hash is known here, whether the node names it or not."""
    leases = pending(house, 1)
    want("ack", leases)
    with refuse(house, 19, ""):
        step()
    assert [tx.state for tx in sent(house)] == ["broadcast"]
    if hidden:
        for _ in range(3):
            step()
    ChainTx.objects.update(created_at=F("created_at") - timedelta(seconds=10))
    run_until_settled()
    assert [tx.state for tx in sent(house)] == ["included"]
    assert states(house, leases) == [ACTIVE]


def test_bytes_in_a_mempool_that_run_out_of_gas_climb_on(house):
    """CH-51"""
    leases = pending(house, 4)
    want("ack", leases)
    with house.fault("gas_factor", where=SIMULATE, factor=0.3, times=1), refuse(house, 19, ""):
        step()
    ChainTx.objects.update(created_at=F("created_at") - timedelta(seconds=10))
    run_until_settled()
    first, second = sent(house)[:2]
    assert (first.code, second.gas_limit >= first.gas_limit + first.gas_limit // 2) == (11, True)
    assert states(house, leases) == [ACTIVE] * 4


@pytest.mark.parametrize(
    ("attempts", "seconds"), [(1, 0.5), (2, 0.75), (3, 1.125), (4, 1.6875), (6, 3.796875), (7, 5.0), (20, 5.0)]
)
def test_looks_for_a_hash_come_further_and_further_apart(settings, attempts, seconds):
    """CH-53"""
    settings.FRED = settings.FRED.model_copy(update={"tx_poll_interval": timedelta(milliseconds=500)})
    tx = type("Tx", (), {"attempts": attempts})()
    assert inclusion._poll(tx).total_seconds() == pytest.approx(seconds)


def test_of_three_transactions_one_fails_and_only_its_leases_go_again(house, settings):
    """CH-61: a hundred are closed, what failed is decided again, nothing is lost."""
    settings.FRED = settings.FRED.model_copy(update={"ack_max_per_tx": 100})
    leases = pending(house, 250)
    house.ack_leases([str(one) for one in leases])
    Lease.objects.update(chain_state=ACTIVE)
    want("close", leases, reason="credit exhausted")
    with house.fault(
        "chain_error", where="chain:exec", codespace="billing", code=3, raw_log="lease not active", match={"nth": 2}
    ):
        run_until_settled()
    assert states(house, leases) == [CLOSED] * 250
    assert stored(leases) == [CLOSED] * 250
    assert action_states() == {"done": 250}
    assert [tx.state for tx in sent(house)][:3] == ["included", "failed", "included"]


def test_a_signer_is_free_again_after_an_error_and_after_a_crash(house, monkeypatch):
    """CH-78"""
    want("ack", pending(house, 2))

    def crash(*_args: object, **_how: object) -> None:
        raise RuntimeError("a bug")

    restarts = metrics.LANE_RESTARTS.labels("0")._value.get()
    monkeypatch.setattr(lanes, "draft", crash)
    with pytest.raises(RuntimeError):
        lanes.send_next()
    assert metrics.LANE_RESTARTS.labels("0")._value.get() == restarts + 1
    assert Signer.objects.filter(due_at__lte=Now()).exists()
    monkeypatch.undo()
    run_until_settled()
    assert action_states() == {"done": 2}


def test_lanes_ask_for_no_list(house):
    """LC-70: a list that cannot be read keeps nothing back; what is stored says what to send."""
    leases = pending(house, 5)
    want("ack", leases)
    with house.fault("grpc_error", where="*/LeasesByProvider", code="UNAVAILABLE", text="away"):
        run_until_settled()
    assert states(house, leases) == [ACTIVE] * 5


def test_simulations_rest_after_five_useless_answers_for_all_processes(house, valkey):
    """CH-29: the sixth is not asked; after its time one is, and a useful answer ends the rest."""
    breaker.forget()
    want("ack", pending(house, 1))
    [action] = ChainAction.objects.all()
    signer, chain = node.provider(), node.client()
    account = chain.account(signer.address)
    picks = [lane_draft.Pick(action.id, 1, action.lease_id, "ack", "", 0, 1)]

    def estimate() -> str:
        return lane_draft.Simulations().estimate(signer, chain, picks, account=account).source.value

    with house.fault("grpc_error", where=SIMULATE, code="INTERNAL", text="no"):
        assert {estimate() for _ in range(5)} == {"fallback"}
    calls = asked(house, "Simulate")
    assert estimate() == "fallback"
    assert asked(house, "Simulate") == calls
    breaker.forget()
    assert estimate() == "fallback", "another process knows it too"
    assert asked(house, "Simulate") == calls
    key = f"fred:sim:{chain.endpoint}"
    valkey.hset(key, "since", int(valkey.hget(key, "since")) - 30_000)
    breaker.forget()
    assert estimate() == "simulated"
    assert asked(house, "Simulate") == calls + 1
    assert estimate() == "simulated"


def test_an_estimate_above_the_cap_sends_nothing_and_spares_no_simulation(house, settings):
    """CH-22: refused, not broken: the breaker counts it as an answer."""
    breaker.forget()
    settings.FRED = settings.FRED.model_copy(update={"max_gas_limit": 100_000, "gas_limit": 100_000})
    want("ack", pending(house, 1))
    for _ in range(7):
        step()
    assert sent(house) == []
    assert "exceeds max_gas_limit 100000" in ChainAction.objects.get().last_error
    assert asked(house, "Simulate") >= 7


def test_a_hash_that_is_nowhere_yet_is_no_failure(house):
    """A transaction that was sent is looked for; until it is decided nothing else is signed."""
    want("ack", pending(house, 1))
    with house.fault("lose_request", where=BROADCAST):
        for _ in range(3):
            step()
    assert isinstance(node.client().tx(sent(house)[0].tx_hash), Absent)
    assert [tx.state for tx in sent(house)] == ["signed"]
    run_until_settled()
    assert len(messages_on_chain(house)) == 1
