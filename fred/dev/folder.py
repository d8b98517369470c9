"""One process at a time in a folder."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path


class FolderInUseError(RuntimeError):
    """Another process holds the lock of this folder."""


class FolderLock:
    """The right to use a folder, held by one process at a time and freed by the kernel when it ends."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; `__enter__` makes and locks it."""
        self.folder = folder
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        """Take the lock at once or raise FolderInUseError."""
        self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            message = f"{self.folder} is in use by process {holder}"
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
