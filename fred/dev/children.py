"""Child processes that never outlive their parent."""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

PR_SET_PDEATHSIG = 1
"""Number of the prctl option by which Linux signals a process when the thread that spawned it ends."""

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Account:
    """A user that a child runs as."""

    name: str
    uid: int
    gid: int


def unprivileged_account() -> Account | None:
    """The account for servers that refuse to run as root: `nobody` if this process is root, else None (as self)."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("nobody")
    return Account(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid)


def spawn(
    command: Sequence[str | Path],
    log: Path,
    *,
    environment: Mapping[str, str] | None = None,
    account: Account | None = None,
    death_signal: signal.Signals = signal.SIGKILL,
    folder: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start `command` in a process group of its own, its output appended to `log` (mode 0600).

    The kernel sends `death_signal` to the child when the spawning *thread* ends, so only a thread that lives as long
    as the process may call this: others get a RuntimeError. Raises OSError when the program can't be executed.
    """
    if threading.current_thread() is not threading.main_thread():
        message = "children are spawned by the main thread only: they end with the thread that spawned them"
        raise RuntimeError(message)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            [os.fspath(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=subprocess.STDOUT,
            env=None if environment is None else dict(environment),
            cwd=folder,
            process_group=0,
            user=None if account is None else account.uid,
            group=None if account is None else account.gid,
            extra_groups=None if account is None else [],
            # A change of user clears the death signal, so it is set after that, in the child.
            preexec_fn=_die_with(os.getpid(), death_signal),  # noqa: PLW1509 - called from the main thread
        )
    finally:
        os.close(descriptor)


def stop(
    process: subprocess.Popen[bytes],
    *,
    signals: Sequence[tuple[signal.Signals, float]] = ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)),
) -> int | None:
    """End a child: send each signal and wait its seconds; what is left of the process group is killed.

    Returns the exit status, or None when even the last signal had no effect in time.
    """
    for number, seconds in signals:
        if process.poll() is not None:
            break
        process.send_signal(number)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            continue
    kill_group(process.pid)
    return process.poll()


def end_with(parent: int) -> bool:
    """Have the kernel send this process SIGTERM when `parent`, which started it, ends; False when it has ended before.

    Only the caller knows whether its parent stays for as long as it runs: a shell need not. With a shell in between,
    as a pipe needs one, nothing is sent.
    """
    if os.getppid() != parent:
        return descends_from(parent)
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    return os.getppid() == parent  # it may have ended before the line above


def descends_from(parent: int) -> bool:
    """Whether this process was started by `parent`, through others perhaps, and that still runs."""
    return any(one.pid == parent for one in psutil.Process().parents())


def kill_group(group: int) -> None:
    """Kill whatever still runs in a process group that `spawn` made; an empty group is fine."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def tail(log: Path, *, lines: int = 20) -> str:
    """The last lines of a log, for an error message; empty when there is none."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def _die_with(parent: int, number: signal.Signals) -> Callable[[], None]:
    def in_the_child() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)

    return in_the_child
