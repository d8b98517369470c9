"""The table of decisions, rule by rule: given these facts, exactly this decision."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciliation.decide import TABLE, decide, printed_table
from tests.reconciliation.decided_closed import CLOSED_BACKENDS
from tests.reconciliation.decided_command import COMMANDS
from tests.reconciliation.decided_ended import ENDED, REPORTS, SOURCES
from tests.reconciliation.decided_idle import ACTIVE_IDLE, PENDING_IDLE
from tests.reconciliation.decided_operation import OUTCOMES, UNDER_WAY
from tests.reconciliation.decided_restore import RESTORES
from tests.reconciliation.known import LIMITS, NOW

CASES = [
    *SOURCES,
    *REPORTS,
    *ENDED,
    *OUTCOMES,
    *UNDER_WAY,
    *PENDING_IDLE,
    *ACTIVE_IDLE,
    *CLOSED_BACKENDS,
    *COMMANDS,
    *RESTORES,
]


@pytest.mark.parametrize(("rule", "facts", "decision"), CASES)
def test_the_table(rule, facts, decision):
    deciding = next(one.__name__ for one in TABLE if one(facts, NOW, LIMITS) is not None)
    assert (deciding, decide(facts, NOW, LIMITS)) == (rule, decision)


def test_every_rule_has_a_case():
    assert {one.values[0] for one in CASES} == {rule.__name__ for rule in TABLE}


def test_no_two_cases_have_one_name():
    names = [one.id for one in CASES]
    assert len(names) == len(set(names))


def test_the_readme_shows_this_table():
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    shown = readme.partition("<!-- decide -->")[2].partition("<!-- /decide -->")[0]
    assert shown.strip() == printed_table()
