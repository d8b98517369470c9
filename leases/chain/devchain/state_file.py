"""The file in which a chain survives the end of its process.

Its first line is a snapshot, each further line one block with the rows it changed, written when the block is
committed. Whoever kills the process loses at most the block that was just being written: a torn last line is ignored.
A new snapshot is written beside the file and renamed over it, so that there is always one whole file.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import IO, Any

from leases.chain.devchain import snapshot
from leases.chain.devchain.blocks import Block
from leases.chain.devchain.chain import Chain

REWRITE_AFTER = 64 * 1024 * 1024
"""Bytes of blocks after which a new snapshot takes their place."""


class StateFile:
    """Saves one chain at one path."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._height = 0
        self._appended = 0

    def read(self) -> dict[str, Any] | None:
        """The saved chain as a snapshot; None without a file. Raises ValueError for a file that is none."""
        try:
            lines = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return None
        whole = lines[:-1]  # what stands behind the last line end was not written to its end
        try:
            value, *changes = (json.loads(line) for line in whole)
            snapshot.replay(value, changes)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{self._path} holds no saved chain: {error}") from error
        saved: dict[str, Any] = value
        return saved

    def open(self, chain: Chain) -> None:
        """Write a snapshot now and every block from now on. Raises OSError."""
        self._rewrite(chain)
        chain.listeners.append(lambda block: self._on_block(chain, block))

    def close(self, chain: Chain) -> None:
        """Write a last snapshot, the mempool and all that no block holds yet included."""
        if self._file is not None and not chain.is_departed:
            self._rewrite(chain)
        if self._file is not None:
            self._file.close()
            self._file = None

    def save(self, chain: Chain) -> None:
        """Write a snapshot: the chain was changed otherwise than by a block."""
        if self._file is not None:
            self._rewrite(chain)

    def _on_block(self, chain: Chain, block: Block) -> None:
        if self._file is None or chain.is_departed:
            return
        if block.height != self._height + 1 or self._appended > REWRITE_AFTER:
            self._rewrite(chain)
            return
        self._appended += self._file.write(_line(snapshot.take_block(chain, block)))
        self._file.flush()
        self._height = block.height

    def _rewrite(self, chain: Chain) -> None:
        fresh = self._path.with_name(f"{self._path.name}.new")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with fresh.open("wb") as file:
            file.write(_line(snapshot.take(chain)))
            file.flush()
            os.fsync(file.fileno())
        if self._file is not None:
            self._file.close()
        fresh.replace(self._path)
        self._file = self._path.open("ab")
        self._height, self._appended = chain.height, 0
        with contextlib.suppress(OSError):
            folder = os.open(self._path.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)


def _line(value: dict[str, Any]) -> bytes:
    """Numbers of any size, so not by the fast writer of JSON, which stops at 64 bits."""
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
