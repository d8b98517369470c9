"""Keys of the sub-signers: read from the keyring, or derived from the provider's mnemonic and written there once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from leases.chain import keyring
from leases.chain.errors import KeyUnusable
from leases.chain.keys import SigningKey
from leases.chain.signer import Role, Signer

LOOK_EVERY_S = 2.0
"""Missing keys are looked for at most so often: another process may have written them meanwhile."""


def name_of(key_name: str, index: int) -> str:
    """The keyring's name of the sub-signer with this index (from 0): `KEYNAME-sub-1` is the first."""
    return f"{key_name}-sub-{index + 1}"


@dataclass(slots=True)
class SubKeys:
    """The sub-signers whose keys this process holds: at most `count`, some may be missing.

    With the backend `env` they are derived and nothing is written. Raises `KeyUnusable` when a mnemonic is given that
    is not the provider's. Threads share it.
    """

    provider: Signer
    count: int
    directory: Path
    key_name: str
    backend: Literal["env", "file", "test"]
    passphrase: str = field(repr=False, default="")
    mnemonic: str = field(repr=False, default="")
    clock: Callable[[], float] = time.monotonic
    problems: dict[int, str] = field(default_factory=dict)
    """Why the key of an index cannot be used, as the last look found."""
    _found: dict[int, Signer] = field(default_factory=dict)
    _look_at: float = float("-inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if not self.count or not self.mnemonic:
            return
        derived = SigningKey.from_mnemonic(self.mnemonic).address(self.provider.prefix)
        if derived != self.provider.address:
            raise KeyUnusable(
                f"mnemonic does not match primary key: derived {derived}, expected {self.provider.address}"
            )

    def present(self) -> tuple[Signer, ...]:
        """The sub-signers that can sign here, by index; keys that another process wrote are found within 2 s."""
        with self._lock:
            if len(self._found) < self.count and self.clock() - self._look_at >= LOOK_EVERY_S:
                self._look()
            return tuple(self._found[index] for index in sorted(self._found))

    def missing(self) -> list[int]:
        """Indexes without a usable key here."""
        have = {one.index for one in self.present()}
        return [index for index in range(self.count) if index not in have]

    def write_missing(self) -> list[str]:
        """Derive the keys that the keyring has not and store them; return their names.

        Only one process at a time may do this. Does nothing without a mnemonic. Raises `KeyUnusable` at the first that
        cannot be stored; those before it are.
        """
        if self.backend == "env" or not self.mnemonic:
            return []
        written = []
        for index in range(self.count):
            name = name_of(self.key_name, index)
            if not keyring.has_key(self.directory, name, backend=self.backend):
                key = SigningKey.from_mnemonic(self.mnemonic, index + 1)
                keyring.write_key(self.directory, name, key, backend=self.backend, passphrase=self.passphrase)
                written.append(name)
        if written:
            with self._lock:
                self._look()
        return written

    def _look(self) -> None:
        self._look_at = self.clock()
        self.problems = {}
        for index in range(self.count):
            if index in self._found:
                continue
            try:
                key = self._key(index)
            except KeyUnusable as error:
                self.problems[index] = str(error)
                continue
            self._found[index] = replace(self.provider, key=key, role=Role.SUB_SIGNER, index=index)

    def _key(self, index: int) -> SigningKey:
        if self.backend == "env":
            if not self.mnemonic:
                raise KeyUnusable("keyring_backend env derives sub-signers from FRED_MNEMONIC, which is not set")
            return SigningKey.from_mnemonic(self.mnemonic, index + 1)
        name = name_of(self.key_name, index)
        if not keyring.has_key(self.directory, name, backend=self.backend):
            raise KeyUnusable(f"failed to get key {name}: not in the keyring")  # without the cost of its passphrase
        return keyring.read_key(self.directory, name, backend=self.backend, passphrase=self.passphrase)
