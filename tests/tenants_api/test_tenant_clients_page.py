"""docs/tenant-clients.md: each of its rows names a test, and each test that it names exists."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tenant-clients.md"
RUN = "A run of the unmodified client"
HEADING = ["The client looks at", "and then", "This provider sends", "Test"]
TEST = re.compile(r"`(tests/\w[\w/]*\.py)::(test_\w+)`")


def tables():
    """Section by section the rows of its tables, a row as its cells."""
    for section in PAGE.read_text(encoding="utf-8").split(f"\n## {RUN}\n")[0].split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        rows = [
            [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            for line in text.splitlines()
            if line.startswith("|")
        ]
        if rows:
            yield title, rows


ROWS = [pytest.param(row, id=f"{title}: {row[0]}") for title, rows in tables() for row in rows[2:]]


@cache
def functions(path):
    """Names of the functions on the outermost level of a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_table_has_the_same_four_columns():
    found = {title: rows[0] for title, rows in tables()}
    assert found == dict.fromkeys(found, HEADING)
    assert len(found) >= 9


def test_the_steps_that_the_page_shows_are_those_of_the_script():
    run = PAGE.read_text(encoding="utf-8").split(f"\n## {RUN}\n")[1]
    shown = re.findall(r"^ *\d+\.\d s  (\w+) ", run, re.MULTILINE)
    script = (ROOT / "fixtures" / "tenant-client" / "story.mjs").read_text(encoding="utf-8")
    assert shown == re.findall(r'^said\("(\w+)"', script, re.MULTILINE)
    assert len(shown) >= 12


@pytest.mark.parametrize("row", ROWS)
def test_every_row_names_tests_that_exist(row):
    assert len(row) == len(HEADING)
    assert all(row)
    named = TEST.findall(row[-1])
    assert named
    assert TEST.sub("", row[-1]).strip(" ,") == ""
    for path, name in named:
        assert name in functions(path), f"{path} has no {name}"
