"""Every fault of the simulated chain during a burst: afterwards all is done, once, and the cause was named."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from leases import lane_draft
from leases.chain import noticed
from leases.status import LeaseState
from placements.models import Teardown
from tests.reconciliation.keeping import acknowledged, keeping, states, told, unsettled
from tests.reconciliation.story import ROWS, Story
from tests.reconciliation.watching import blocks_every, until_read
from tests.waiting import wait_until

pytestmark = [ROWS, pytest.mark.slow]

BURST = 100
BLOCK_S = 0.1
CONVERGES_S = 180
"""From the end of the fault to the last lease's rest: most need a few seconds; one whose own reads failed again and
again waits out its back-off."""
NAMED_S = 60

ACK = {"message": "MsgAcknowledgeLease"}
HALF = {"probability": 0.5}


@dataclass(frozen=True)
class Case:
    """A rule, the kinds of which one has to be counted, and whether the burst is there before the rule."""

    effect: str
    kinds: tuple[str, ...]
    where: str = "*"
    rule: dict[str, Any] = field(default_factory=dict)
    after_the_burst: bool = False
    cuts: bool = False  # a subscription, a status: seen when a connection is made
    ends_some: bool = False


CASES = {
    "unavailable": Case("grpc_error", ("unavailable",), rule={"code": "UNAVAILABLE", "match": HALF}),
    "exhausted": Case(
        "grpc_error", ("grpc_error",), rule={"code": "RESOURCE_EXHAUSTED", "match": {"probability": 0.5}}
    ),
    "rpc_error": Case("rpc_error", ("rpc_error",), "block_results", {"text": "broken"}),
    "hang": Case("hang", ("timeout",), "*Simulate"),
    "delay": Case("delay", ("slow",), rule={"ms": 1100}),
    "lose_request": Case("lose_request", ("unavailable",), "*BroadcastTx"),
    "lose_response": Case("lose_response", ("unavailable",), "*BroadcastTx"),
    "stale_reads": Case("stale_reads", ("stale_read", "lease_unknown"), rule={"blocks": 50}),
    "empty_chain": Case("empty_chain", ("lease_unknown",), "*Lease*", {"height": 1_000_000}),
    "lease_vanish": Case("lease_vanish", ("lease_unknown",), after_the_burst=True),
    "drop_page_row": Case("drop_page_row", ("listing_cut",), rule={"times": 3}, ends_some=True),
    "short_page": Case("short_page", ("empty_page",)),
    "unknown_field": Case("unknown_field", ("unknown_field",)),
    "index_lag": Case("index_lag", ("index_lag",), rule={"blocks": 20}),
    "never_include": Case("never_include", ("not_included",), rule={"match": ACK}),
    "checktx": Case("chain_error", ("tx_refused",), "checktx", {"codespace": "sdk", "code": 18, "match": ACK}),
    "exec": Case("chain_error", ("tx_failed",), "exec", {"codespace": "sdk", "code": 18, "match": ACK, "times": 2}),
    "sequence_skip": Case("sequence_skip", ("sequence",), rule={"n": 1, "match": ACK, "times": 2}),
    "mempool_full": Case("mempool_full", ("mempool_full",), rule={"match": ACK}),
    "min_gas_price": Case("min_gas_price", ("fee_refused",), rule={"price": 1, "match": ACK}),
    "gas_factor": Case("gas_factor", ("out_of_gas",), rule={"factor": 0.3, "times": 1}),
    "gas_info_missing": Case("gas_info_missing", ("gas_unknown",)),
    "catching_up": Case("catching_up", ("catching_up",), cuts=True),
    "wrong_chain": Case("wrong_chain", ("other_chain",), rule={"chain_id": "other-1"}, after_the_burst=True),
    "reorg_reset": Case("reorg_reset", ("behind", "other_history"), after_the_burst=True),
    "ws_drop": Case("ws_drop", ("frame_missing",), "ws", {"match": {"event": "Tx"}}),
    "ws_dup": Case("ws_dup", ("frame_doubled",), "ws"),
    "ws_reorder": Case("ws_reorder", ("frame_disordered",), "ws"),
    "ws_delay": Case("ws_delay", ("frame_late",), "ws", {"ms": 1500, "match": {"event": "Tx"}}),
    "ws_error": Case("ws_error", ("stream_error",), "ws", {"id": 3}, cuts=True),
    "ws_cancel": Case("ws_cancel", ("stream_error",), "ws", {"id": 3}),
    "ws_half_open": Case("ws_half_open", ("stream_half_open",), "ws"),
    "ws_close": Case("ws_close", ("stream_closed",), "ws", {"code": 1011}),
    "ws_garbage": Case("ws_garbage", ("frame_unreadable",), "ws"),
}


@pytest.fixture
def working(story, settings):
    """That provider with a block every 100 ms, pages of ten leases, and quick reconnects."""
    settings.FRED = settings.FRED.model_copy(
        update={
            "query_page_limit": 10,
            "websocket_ping_interval": timedelta(seconds=1),
            "websocket_reconnect_initial": timedelta(milliseconds=50),
            "websocket_reconnect_max": timedelta(milliseconds=500),
        }
    )
    lane_draft.simulations.__init__()
    with blocks_every(story, BLOCK_S):
        yield story


def burst(story: Story) -> list[UUID]:
    return [UUID(one) for one in story.chain.create_leases(BURST)]


@pytest.mark.parametrize("name", CASES)
def test_after_a_fault_everything_is_done_once_and_the_cause_was_named(working, name):
    """CH-57, CH-58, CH-85, CH-92, CH-95, CH-97, CH-99, CH-101, CH-146 under load, and every other rule."""
    case = CASES[name]
    rule = dict(case.rule)
    with keeping(working):
        until_read(working.chain.height + 2)
        leases = burst(working) if case.after_the_burst else []
        if case.effect == "lease_vanish":
            rule["uuid"] = str(leases[7])
        number = working.chain.add_fault(case.effect, where=case.where, **rule)
        if case.cuts:
            working.chain.add_fault("ws_close", where="ws", times=1, code=1001)
        leases = leases or burst(working)
        try:
            wait_until(
                lambda: any(kind in noticed._said for kind in case.kinds),
                timeout=NAMED_S,
                message=f"one of {case.kinds}, and not only {sorted(noticed._said)}",
            )
        finally:
            working.chain.remove_fault(number)
            working.chain.clear_faults()
        wait_until(lambda: not unsettled(leases), timeout=CONVERGES_S, message=f"{name}: {told(unsettled(leases))}")
    counts = acknowledged(working, leases)
    allowed = {LeaseState.ACTIVE} | ({LeaseState.REJECTED, LeaseState.CLOSED} if case.ends_some else set())
    assert states(working, leases) <= allowed
    active = [uuid for uuid in leases if working.state(uuid) is LeaseState.ACTIVE]
    assert len(active) >= BURST - (3 if case.ends_some else 0)
    assert {counts[uuid] for uuid in active} == {1}
    asked = [one.lease for one in working.backends["b1"].seen if one.route == "provision"]
    assert len(asked) == len(set(asked))
    assert {str(uuid) for uuid in active} <= set(asked)
    assert not Teardown.objects.filter(lease_id__in=active).exists()
