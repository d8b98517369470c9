"""The state of the simulated chain and its journal.

Every write goes through a method that notes the old value in a journal. Dropping a failed transaction, dropping a
simulation and looking at an old height are the same thing: undo the journal from its end. Records are immutable, so
a copy of the tables is a copy of the state.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any

from leases.chain.devchain.keys import Coins, as_coins
from leases.chain.devchain.records import PENDING, Account, CreditAccount, Grant, Lease, Params, Provider, Sku

_ABSENT = object()


class State:
    """Tables of the chain. Not thread-safe: one thread writes and reads."""

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}
        self.balances: dict[tuple[str, str], int] = {}
        self.grants: dict[tuple[str, str, str], Grant] = {}
        self.providers: dict[str, Provider] = {}
        self.skus: dict[str, Sku] = {}
        self.leases: dict[str, Lease] = {}
        self.credits: dict[str, CreditAccount] = {}
        self.domains: dict[str, tuple[str, str]] = {}
        self.settings: dict[str, Any] = {"params": Params(), "sku_allowed": ()}
        self.sequences: dict[str, int] = {}
        self.journal: list[tuple[dict[Any, Any], Any, Any]] = []
        self._listings: dict[tuple[str, str, int], dict[str, None]] = {}
        self._sorted: dict[tuple[str, str, int], list[str]] = {}
        self._deadlines: list[tuple[int, str]] = []

    # --- journal ---------------------------------------------------------

    def set(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Write one row and note what was there."""
        self.journal.append((table, key, table.get(key, _ABSENT)))
        table[key] = value

    def remove(self, table: dict[Any, Any], key: Any) -> None:
        """Delete one row and note what was there."""
        self.journal.append((table, key, table.pop(key, _ABSENT)))

    def undo_to(self, mark: int) -> None:
        """Take back every write since the journal had this length."""
        journal = self.journal
        while len(journal) > mark:
            table, key, old = journal.pop()
            if table is self.leases:
                self._index(self.leases.get(key), None if old is _ABSENT else old)
            if old is _ABSENT:
                table.pop(key, None)
            else:
                table[key] = old

    def take_journal(self) -> list[tuple[str, Any, Any]]:
        """End a block: hand over what undoes it (table names instead of tables) and start a new journal."""
        names = {id(table): name for name, table in vars(self).items() if isinstance(table, dict)}
        taken = [(names[id(table)], key, old) for table, key, old in self.journal]
        self.journal.clear()
        return taken

    def copy(self, undo: Iterable[list[tuple[str, Any, Any]]] = ()) -> State:
        """A copy for reading, with the given blocks undone (newest first)."""
        twin = State()
        for name in TABLES:
            setattr(twin, name, dict(getattr(self, name)))
        for block in undo:
            for name, key, old in reversed(block):
                table = getattr(twin, name)
                if old is _ABSENT:
                    table.pop(key, None)
                else:
                    table[key] = old
        for lease in twin.leases.values():
            twin._index(None, lease)
        return twin

    # --- leases ----------------------------------------------------------

    def put_lease(self, lease: Lease) -> None:
        """Store a lease and keep the listings and the deadlines of PENDING leases right."""
        old = self.leases.get(lease.uuid)
        self.journal.append((self.leases, lease.uuid, _ABSENT if old is None else old))
        self.leases[lease.uuid] = lease
        self._index(old, lease)

    def _index(self, old: Lease | None, new: Lease | None) -> None:
        if old is not None and (new is None or new.state != old.state):
            for listing in _listings_of(old):
                self._listings[listing].pop(old.uuid, None)
                self._sorted.pop(listing, None)
        if new is not None and (old is None or new.state != old.state):
            for listing in _listings_of(new):
                self._listings.setdefault(listing, {})[new.uuid] = None
                self._sorted.pop(listing, None)
        if new is not None and new.state == PENDING:
            heapq.heappush(self._deadlines, (new.created_at, new.uuid))

    def lease_uuids(self, kind: str, key: str, state: int) -> list[str]:
        """Uuids in ascending order: kind `provider`, `tenant`, `sku` or `all` (key empty); state 0 is every state."""
        listing = (kind, key, state)
        found = self._sorted.get(listing)
        if found is None:
            found = self._sorted[listing] = sorted(self._listings.get(listing, ()))
        return found

    def overdue(self, before: int, limit: int) -> list[Lease]:
        """PENDING leases created strictly before this time, the lowest uuids first, at most `limit`."""
        heap, found = self._deadlines, {}
        while heap and heap[0][0] < before:
            created_at, uuid = heapq.heappop(heap)
            lease = self.leases.get(uuid)
            if lease is not None and lease.state == PENDING and lease.created_at == created_at:
                found[uuid] = lease
        chosen = sorted(found)
        for uuid in chosen[limit:]:
            heapq.heappush(heap, (found[uuid].created_at, uuid))
        return [found[uuid] for uuid in chosen[:limit]]

    # --- money and accounts ----------------------------------------------

    def balance(self, address: str, denom: str) -> int:
        """Base units of one denomination at an address."""
        return self.balances.get((address, denom), 0)

    def coins_of(self, address: str) -> Coins:
        """Everything an address holds."""
        return as_coins({denom: amount for (owner, denom), amount in self.balances.items() if owner == address})

    def add(self, address: str, coins: Coins, *, sign: int = 1) -> None:
        """Add (or with sign -1 take) coins; the caller has checked that they are there."""
        for denom, amount in coins:
            self.set(self.balances, (address, denom), self.balance(address, denom) + sign * amount)

    def account(self, address: str) -> Account:
        """The account of an address, made with the next number when there is none."""
        found = self.accounts.get(address)
        if found is None:
            found = Account(address, len(self.accounts))
            self.set(self.accounts, address, found)
        return found

    @property
    def params(self) -> Params:
        """Parameters of the billing module."""
        params: Params = self.settings["params"]
        return params

    @property
    def sku_allowed(self) -> tuple[str, ...]:
        """Who besides the authority may create providers and SKUs."""
        allowed: tuple[str, ...] = self.settings["sku_allowed"]
        return allowed

    def next_sequence(self, module: str) -> int:
        """The next number for uuids of this module, from 0."""
        number = self.sequences.get(module, 0)
        self.set(self.sequences, module, number + 1)
        return number


TABLES = (
    "accounts",
    "balances",
    "grants",
    "providers",
    "skus",
    "leases",
    "credits",
    "domains",
    "settings",
    "sequences",
)


def _listings_of(lease: Lease) -> set[tuple[str, str, int]]:
    keys = {("all", ""), ("provider", lease.provider_uuid), ("tenant", lease.tenant)}
    keys |= {("sku", item.sku_uuid) for item in lease.items}
    return {(kind, key, state) for kind, key in keys for state in (0, lease.state)}
