"""The last line: a tiny process that outlives `dev` for a moment and kills what it left.

The kernel already signals each child when `dev` dies; this catches grandchildren, such as the pool of a worker. It
reads lines from standard input, `+GROUP` and `-GROUP`; at the end of input it kills every group that is left. Run as
a file, without the rest of the project.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys


def watch() -> None:
    """Remember process groups until standard input ends, then kill them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line.startswith("+"):
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    watch()
