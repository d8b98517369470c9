"""Valkey has ten seconds for an answer instead of 200 ms: how busy the machine is decides no test.

`python -m tests.patient fred.server` runs another module so, in a process of its own.
"""

from __future__ import annotations

import runpy
import sys

ANSWER_S = 10.0


def wait_for_valkey() -> None:
    """Let all of this process be patient; before other modules take the limit from where it is set."""
    from fred import breaker, tasks, valkey
    from reconciliation import rotation

    valkey.LIMIT_S = rotation.LIMIT_S = ANSWER_S
    breaker._LIMIT_S = ANSWER_S
    tasks.hint._limit_s = ANSWER_S


if __name__ == "__main__":
    wait_for_valkey()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
