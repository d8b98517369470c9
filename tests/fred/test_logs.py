"""Logs: one line per record, fields by name, nothing secret, nothing endless."""

import json
import logging
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
import structlog

from fred import logs


@pytest.fixture
def lines(capsys):
    """Logs as JSON; what was written since, one dict per line."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    logs.set_up(level="info", output="json", process="worker")

    def read():
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    yield read
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_record_has_the_common_members(lines):
    structlog.get_logger("x").info("provision.refused", backend="docker-1", lease_uuid=UUID(int=1))
    (record,) = lines()
    assert record["msg"] == "provision.refused"
    assert record["level"] == "INFO"
    assert record["process"] == "worker"
    assert record["pid"] > 0
    assert record["lease_uuid"] == "00000000-0000-0000-0000-000000000001"
    assert record["time"].endswith("Z")
    assert len(record["time"]) == len("2026-01-01T00:00:00.000Z")


@pytest.mark.parametrize(("method", "level"), [("warning", "WARN"), ("error", "ERROR"), ("critical", "ERROR")])
def test_levels_are_named_as_the_contract_names_them(lines, method, level):
    getattr(structlog.get_logger("x"), method)("e")
    getattr(logging.getLogger("library"), method)("%s came", "e")
    assert [(record["level"], record["msg"]) for record in lines()] == [(level, "e"), (level, "e came")]


def test_what_is_below_the_level_is_left_out_until_the_level_changes(lines):
    structlog.get_logger("x").debug("unheard")
    logs.set_level("debug")
    structlog.get_logger("x").debug("heard")
    assert [record["msg"] for record in lines()] == ["heard"]


def test_bound_context_is_on_every_record_inside_and_on_none_after(lines):
    with logs.bound(task_id="t"):
        structlog.get_logger("x").info("inside")
        logging.getLogger("library").info("library inside")
    structlog.get_logger("x").info("outside")
    assert [record.get("task_id") for record in lines()] == ["t", "t", None]


def test_an_exception_is_logged_with_its_causes(lines):
    def fail():
        try:
            raise ConnectionError("refused")
        except ConnectionError as error:
            raise RuntimeError("backend is silent") from error

    try:
        fail()
    except RuntimeError as error:
        structlog.get_logger("x").warning("it failed", error=error)
    assert lines()[0]["error"] == "RuntimeError: backend is silent <- ConnectionError: refused"


def test_a_traceback_stays_on_one_line(lines):
    try:
        raise ValueError("x")
    except ValueError:
        structlog.get_logger("x").exception("boom")
    (record,) = lines()
    assert "Traceback" in record["exception"]
    assert record["level"] == "ERROR"


def test_values_are_plain_and_bounded(lines):
    structlog.get_logger("x").info(
        "e",
        took=timedelta(milliseconds=1500),
        at=datetime(2026, 1, 2, tzinfo=UTC),
        body=b"secret",
        long="x" * 5000,
        many=list(range(1000)),
        other=object,
    )
    (record,) = lines()
    assert record["took"] == "1.5s"
    assert record["at"] == "2026-01-02T00:00:00.000Z"
    assert record["body"] == "<6 bytes>"
    assert len(record["long"]) == logs.MAX_TEXT
    assert len(record["many"]) == 50


def test_received_junk_is_cut_and_stripped_of_control_characters():
    assert logs.clean("a\x00b\nc") == "a�b�c"
    assert logs.clean("é" * 200) == "é" * 127 + "…"


def test_text_output_is_key_value(capsys):
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    logs.set_up(level="info", output="text", process="web")
    structlog.get_logger("x").info("http request", status=200, path="/a b")
    root.handlers[:] = handlers
    root.setLevel(level)
    line = capsys.readouterr().out.strip()
    assert line.startswith("time=")
    assert 'level=INFO msg="http request"' in line
    assert 'path="/a b"' in line


def test_a_command_logs_to_standard_error(capsys):
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    logs.set_up(level="info", output="json", process="lease", to_stdout=False)
    structlog.get_logger("x").info("e")
    root.handlers[:] = handlers
    root.setLevel(level)
    written = capsys.readouterr()
    assert written.out == ""
    assert '"msg": "e"' in written.err


RECORDS = [
    {"method": "POST", "path": "/callbacks/provision", "status": 200, "duration_ms": 1.25, "peer": "127.0.0.1"},
    {"method": "GET", "path": '/a b="c"\\d', "status": 404, "duration_ms": 0.5, "peer": ""},
]


@pytest.mark.parametrize("output", ["json", "text"])
def test_lines_written_together_are_those_of_a_logger(lines, capsys, output):
    def written():
        found = capsys.readouterr().out.splitlines()
        for start, end in (('"time":', '"level"'), ("time=", "level")):
            found = [line if start not in line else line[line.index(end) :] for line in found]
        return [line.replace('": ', '":').replace(', "', ',"') for line in found]

    logs.set_up(level="info", output=output, process="web")
    logs.lines("api.request", RECORDS)
    together = written()
    for record in RECORDS:
        structlog.get_logger("fred.edge").info("api.request", **record)
    assert together == written()
    assert len(together) == len(RECORDS)


def test_lines_below_the_level_are_left_out(lines):
    logs.set_level("warn")
    logs.lines("api.request", RECORDS)
    assert lines() == []
