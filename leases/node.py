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
from leases.chain.subkeys import SubKeys

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


_nodes: _Kept[configured.Nodes] = _Kept(lambda config, _: configured.Nodes(config))
_provider: _Kept[Signer] = _Kept(configured.provider_signer)
_sub_keys: _Kept[SubKeys] = _Kept(configured.sub_keys)


def client() -> ChainClient:
    """The chain, through the node that is asked now. Threads share it; a forked child connects anew by itself.

    Whoever does one piece of work (a listing, a transaction up to its broadcast) keeps what this returned; the next
    piece may go to another node.
    """
    return _nodes.get().client()


def provider() -> Signer:
    """The provider's own key. Raises `KeyUnusable`."""
    return _provider.get()


def sub_keys() -> SubKeys:
    """The sub-signers' keys of this process. Raises `KeyUnusable`."""
    return _sub_keys.get()


def signers() -> tuple[Signer, ...]:
    """Every key this process may sign with, the provider's first. Raises `KeyUnusable`."""
    return (provider(), *sub_keys().present())


def lane_label(address: str) -> str:
    """The label of a signer's lane in metrics: the number of a sub-signer from 0, and 0 for the provider's key."""
    return next((str(one.index) for one in sub_keys().present() if one.address == address), "0")
