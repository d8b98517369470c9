"""`check_backend`: what it asks without leave, how it ends, what it prints; and the checks that need a process."""

import asyncio
import io
import json
import os
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from backends.check import run
from backends.check.bench import Options
from backends.check.cases import CASES, Case, Verdict
from backends.check.listener import Listener
from tests.backends.mock_process import process
from tests.backends.servers import SECRET, mock_agent, peer, served
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


def command(url, *arguments, key=SECRET, timeout=120):
    """The command as a process with no settings but the key."""
    environment = {"PATH": os.environ["PATH"], "MOCK_BACKEND_CALLBACK_SECRET": key}
    line = [sys.executable, "manage.py", "check_backend", url, "--contract", *arguments]
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
    return done.returncode, done.stdout, done.stderr


def test_without_leave_nothing_is_made_and_the_status_is_0():
    agent = mock_agent()
    with served(agent) as url:
        status, printed, _ = command(url, "--json")
        assert agent.metrics.requests["provision", 202] == 0
    report = json.loads(printed)
    assert (status, report["counts"]["failed"], report["contract"]) == (0, 0, "v0_13")
    by_case = {one["case"]: one for one in report["results"]}
    assert by_case["C1"]["result"] == "passed"
    assert by_case["C25"] == by_case["C25"] | {"result": "skipped", "reason": "needs --destructive"}
    assert set(by_case) == set(CASES)


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setenv("MOCK_BACKEND_CALLBACK_SECRET", SECRET)


def test_a_failed_check_is_status_1_and_says_what_came(key):
    printed = io.StringIO()
    with served(mock_agent()) as url, pytest.raises(SystemExit) as end:
        call_command("check_backend", url, "--contract", "--only", "C6,C10", "--key", "k" * 32, stdout=printed)
    assert end.value.code == 1
    wanted = 'C6       failed   upper-case hex: upper-case hex: 401, not 200: \'{"error":"invalid signature"}\''
    assert wanted in printed.getvalue()
    assert "C10      passed" in printed.getvalue()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--listen", "nowhere"], "'nowhere' is not HOST:PORT"),
        (["--hook", "explode=true"], "no such hook: explode"),
        (["--manifest", "/nowhere"], "/nowhere: No such file or directory"),
        (["--key", "env:NOT_THERE"], "no key"),
    ],
)
def test_what_cannot_be_begun_says_why(key, arguments, text):
    with pytest.raises(CommandError, match=text):
        call_command("check_backend", "http://127.0.0.1:9", "--contract", *arguments)


def checked(url, *cases, **options):
    listener = Listener("127.0.0.1", 0)
    try:
        asked = Options(url=url, key=SECRET, **{"patience": 10.0, **options})
        return {one.case: one for one in run.results(asked, destructive=True, listener=listener, only=cases)}
    finally:
        listener.close()


def test_a_backend_that_never_answers_fails_every_check_and_hangs_none():
    forever = threading.Event()

    def silent(_got):
        forever.wait(30)

    try:
        with peer(silent) as backend:
            found = checked(backend.url, "C6", "C25", "C40", "C70", patience=0.3)
    finally:
        forever.set()
    assert {one.result for case, one in found.items() if case != "C70"} == {Verdict.FAILED}
    assert "no answer" in found["C6"].reason
    assert all(one.seconds < 10 for one in found.values())


def test_a_check_that_hangs_is_left_behind(monkeypatch):
    hangs = threading.Event()
    monkeypatch.setitem(CASES, "C6", Case("C6", "hangs", lambda _bench: hangs.wait(30), False, 0.1))
    with served(mock_agent()) as url:
        found = checked(url, "C6", "C8")
    hangs.set()
    assert found["C6"].reason == "it did not end within 0.1 s"
    assert found["C8"].result is Verdict.PASSED


def test_leases_that_cannot_be_removed_are_a_failure():
    agent = mock_agent()
    with served(agent) as url:

        async def stuck(_lease):
            raise RuntimeError("stuck")

        agent.backend.deprovision = stuck
        found = checked(url, "C21")
    assert found["C21"].result is Verdict.PASSED
    assert "1 leases could not be removed" in found["cleanup"].reason


def test_what_was_made_before_its_teardown_came_is_no_failure():
    agent = mock_agent(delay=timedelta(milliseconds=50))
    report, deprovision, made = agent.backend.report, agent.backend.deprovision, asyncio.Event()

    async def noted(*what, **how):
        await report(*what, **how)
        made.set()

    async def late(lease):
        await made.wait()
        return await deprovision(lease)

    agent.backend.report, agent.backend.deprovision = noted, late
    with served(agent) as url:
        found = checked(url, "C72")
    assert (found["C72"].result, found["C72"].reason) == (
        Verdict.SKIPPED,
        "it was ready before it could be torn down",
    )


def test_an_answer_of_no_shape_is_a_failure_of_the_backend():
    agent = mock_agent()
    with served(agent) as url:

        async def nothing(**_page):
            return 5

        agent.backend.retentions = nothing
        found = checked(url, "C44")
    assert found["C44"].result is Verdict.FAILED


@pytest.mark.slow
def test_c82_c87_c89_of_a_process_that_is_killed_and_started_again(tmp_path):
    state, log, pid = (tmp_path / name for name in ("a.sqlite", "log", "pid"))
    with process(MOCK_BACKEND_STATE_PATH=str(state)) as (running, url):
        wait_until(lambda: checked(url, "C10")["C10"].result is Verdict.PASSED)
        pid.write_text(str(running.pid))
        port = url.rpartition(":")[2]
        hook = f"{sys.executable} -m tests.contract.restart_mock {pid} {port} {state} {SECRET} {log}"
        log.touch()
        try:
            found = checked(url, "C82", "C87", "C89", patience=60.0, hooks={"restart": hook}, log_file=str(log))
        finally:
            os.kill(int(pid.read_text()), 9)
    assert {one.case: one.reason for one in found.values() if one.result is not Verdict.PASSED} == {}


KILL = """
import json, os, sys, urllib.request
body = json.dumps({"lease_uuid": os.environ["LEASE_UUID"]}).encode()
headers = {"Authorization": "Bearer " + sys.argv[2], "Content-Type": "application/json"}
urllib.request.urlopen(urllib.request.Request(sys.argv[1] + "/_mock/kill", body, headers), timeout=10).read()
"""


def test_c88_a_workload_that_dies_is_reported_once_as_failed(tmp_path):
    token, script = "token-0123456789abcdef", tmp_path / "kill.py"
    script.write_text(KILL)
    with process(MOCK_BACKEND_CONTROL_TOKEN=token) as (_, url):
        wait_until(lambda: checked(url, "C10")["C10"].result is Verdict.PASSED)
        hook = f"{sys.executable} {script} {url} {token}"
        found = checked(url, "C88", patience=60.0, hooks={"kill-workload": hook})
        unkilled = checked(url, "C88", patience=1.0, hooks={"kill-workload": sys.executable + " -c pass"})
    assert {one.case: (one.result, one.reason) for one in found.values() if one.result is not Verdict.PASSED} == {}
    assert unkilled["C88"].result is Verdict.FAILED
