"""One process at a time in a folder, and only in one that it may use."""

from __future__ import annotations

import fcntl
import os
import pwd
import shlex
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path

LOCK = "lock"
"""The file that every folder of ours has, from the first start on."""


class FolderInUseError(RuntimeError):
    """Another process holds the lock of this folder."""


class FolderUnusableError(RuntimeError):
    """This process may not keep its things there; the message says why and what helps."""


class FolderLock:
    """The right to use a folder, held by one process at a time and freed by the kernel when it ends."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; `__enter__` makes and locks it."""
        self.folder = folder
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        """Take the lock at once or raise FolderInUseError.

        Raises FolderUnusableError for a folder that belongs to somebody else, for root too, or holds other things than
        ours: what is in it may be deleted.
        """
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            way_out = "stop it, or name another folder: --folder PATH --free-ports"
            message = f"{self.folder} is in use by process {holder}; {way_out}"
            raise FolderInUseError(message) from error
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self._descriptor = descriptor
        return self

    def __exit__(self, *_: object) -> None:
        """Free the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        try:
            self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            if os.geteuid() == 0 and (owner := self.folder.stat().st_uid) != 0:
                raise FolderUnusableError(_not_roots(self.folder, owner))
            entries = list(self.folder.iterdir())
            if entries and not any(entry.name == LOCK for entry in entries):
                raise FolderUnusableError(
                    f"{self.folder} holds things that are not of `dev`, which deletes what it finds there; "
                    "name a new or an empty folder: --folder PATH"
                )
            for path in (self.folder, *(entry for entry in entries if entry.is_dir())):
                if not os.access(path, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
                    raise FolderUnusableError(_whose(path, self.folder))
            return os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except PermissionError as error:
            raise FolderUnusableError(_whose(error.filename or self.folder, self.folder)) from error
        except OSError as error:
            raise FolderUnusableError(
                f"{self.folder} cannot be used: {error.strerror}; name another: --folder PATH"
            ) from error


def _whose(denied: str | os.PathLike[str], folder: Path) -> str:
    """One line on a path that was denied to this process: whose it is, and how that is put right."""
    path = os.fspath(denied)
    while not os.path.lexists(path):  # what could not be made, or seen, is denied by the folder it belongs into
        path = os.path.dirname(path)  # noqa: PTH120 - text, so that nothing asks for it again
    owner, we = os.lstat(path).st_uid, os.geteuid()
    if not os.path.lexists(folder):
        fault = f"{folder} cannot be made: {path} belongs to {_name(owner)} and is closed to {_name(we)}"
        return f"{fault}; name another folder: --folder PATH"
    if owner == we:
        return f"{path} is closed to its owner {_name(owner)}; open it: chmod -R u+rwX {shlex.quote(str(folder))}"
    return (
        f"{path} belongs to {_name(owner)} and is closed to {_name(we)}; take it over: "
        f"sudo chown -R {_name(we)} {shlex.quote(str(folder))}, or name another folder: --folder PATH"
    )


def _not_roots(folder: Path, owner: int) -> str:
    """One line on a folder that root could use, and would fill with files that its owner can't change or delete."""
    who = _name(owner)
    return (
        f"{folder} belongs to {who}, and this is root, whose files {who} could not use any more; "
        f"start it as {who} (sudo -u {who} …), or name another folder: --folder PATH"
    )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
