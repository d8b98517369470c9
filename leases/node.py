"""The chain as this deployment reaches it: one client per process, and the keys that sign for the provider."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from django.conf import settings

from fred.conf import HouseConfig, ProviderConfig
from leases.chain import configured
from leases.chain.client import ChainClient
from leases.chain.signer import Signer

T = TypeVar("T")


class _Kept(Generic[T]):
    """One object of this process, made anew when the settings are others than those it was made from."""

    def __init__(self, make: Callable[[ProviderConfig, HouseConfig], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._kept: tuple[ProviderConfig, HouseConfig, T] | None = None

    def get(self) -> T:
        config, house = settings.FRED, settings.HOUSE
        with self._lock:
            if self._kept is None or self._kept[0] is not config or self._kept[1] is not house:
                self._kept = (config, house, self._make(config, house))
            return self._kept[2]


_client: _Kept[ChainClient] = _Kept(lambda config, _: configured.chain_client(config))
_provider: _Kept[Signer] = _Kept(configured.provider_signer)


def client() -> ChainClient:
    """The chain that the settings name. Threads share it; a forked child connects anew by itself."""
    return _client.get()


def signers() -> tuple[Signer, ...]:
    """Every key this process may sign with. Raises `KeyUnusable`."""
    return (_provider.get(),)
