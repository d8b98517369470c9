"""A chain that is another than was seen before: nothing is done until it is back, or somebody vouches for it."""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from django.db.models.functions import Now

from fred import checks
from leases.chain.errors import RpcError
from leases.chain.events import EventType, Header
from leases.models import ChainAction, ChainCursor, ChainTx, Lease
from leases.status import LeaseState
from placements.models import Operation, Teardown
from reconciliation import operators, probes, suspect_sql
from reconciliation.models import OperatorAction
from reconciliation.operators import Operator, Refused
from reconciliation.suspicion import Judge
from tests.reconciliation.story import ROWS
from tests.reconciliation.watching import until_read, watching
from tests.waiting import wait_until

pytestmark = ROWS
WHO = Operator("ann@host", "command")


class Node:
    """The RPC of a node with these blocks."""

    def __init__(self, **hashes):
        self.hashes = hashes

    def block_hash(self, height):
        if f"h{height}" not in self.hashes:
            raise RpcError(code=-32603, message="Internal error", data=f"height {height} is not available")
        return self.hashes[f"h{height}"]


def head(height, *, own="", last="", chain_id="manifest-localnet"):
    return Header(height, datetime(2026, 1, 1, tzinfo=UTC), chain_id, own, last)


def standing():
    return suspect_sql.standing("manifest-localnet")[0]


@pytest.fixture
def known(trusted):
    """A database that saw height 100, whose block 99 has hash AA."""
    suspect_sql.remember("manifest-localnet", height=99, block_hash="AA")
    return Judge()


@pytest.mark.parametrize(
    ("header", "node", "reason"),
    [
        pytest.param(head(100, last="AA"), Node(), "", id="the next header names the known block"),
        pytest.param(head(100, last="BB"), Node(), "other_history", id="the next header names another"),
        pytest.param(head(105, own="X"), Node(h99="AA"), "", id="the node has the known block"),
        pytest.param(head(105, own="X"), Node(h99="BB"), "other_history", id="the node has another block"),
        pytest.param(head(105), Node(), "", id="a pruned block proves nothing"),
        pytest.param(head(105, chain_id="other-1"), Node(), "other_chain", id="another chain id"),
        pytest.param(head(99, own="AA"), Node(), "", id="a block behind is no suspicion"),
    ],
)
def test_what_makes_a_chain_suspect(known, header, node, reason):
    """CH-146"""
    complaint = known.complaint(header, node)
    assert standing() == reason
    assert bool(complaint) == bool(reason or header.height < 100)


def test_far_behind_for_a_minute_is_suspect_and_the_old_head_ends_it(known, trusted):
    times = iter([0.0, 0.0, 59.0, 61.0])
    judge = Judge(clock=lambda: next(times))
    ChainCursor.objects.update(head_height=300)
    assert judge.complaint(head(150), Node())
    assert not standing()
    assert judge.complaint(head(160), Node())
    assert not standing()
    assert judge.complaint(head(170), Node())
    assert standing() == "node_behind"
    assert judge.complaint(head(301), Node(h99="AA")) == ""
    assert standing() == ""


def test_the_first_reason_stays_and_another_history_does_not_end_it(known):
    known.complaint(head(105), Node(h99="BB"))
    known.complaint(head(105, chain_id="other-1"), Node())
    assert standing() == "other_history"
    assert known.complaint(head(106), Node(h99="BB"))
    assert standing() == "other_history"
    assert known.complaint(head(106), Node(h99="AA")) == ""
    assert standing() == ""


@pytest.mark.parametrize(
    ("header", "node", "is_refused", "remembered"),
    [
        pytest.param(head(105, last="EE"), Node(h99="AA", h104="EE"), False, (104, "EE"), id="the node says so too"),
        pytest.param(head(105, own="FF"), Node(h99="AA", h105="FF"), False, (105, "FF"), id="of its own block"),
        pytest.param(head(105, last="EE"), Node(h99="AA", h104="DD"), True, (99, "AA"), id="the node says otherwise"),
        pytest.param(head(105, last="EE"), Node(h99="AA"), False, (99, "AA"), id="the node does not hold it"),
        pytest.param(head(100, own="FF", last="AA"), Node(), False, (100, "FF"), id="it follows the known block"),
    ],
)
def test_a_header_that_the_node_does_not_bear_out_is_not_remembered(known, header, node, is_refused, remembered):
    """One that was told by another chain a moment ago would make the one that is back suspect for good."""
    assert bool(known.complaint(header, node)) is is_refused
    found = suspect_sql.memory("manifest-localnet")
    assert (found.known_height, found.known_hash) == remembered


def test_a_header_of_the_other_chain_does_not_end_suspicion_once_the_known_chain_is_back(known):
    known.complaint(head(105, last="EE"), Node(h99="BB", h104="EE"))
    assert known.complaint(head(105, last="EE"), Node(h99="AA", h104="DD"))
    assert standing() == "other_history"
    assert known.complaint(head(106, last="CC"), Node(h99="AA", h105="CC")) == ""
    assert standing() == ""


@pytest.fixture
def behind(trusted):
    """Who has seen a node stay far below what was seen before."""
    ChainCursor.objects.update(head_height=300)
    times = iter([0.0, 0.0, 61.0])
    judge = Judge(clock=lambda: next(times))
    for _ in range(2):
        assert judge.complaint(head(150), Node())
    assert standing() == "node_behind"
    return judge


def expect(reason, complaint):
    """Suspect for this reason, refused and nothing remembered of it; without a reason believed."""
    assert (bool(complaint), standing()) == (bool(reason), reason)
    if reason:
        found = suspect_sql.memory("manifest-localnet")
        assert (found.known_height, found.known_hash) == (99, "AA")


