"""Bursts against a mock that misbehaves: one provision for each lease, nothing lost, nothing destroyed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from backends.client import BackendClient
from leases.status import LeaseState
from placements.models import Teardown
from tests.backends.servers import target
from tests.reconciliation.bursts import LEASES, QUICK, Burst, CrashingAgent, house, mock_here
from tests.reconciliation.story import ROWS
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, ROWS]


def some(action, route="provision", *, share=0.3, **how):
    return {"action": action, "match": {"route": route, "probability": share}, **how}


def callbacks(kind, **how):
    return some("callback", "", kind=kind, **how)


def lists(kind, noun="provisions"):
    return some("inventory", noun, kind=kind)


FAULTS = {
    "latency": some("latency", p50_ms=50, p99_ms=900),
    "hang before the work": some("hang"),
    "hang after the work": some("hang", effect=True),
    "hang inside the body": some("hang", at="body", effect=True),
    "500 before the work": some("status", status=500),
    "500 after the work": some("status", status=500, effect=True),
    "503 without a word": some("status", status=503, shape="empty"),
    "503 after the work": some("status", status=503, effect=True),
    "400 as html": some("status", status=400, shape="html"),
    "302": some("status", status=302, shape="redirect"),
    "lost before the work": some("lose", effect=False),
    "lost after the work": some("lose"),
    "result twice": some("result", kind="twice"),
    "result late": some("result", kind="late", seconds=1.0),
    "callback dropped": callbacks("drop"),
    "callback five times": callbacks("duplicate", copies=5),
    "callback late": callbacks("delay", seconds=1.0),
    "callbacks out of order": callbacks("reorder"),
    "callback with a wrong key": callbacks("wrong_key"),
    "callback unsigned": callbacks("unsigned"),
    "callback tampered": callbacks("tampered"),
    "callback from yesterday": callbacks("old"),
    "callback from tomorrow": callbacks("future"),
    "callback to a wrong query": callbacks("wrong_query"),
    "callback retained": callbacks("retained"),
    "list without end": lists("endless"),
    "list is 404": lists("not_found"),
    "list is null": lists("null"),
    "list with a row twice": lists("duplicate"),
    "list lacks a row": lists("omit"),
    "list with a stranger's row": lists("foreign"),
    "list in upper case": lists("not_canonical"),
    "list that stands still": lists("stuck_token"),
    "list too long": lists("oversize"),
    "kept data are 404": lists("not_found", "retentions"),
    "kept data without end": lists("endless", "retentions"),
    "kept data of a stranger": lists("foreign", "retentions"),
    "point read fails": some("status", "provision_info", status=500),
}
THREE = [
    ("lost after the work", "callback dropped", "point read fails"),
    ("500 after the work", "callback five times", "latency"),
    ("503 after the work", "callback late", "list is 404"),
]


REFUSALS = {
    "result fails": some("result", kind="fail", reason="ImagePullFailed", message="image pull failed"),
    "400 in an envelope": some("status", status=400),
    "400 in an envelope after the work": some("status", status=400, effect=True),
}
REFUSALS_WITH_MORE = [
    ("result fails", "callback dropped", "list is 404"),
    ("result fails", "result late", "callback five times"),
    ("400 in an envelope after the work", "lost after the work", "point read fails"),
]
CRASHES = {
    "before the work": {"action": "crash", "match": {"route": "provision", "every": 7}},
    "after the work": {"action": "crash", "match": {"route": "provision", "every": 7}, "effect": True},
    "before the callback": {"action": "callback", "match": {"every": 7}, "kind": "crash"},
    "while it lists": {"action": "crash", "match": {"route": "provisions", "every": 2}},
}


@pytest.fixture
def burst(devchain, transactional_db, valkey, monkeypatch):
    """A house with one mock backend behind its door, and a callback route that it reaches."""
    made = Counter()
    with mock_here(made) as url, house(devchain, monkeypatch, url) as story:
        yield Burst(story, url, valkey, made)


def survive(burst, *rules):
    burst.break_with(*rules)
    leases = burst.take()
    burst.drive(leases, LeaseState.ACTIVE)
    burst.finish(leases)
    burst.mend()
    assert burst.assert_ends(leases) == (set(leases), set())
    assert not Teardown.objects.exists()
    assert burst.made == Counter(leases)


@pytest.mark.parametrize("name", FAULTS)
def test_bc_17_2_each_fault_alone(burst, name):
    survive(burst, FAULTS[name])


@pytest.mark.parametrize("names", THREE, ids=", ".join)
def test_bc_17_2_three_at_once(burst, names):
    survive(burst, *(FAULTS[name] for name in names))


def be_served_or_refused(burst, *rules):
    burst.break_with(*rules)
    leases = burst.take()
    burst.drive(leases, LeaseState.ACTIVE, LeaseState.REJECTED)
    burst.finish(leases)
    burst.mend()
    served, refused = burst.assert_ends(leases)
    assert served
    assert refused
    assert max(burst.made.values()) == 1
    return refused


@pytest.mark.parametrize("name", REFUSALS)
def test_bc_17_2_what_is_refused_or_fails_is_rejected_once_and_leaves_nothing(burst, name):
    be_served_or_refused(burst, REFUSALS[name])


@pytest.mark.parametrize("names", REFUSALS_WITH_MORE, ids=", ".join)
def test_bc_17_2_a_refusal_and_two_more_at_once(burst, names):
    known = {**FAULTS, **REFUSALS}
    be_served_or_refused(burst, *(known[name] for name in names))


def test_bc_17_2_a_result_that_never_comes_ends_with_the_time_limit(burst):
    """BC-101, P31: what got ready meanwhile is served, the rest rejected and removed"""
    burst.story.looker.limits = replace(QUICK, callback_timeout=timedelta(seconds=8))
    refused = be_served_or_refused(burst, some("result", kind="never"))
    assert {burst.story.lease_on_chain(uuid).rejection_reason for uuid in refused} == {"callback timeout"}


@pytest.mark.parametrize("name", CRASHES)
def test_bc_17_2_an_agent_that_dies_again_and_again(devchain, valkey, monkeypatch, tmp_path, name):
    """Its file outlives it: what it promised it does, what it lost is found."""
    agent = CrashingAgent(tmp_path / "state.sqlite", [CRASHES[name]])
    try:
        wait_until(agent.answers, timeout=60.0)
        with house(devchain, monkeypatch, agent.url) as story:
            burst = Burst(story, agent.url, valkey, Counter())
            leases = burst.take()
            burst.drive(leases, LeaseState.ACTIVE)
            burst.finish(leases)
            assert agent.crashes
            wait_until(agent.answers, timeout=60.0)
            agent.rules = []
            assert burst.assert_ends(leases) == (set(leases), set())
            client = BackendClient(target(agent.url))
            assert {len(client.releases(uuid)) for uuid in leases} == {1}, "each was made once"
    finally:
        agent.stop()
    assert len(leases) == LEASES
