"""What no combination of facts, however odd, may lead to."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from leases.status import TERMINAL, LeaseState
from placements.command_status import EDGES, CommandKind
from placements.command_status import CommandState as C
from placements.status import OperationState
from reconciliation.command_facts import CommandFact, MaintenanceFact, ReleaseFact
from reconciliation.decide import decide
from reconciliation.decisions import (
    Acknowledge,
    Adopt,
    Close,
    Conclude,
    EndWithLease,
    GiveUp,
    Need,
    PushCommand,
    RecordOutcome,
    Reject,
    Rest,
    SendTeardown,
    Settle,
    StartProvision,
    Wait,
)
from reconciliation.facts_types import (
    Absent,
    ActionFact,
    BackendFact,
    CallbackFact,
    ExactLease,
    HistoryFact,
    LeaseFacts,
    ListedLease,
    NotRead,
    OperationFact,
    PayloadFact,
    PlacementFact,
    ProvisionFact,
    TeardownFact,
    Unknown,
    WorldFact,
)
from tests.reconciliation.known import COMMAND, DIGEST, LEASE, LIMITS, NOW, OPERATION

S = OperationState
NAMES = ("b1", "b2", "gone")
WORDS = ("ready", "failed", "provisioning", "deprovisioning", "foo")

times = st.integers(-1300, 100).map(lambda number: NOW + timedelta(seconds=number))
maybe_time = st.none() | times
names = st.sampled_from(NAMES)
rows = st.builds(ProvisionFact, names, st.sampled_from(WORDS), is_ours=st.booleans())
unread = st.sampled_from([Absent(), NotRead(), Unknown("chain_silent"), Unknown("chain_error", is_own=True)])
read = st.builds(ListedLease, st.sampled_from(LeaseState)) | st.builds(ExactLease, st.sampled_from(LeaseState))
operations = st.builds(
    OperationFact,
    st.just(OPERATION),
    names,
    st.sampled_from(S),
    times,
    valid_until=maybe_time,
    due_at=maybe_time,
    first_dispatched_at=maybe_time,
    last_dispatched_at=maybe_time,
    on_wire_until=maybe_time,
    refusal=st.sampled_from(["", "not_sent", "callback_timeout", "insufficient_resources", "unknown_sku"]),
    error=st.sampled_from(["", "it died"]),
    is_restore=st.booleans(),
)
backends = st.builds(
    BackendFact,
    names,
    st.just(frozenset({"s1"})),
    configured=st.booleans(),
    fenced=st.booleans(),
    drained=st.booleans(),
    breaker_open=st.booleans(),
    answers=st.booleans(),
    walked_at=maybe_time,
)
worlds = st.builds(
    WorldFact,
    st.lists(backends, max_size=3, unique_by=lambda one: one.name).map(tuple),
    head_age=st.none() | st.integers(0, 100).map(lambda number: timedelta(seconds=number)),
    trusted_from_at=maybe_time,
    trusted_block_at=maybe_time,
    walked_all_since=maybe_time,
)
actions = st.lists(
    st.builds(
        ActionFact,
        st.sampled_from(["ack", "reject", "close"]),
        st.sampled_from(["queued", "in_tx", "done", "moot", "failed"]),
    ),
    max_size=2,
    unique_by=lambda one: one.verb,
).map(tuple)
teardowns = st.lists(
    st.builds(TeardownFact, names, st.sampled_from(["open", "done"]), last_error=st.sampled_from(["", "no answer"])),
    max_size=2,
    unique_by=lambda one: one.backend,
).map(tuple)
callbacks = st.lists(
    st.builds(
        CallbackFact,
        st.integers(1, 9),
        st.sampled_from([None, OPERATION]),
        st.sampled_from(["success", "failed", "deprovisioned"]),
        retained=st.booleans(),
    ),
    max_size=2,
).map(tuple)


one_command = st.tuples(
    st.builds(
        CommandFact,
        st.just(COMMAND),
        st.sampled_from(CommandKind),
        names,
        st.sampled_from([C.RESERVED, C.IN_DOUBT, C.ACCEPTED]),
        times,
        due_at=maybe_time,
        first_dispatched_at=maybe_time,
        on_wire_until=maybe_time,
        valid_until=maybe_time,
        payload_sha256=st.just(DIGEST),
    )
)
commands = st.just(()) | one_command
releases = st.builds(ReleaseFact, st.integers(1, 3), st.sampled_from(["active", "failed", "deploying"]), maybe_time)


def leases(chain, **changes):
    """Leases with any facts whatever, but these."""
    strategies = {
        "sku": st.just("s1"),
        "created_at": maybe_time,
        "touched_at": maybe_time,
        "meta_hash": st.sampled_from([b"", b"\x01" * 32]),
        "payload": st.sampled_from([NotRead(), Absent(), Unknown("payload_unreadable")])
        | st.builds(PayloadFact, st.just(b""), st.just(1), st.booleans()),
        "operation": st.none() | operations,
        "history": st.builds(
            HistoryFact, st.integers(0, 9), maybe_time, st.sampled_from(["", "insufficient_resources"])
        ),
        "placement": st.none() | st.builds(PlacementFact, names, st.sampled_from(["attempted", "confirmed"]), times),
        "point": rows | unread,
        "listed": st.lists(rows, max_size=3).map(tuple),
        "retained_at": st.lists(names, max_size=1).map(tuple),
        "absent_at": st.frozensets(names),
        "commands": commands,
        "maintenance": unread
        | st.builds(MaintenanceFact, st.sampled_from(WORDS), st.lists(releases, max_size=2).map(tuple)),
        "actions": actions,
        "teardowns": teardowns,
        "callbacks": callbacks,
        "last_status": st.sampled_from(["", "provisioning", "ready", "failed", "deprovisioning", "retained"]),
        "world": worlds,
    }
    return st.builds(LeaseFacts, st.just(LEASE), chain, **{**strategies, **changes})


many = settings(max_examples=120)


@many
@given(leases(read | unread))
def test_what_destroys_stands_on_an_exact_read_of_the_right_state(facts):
    act = decide(facts, NOW, LIMITS).act
    allowed = {
        Reject: {LeaseState.PENDING},
        Close: {LeaseState.ACTIVE},
        SendTeardown: TERMINAL,
        EndWithLease: TERMINAL,
    }
    if type(act) in allowed:
        assert isinstance(facts.chain, ExactLease)
        assert facts.chain.state in allowed[type(act)]
    if isinstance(act, Acknowledge | StartProvision):
        assert facts.is_pending
    if isinstance(act, Adopt):
        assert facts.is_active


@many
@given(leases(unread))
def test_a_chain_that_did_not_say_leads_to_waiting_or_reading(facts):
    assert isinstance(decide(facts, NOW, LIMITS).act, Wait | Need)


@many
@given(leases(read | unread))
def test_same_facts_same_decision(facts):
    assert decide(facts, NOW, LIMITS) == decide(replace(facts), NOW, LIMITS)


@many
@given(leases(read | unread))
def test_nothing_open_is_left_without_a_time(facts):
    decision = decide(facts, NOW, LIMITS)
    closes = isinstance(decision.act, Settle | EndWithLease | GiveUp)
    open_ = (
        (facts.operation is not None and not closes)
        or any(one.is_open for one in facts.actions)
        or any(not one.is_done for one in facts.teardowns)
        or bool(facts.commands)
    )
    if open_:
        assert decision.after is not None
        assert timedelta() <= decision.after <= LIMITS.late_retry
    if decision.after is None:
        assert isinstance(decision.act, Rest | Settle)


@many
@given(
    leases(read, operation=operations.map(lambda one: replace(one, is_restore=True))).filter(
        lambda facts: facts.state not in TERMINAL
    )
)
def test_an_open_restore_keeps_its_lease_from_being_provisioned_and_refused_it_ends_nothing(facts):
    act = decide(facts, NOW, LIMITS).act
    assert not isinstance(act, StartProvision)
    if facts.operation.state in {S.REFUSED, S.ENDED, S.RESERVED}:
        assert not isinstance(act, Reject | Acknowledge)


@many
@given(leases(read, operation=st.none(), commands=one_command))
def test_an_open_command_is_sent_once_and_nothing_else_is_decided_meanwhile(facts):
    (one,) = facts.commands
    act = decide(facts, NOW, LIMITS).act
    assert not isinstance(act, SendTeardown)
    if isinstance(act, PushCommand):
        assert one.state is C.RESERVED
    if one.state is not C.ACCEPTED and facts.state not in TERMINAL and not facts.callbacks:
        assert isinstance(act, Wait | Need | Conclude | PushCommand)
    if isinstance(act, Conclude):
        assert all(result.to in EDGES[one.state] for result in act.results)


PUSHED = {False: {S.RESERVED, S.IN_DOUBT, S.ACCEPTED}, True: {S.IN_DOUBT, S.ACCEPTED}}
silent = st.builds(BackendFact, names, st.just(frozenset({"s1"})), answers=st.just(False), walked_at=st.none())


@many
@given(
    leases(
        read,
        operation=st.none() | operations.filter(lambda one: one.state in PUSHED[one.is_restore]),
        point=st.sampled_from([NotRead(), Unknown("backend_silent")]),
        listed=st.just(()),
        retained_at=st.just(()),
        absent_at=st.just(frozenset()),
        callbacks=st.just(()),
        commands=st.just(()),
        payload=st.just(NotRead()),
        world=st.builds(
            WorldFact,
            st.lists(silent, max_size=3, unique_by=lambda one: one.name).map(tuple),
            st.just(timedelta(seconds=1)),
            maybe_time,
            maybe_time,
        ),
    ).filter(lambda facts: facts.state not in TERMINAL)
)
def test_silent_backends_refuse_nothing_give_nothing_up_and_tear_nothing_down(facts):
    act = decide(facts, NOW, LIMITS).act
    assert not isinstance(act, Reject | Close | GiveUp | SendTeardown | EndWithLease | Acknowledge | Settle)
    if isinstance(act, RecordOutcome):  # only the time limit may say so
        assert act.refusal == "callback_timeout"
        assert NOW - facts.operation.first_dispatched_at > LIMITS.callback_timeout


@many
@given(leases(read))
def test_another_providers_rows_say_nothing_of_our_lease(facts):
    ours = tuple(one for one in facts.listed if one.is_ours)
    assert decide(facts, NOW, LIMITS) == decide(replace(facts, listed=ours), NOW, LIMITS)
