"""The checklist against the Go mock of v0.13: what it does not keep is known, each line with its reason.

`GO_MOCK_BACKEND` names its binary; without it only the expectation itself is looked at.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from backends.check import run
from backends.check.bench import Options
from backends.check.listener import Listener
from fred.dev.foreground import free_port
from fred.http import Request, fetch
from tests.backends.servers import SECRET
from tests.waiting import wait_until

EXPECTED = Path(__file__).parents[2] / "fixtures" / "check" / "go-mock-backend-v0.13.json"
BINARY = os.environ.get("GO_MOCK_BACKEND", "")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
OPTIONS = {"key": SECRET, "patience": 3.0, "unknown_sku": "nobody's", "too_much": 1000, "retention": False}


def expected():
    return json.loads(EXPECTED.read_text(encoding="utf-8"))


def told(one):
    """A result without what differs from run to run."""
    reason = re.sub(r"\bt=\d{6,}", "t=<seconds>", _UUID.sub("<uuid>", one.reason))
    return {"result": one.result.value, "reason": reason}


def test_every_failure_has_a_reason():
    lines = expected()
    assert all(line["because"] for line in lines.values() if line["result"] == "failed")
    assert not any(line.get("because") for line in lines.values() if line["result"] != "failed")


@pytest.mark.slow
@pytest.mark.skipif(not BINARY, reason="GO_MOCK_BACKEND names no binary")
def test_the_go_mock_is_as_expected():
    address = f"127.0.0.1:{free_port()}"
    environment = {
        "MOCK_BACKEND_ADDR": address,
        "MOCK_BACKEND_CALLBACK_SECRET": SECRET,
        "MOCK_BACKEND_DELAY": "250ms",
    }
    peer = subprocess.Popen([BINARY], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    listener = Listener("127.0.0.1", 0)
    try:
        url = f"http://{address}"
        wait_until(lambda: fetch(Request(f"{url}/health")).status == 200)
        options = Options(url=url, **OPTIONS)
        found = {one.case: told(one) for one in run.results(options, destructive=True, listener=listener)}
    finally:
        listener.close()
        peer.kill()
        peer.wait()
    wanted = {case: {"result": line["result"], "reason": line["reason"]} for case, line in expected().items()}
    assert found == wanted
