"""Which backend gets a lease: by figures, by work under way, in turn; and never another than its owner."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from datetime import timedelta
from uuid import UUID

import pytest
from django.utils import timezone

from backends.models import Backend
from fred import metrics
from leases.models import Lease
from placements.models import Operation, Placement
from placements.routing import Candidate, Load, candidates_for, route
from reconciliation import rotation
from tests.factories.backends import BackendFactory
from tests.factories.placements import PlacementFactory
from tests.reconciliation.story import ROWS, counted, make_due
from tests.scripted_backend import Hang

S1 = frozenset({"s1"})
B1, B2, B3 = (Candidate(name, S1) for name in ("b1", "b2", "b3"))


def routed(*candidates, loads, flying=(), count=1, **how):
    """The backends that so many leases get, one after the other."""
    ratios = {name: one if isinstance(one, Load) else Load(one) for name, one in loads.items()}
    found = route(
        dict.fromkeys(range(count), "s1"),
        candidates,
        loads=ratios,
        in_flight=dict(flying),
        turn=itertools.count().__next__,
        **how,
    )
    return [found.given.get(key) for key in range(count)]


@pytest.mark.parametrize(
    ("loads", "flying", "expected"),
    [
        pytest.param({"b1": 4 / 8, "b2": 2 / 8, "b3": 6 / 8}, {}, "b2", id="LC-25 least loaded"),
        pytest.param({"b1": 0.5, "b2": 0.5}, {"b1": 2}, "b2", id="LC-26 then fewest under way"),
        pytest.param({"b1": 0.5, "b2": 0.5 + 1e-10}, {"b1": 2}, "b2", id="LC-26 equal within a billionth"),
        pytest.param({"b1": None, "b2": 1.5}, {}, "b2", id="LC-30 no cores is no figure"),
        pytest.param({"b1": Load(0.1, disk_withheld=True), "b2": 0.9}, {}, "b2", id="LC-31 one withholds its disk"),
        pytest.param(
            {"b1": Load(0.1, disk_withheld=True), "b2": Load(0.9, disk_withheld=True)}, {}, "b1", id="LC-31 all do"
        ),
    ],
)
def test_the_least_loaded_then_the_least_busy(loads, flying, expected):
    """P16, LC-25, LC-26, LC-30, LC-31, BC-59, BC-60, BC-70"""
    assert routed(B1, B2, B3, loads=loads, flying=flying) == [expected]


def test_equals_take_turns():
    """P16, LC-27: four choices, with the work that each choice makes counted and, here, over before the next"""
    turn = itertools.count().__next__
    same = dict.fromkeys(("b1", "b2", "b3"), Load(0.5))
    given = [route({1: "s1"}, (B1, B2, B3), loads=same, in_flight={}, turn=turn).given[1] for _ in range(4)]
    assert given == ["b1", "b2", "b3", "b1"]


def test_without_any_figures_candidates_take_turns_and_it_is_counted():
    """LC-29, BC-61"""
    found = route(dict.fromkeys(range(100), "s1"), (B1, B2), loads={}, in_flight={}, turn=itertools.count().__next__)
    assert [found.given[key] for key in range(4)] == ["b1", "b2", "b1", "b2"]
    assert Counter(found.given.values()) == {"b1": 50, "b2": 50}
    assert found.fallbacks == 100


def test_a_candidate_without_figures_gets_nothing_however_loaded_the_other_is():
    """P16, BC-62"""
    found = route(
        dict.fromkeys(range(50), "s1"), (B1, B2), loads={"b1": Load(0.9)}, in_flight={}, turn=itertools.count().__next__
    )
    assert set(found.given.values()) == {"b1"}
    assert found.fallbacks == 0


def test_two_hundred_at_once_that_know_nothing_of_each_other_are_shared_exactly(valkey, run_in_threads):
    """P16, BC-64: all see the same figures and nothing under way; the shared turn alone decides"""
    same = dict.fromkeys(("b1", "b2"), Load(0.5))

    def decide():
        return [
            route({1: "s1"}, (B1, B2), loads=same, in_flight={}, turn=rotation.next_turn).given[1] for _ in range(25)
        ]

    given = Counter(itertools.chain.from_iterable(run_in_threads(8, decide)))
    assert given == {"b1": 100, "b2": 100}


def test_forty_at_once_are_shared_equally():
    """LC-35, one batch"""
    given = routed(B1, B2, loads={"b1": 0.25, "b2": 0.25}, count=40)
    assert Counter(given) == {"b1": 20, "b2": 20}


@pytest.mark.parametrize(
    ("backends", "expected"),
    [
        pytest.param((Candidate("b1", S1), Candidate("b2", S1, is_default=True)), ["b2"], id="LC-32 the default"),
        pytest.param((Candidate("b1", S1), Candidate("b2", S1)), ["b1"], id="LC-32 else the first"),
        pytest.param(
            (Candidate("b1", S1), Candidate("b2", S1, is_default=True, takes_work=False)), [], id="LC-32 it is fenced"
        ),
        pytest.param(
            (Candidate("b1", S1, is_default=True), Candidate("b3", frozenset({"s3"}), takes_work=False)),
            [],
            id="LC-33 only a fenced one serves it",
        ),
    ],
)
def test_what_nobody_lists_goes_to_the_default(backends, expected):
    """P16, LC-32, LC-33, BC-65, BC-66, BC-68"""
    assert [one.name for one in candidates_for("s3", backends)] == expected


@pytest.mark.parametrize(
    ("configured", "sku"),
    [
        pytest.param({"abc"}, "ABC", id="BC-67 letter case counts"),
        pytest.param({"abcd"}, "abc", id="BC-67 no beginnings"),
        pytest.param(set(), "abc", id="BC-67 no SKUs match nothing"),
        pytest.param(set(), "", id="BC-67 not even no SKU"),
    ],
)
def test_only_the_very_sku_matches(configured, sku):
    """P16: else the default gets it"""
    backends = (Candidate("b1", frozenset(configured)), Candidate("b2", S1, is_default=True))
    assert [one.name for one in candidates_for(sku, backends)] == ["b2"]


@pytest.mark.parametrize(("eligible", "expected"), [({"b3"}, ["b3"]), (set(), []), ({"b2"}, [])])
def test_the_default_too_must_be_eligible(eligible, expected):
    """BC-69: who serves the SKU is not eligible"""
    backends = (B1, Candidate("b3", frozenset(), is_default=True), Candidate("b2", frozenset({"s2"})))
    assert [one.name for one in candidates_for("s1", backends, eligible=frozenset(eligible))] == expected


@pytest.mark.parametrize(("eligible", "expected"), [({"b2"}, "b2"), (set(), None)])
def test_only_the_eligible_are_chosen(eligible, expected):
    """LC-34: and one that is left alone needs no figures"""
    assert routed(B1, B2, loads={}, eligible=frozenset(eligible)) == [expected]


@ROWS
def test_a_backend_that_gives_no_figures_in_two_seconds_is_done_without(story):
    """LC-28"""
    story.serve("b2", allocated=7)
    story.backends["b1"].always["stats"] = hang = Hang()
    story.create()
    began = time.monotonic()
    story.look()
    assert time.monotonic() - began < 10, "its calls may take 30 s"
    assert Operation.objects.get().backend_id == "b2"
    hang.release()


@ROWS
def test_the_only_backend_that_serves_it_is_not_asked_for_figures(story):
    """P16, BC-65"""
    uuid = story.create()
    story.look()
    story.push()
    assert story.operation(uuid).backend_id == "b1"
    assert story.backends["b1"].routes() == ["provision"]
    assert story.backends["b2"].routes() == []


@ROWS
def test_when_no_backend_gives_figures_each_decision_is_counted(story):
    """LC-29"""
    story.serve("b2")
    before = counted(metrics.ROUTING_FALLBACKS)
    for _ in range(4):
        story.create()
    story.look()
    assert counted(metrics.ROUTING_FALLBACKS) == before + 4
    assert Counter(Operation.objects.values_list("backend_id", flat=True)) == {"b1": 2, "b2": 2}


@ROWS
def test_forty_leases_at_one_moment_are_shared_equally(story):
    """LC-35"""
    story.serve("b1", allocated=2)
    story.serve("b2", allocated=2)
    for uuid in story.chain.create_leases(40):
        story.hear(UUID(uuid))
    story.look()
    assert Counter(Operation.objects.values_list("backend_id", flat=True)) == {"b1": 20, "b2": 20}


def owned_by(backend, uuid):
    PlacementFactory(lease_id=uuid, backend_id=backend, set_at=timezone.now())


@ROWS
def test_a_lease_whose_owner_is_not_configured_waits_and_goes_on_when_it_is_back(story):
    """LC-36, BC-71"""
    story.lists("b1")
    story.lists("b2")
    BackendFactory(name="old-name", url=story.backends["b2"].url, configured=False)
    uuid = story.create(news=False)
    story.hear(uuid)
    owned_by("old-name", uuid)
    for _ in range(3):
        story.sweep()
        make_due(Lease)
        story.settle()
        row = story.row(uuid)
        assert (row.phase, row.reason) == ("queued", "backend_unconfigured")
        assert row.due_at is not None
    assert not Operation.objects.exists()
    assert story.wishes(uuid) == {}
    assert Placement.objects.get().backend_id == "old-name"
    assert story.backends["b1"].routes(uuid) == story.backends["b2"].routes(uuid) == []
    Backend.objects.filter(name="old-name").update(configured=True)
    make_due(Lease)
    story.look()
    assert story.operation(uuid).backend_id == "old-name"


@ROWS
def test_a_lease_goes_back_to_its_owner_and_no_figures_are_asked_for(story):
    """LC-37"""
    story.serve("b1", allocated=0)
    story.serve("b2", allocated=8)
    uuid = story.create()
    owned_by("b2", uuid)
    story.look()
    story.push()
    assert story.operation(uuid).backend_id == "b2"
    assert story.backends["b1"].seen == []
    assert story.backends["b2"].routes() == ["provision"]


@ROWS
def test_a_lease_that_nobody_may_take_waits_with_the_reason(story):
    """LC-32, LC-33: every backend is fenced"""
    Backend.objects.update(fenced=True)
    uuid = story.create()
    story.look()
    row = story.row(uuid)
    assert (row.phase, row.reason) == ("queued", "no_backend")
    assert timedelta() < row.due_at - row.looked_at <= timedelta(seconds=30)
    assert not Operation.objects.exists()