@pytest.mark.parametrize(
    ("suspected", "header", "node", "reason"),
    [
        pytest.param(head(105), head(106), Node(), "other_history", id="it holds no such block"),
        pytest.param(head(105), head(106), Node(h99="AA"), "", id="it has the known block"),
        pytest.param(head(105, chain_id="x"), head(106), Node(), "", id="it names our id"),
        pytest.param(head(105, chain_id="x"), head(106, chain_id=""), Node(), "other_chain", id="it names none"),
        pytest.param(head(105, chain_id="x"), head(106, chain_id=""), Node(h99="AA"), "", id="nor an id, but has it"),
    ],
)
def test_what_a_node_does_not_show_never_ends_suspicion(known, suspected, header, node, reason):
    known.complaint(suspected, Node(h99="BB"))
    assert standing()
    expect(reason, known.complaint(header, node))


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        pytest.param(Node(), "node_behind", id="it holds no such block"),
        pytest.param(Node(h99="AA"), "", id="it has the known block"),
    ],
)
def test_a_node_that_is_high_again_is_believed_for_what_it_shows(behind, node, reason):
    suspect_sql.remember("manifest-localnet", height=99, block_hash="AA")
    expect(reason, behind.complaint(head(301, last="CC"), node))


def test_where_no_block_is_known_the_height_is_all_there_is(behind):
    expect("", behind.complaint(head(301), Node()))


def test_an_operator_vouches_for_the_chain_with_a_reason(known):
    known.complaint(head(105), Node(h99="BB"))
    waiting = Lease.objects.create(uuid=UUID(int=1), reason="chain_suspect")
    with pytest.raises(Refused, match="a reason is needed"):
        operators.believe_chain("manifest-localnet", reason=" ", operator=WHO)
    with pytest.raises(Refused, match="the configured chain is"):
        operators.believe_chain("other-1", reason="why", operator=WHO)
    assert operators.believe_chain("manifest-localnet", reason="the test net began anew", operator=WHO)
    assert not operators.believe_chain("manifest-localnet", reason="again", operator=WHO)
    rows = OperatorAction.objects.order_by("id")
    assert [(row.result, row.target) for row in rows] == [
        ("refused", "chain:other-1"), ("done", "chain:manifest-localnet"), ("unchanged", "chain:manifest-localnet"),
    ]  # fmt: skip
    assert rows[1].before["suspect_reason"] == "other_history"
    assert Lease.objects.filter(pk=waiting.pk, due_at__lte=Now()).exists()
    assert known.complaint(head(106, last="CC"), Node(h99="BB")) == ""
    assert standing() == ""


def shown() -> dict[str, str]:
    """What readiness says is wrong."""
    probes.probe_all()
    return {one.name: one.message for one in checks.ask_database().findings if one.message}


FATES = {
    "wrong_chain": ({"chain_id": "other-1"}, "the chain is suspect: other_chain since "),
    "reorg_reset": ({}, "the chain is suspect: other_history since "),
}


@pytest.mark.parametrize("effect", FATES)
def test_nothing_is_destroyed_on_another_chain(story, effect):
    """CH-146: an ACTIVE lease, one under way and one that ends; the fault comes, and goes."""
    parameters, text = FATES[effect]
    active, under_way = story.activated(), story.made()
    height = story.chain.height
    ChainCursor.objects.update(last_height=height, head_height=height, trusted_from_height=height)
    story.chain.set_block_mode("interval", interval=0.05)
    try:
        with watching():
            until_read(height + 3)
            before = acts()
            with story.chain.fault(effect, **parameters):
                wait_until(lambda: ChainCursor.objects.exclude(suspect_reason="").exists(), timeout=30)
                Lease.objects.update(due_at=Now())
                story.look()
                story.sweep()
                story.look()
                assert set(Lease.objects.values_list("reason", flat=True)) == {"chain_suspect"}
                assert acts() == before
                assert shown()["chain"].startswith(text)
            wait_until(lambda: ChainCursor.objects.filter(suspect_reason="").exists(), timeout=30)
            story.report("success", under_way)

            def is_acknowledged() -> bool:
                # A read may be of the block before the newest news: the look after it comes later.
                Lease.objects.filter(due_at__isnull=False).update(due_at=Now())
                story.settle()
                return story.state(under_way) is LeaseState.ACTIVE

            wait_until(is_acknowledged, timeout=30)
    finally:
        story.chain.set_block_mode("instant")
    assert story.state(active) is LeaseState.ACTIVE
    assert story.included("MsgAcknowledgeLease", under_way) == 1
    assert not Teardown.objects.exists()


def acts() -> tuple[int, ...]:
    """How much was ever wanted of anybody."""
    return tuple(model.objects.count() for model in (Operation, Teardown, ChainAction, ChainTx))


def test_nothing_is_destroyed_when_a_lease_vanishes(story):
    active = story.activated()
    before = acts()
    with story.chain.fault("lease_vanish", uuid=str(active)):
        story.hear(active, EventType.CLOSED)
        story.look()
        assert story.row(active).reason == "chain_unknown"
        story.sweep()
        Lease.objects.update(due_at=Now())
        story.look()
        assert acts() == before
        assert shown()["chain"] == f"the node does not know lease {active}, which it had"
    story.chain.produce_block()
    Lease.objects.update(due_at=Now())
    story.look()
    assert story.row(active).reason == ""
    assert "chain" not in shown()
    assert acts() == before
