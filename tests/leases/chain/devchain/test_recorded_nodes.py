"""The simulated chain against recordings of real nodes of two generations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leases.chain import devchain as simulated
from tests.leases.chain.devchain.likeness import differences
from tests.leases.chain.devchain.scenario import play

VECTORS = Path(__file__).parents[4] / "fixtures" / "vectors"


@pytest.mark.parametrize(("profile", "name"), [("A", "node-a.json"), ("B", "node-b.json")])
def test_a_whole_scenario_is_answered_as_real_nodes_did(profile, name):
    """55 steps with everything they cause: checks, results, events, frames, answers."""
    recorded = json.loads((VECTORS / name).read_text())
    with simulated.run(fixture="scenario", block_mode="manual", profile=profile) as chain:
        played = play(chain)
    assert len(played["steps"]) == len(recorded["steps"]) == 55
    assert differences(recorded, played) == []
