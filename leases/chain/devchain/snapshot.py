"""A whole chain as one JSON value, and a chain from such a value."""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from leases.chain.devchain import stored
from leases.chain.devchain.blocks import Block
from leases.chain.devchain.chain import Chain
from leases.chain.devchain.profiles import profile
from leases.chain.devchain.state import TABLES, State
from leases.chain.devchain.transactions import hash_of

FORMAT = 1
MOVING = ("profile", "offset_ns", "trusted_count")


def take(chain: Chain) -> dict[str, Any]:
    """Everything that makes this chain: state, blocks, transactions, mempool, clock, profile; no faults."""
    return {
        "format": FORMAT,
        "genesis": chain.genesis.name,
        "chain_id": chain.chain_id,
        "gas_price": str(chain.gas_price),
        **_moving(chain),
        "height": chain.height,
        "earliest": chain.earliest,
        "state": {name: _rows(getattr(chain.state, name)) for name in TABLES},
        "blocks": [stored.block_value(block) for block in chain.blocks.values()],
        "mempool": [stored.tx_value(tx) for tx in chain.mempool.values()],
        "cache": list(chain.cache),
    }


def put_back(chain: Chain, value: dict[str, Any]) -> None:
    """Make the chain what the value says; raises ValueError for another chain's or a broken one, and changes nothing.

    States of heights before the snapshot cannot be read any more.
    """
    if value.get("format") != FORMAT:
        raise ValueError(f"this is no snapshot of format {FORMAT}")
    if value["chain_id"] != chain.chain_id:
        raise ValueError(f"the snapshot is of {value['chain_id']}, this chain is {chain.chain_id}")
    made = [stored.block_from(block) for block in value["blocks"]]
    mempool = [stored.tx_from(one) for one in value["mempool"]]
    state = _state_from(value["state"])
    traits, price = profile(str(value["profile"])), Fraction(str(value["gas_price"]))
    chain.profile, chain.gas_price = traits, price
    chain.load(state, made)
    chain.offset, chain.trusted_count = int(value["offset_ns"]), int(value["trusted_count"])
    chain.mempool = OrderedDict((tx.hash, tx) for tx in mempool)
    chain.cache = OrderedDict.fromkeys(value["cache"])
    chain.recheck()


def _moving(chain: Chain) -> dict[str, Any]:
    return {"profile": chain.profile.name, "offset_ns": chain.offset, "trusted_count": chain.trusted_count}


def _rows(table: dict[Any, Any]) -> list[list[Any]]:
    return [[stored.plain(key), stored.plain(value)] for key, value in table.items()]


def _state_from(tables: dict[str, list[list[Any]]]) -> State:
    state = State()
    for name in TABLES:
        getattr(state, name).update(stored.row(name, key, value) for key, value in tables[name])
    return state.copy()


# --- what one block changed --------------------------------------------------------


def take_block(chain: Chain, block: Block) -> dict[str, Any]:
    """A block and every row it changed; with the snapshot of the block before, the chain at this block."""
    changed: dict[str, dict[Any, None]] = {}
    for name, key, _ in block.undo:
        changed.setdefault(name, {})[key] = None
    rows = {name: _present_rows(getattr(chain.state, name), keys) for name, keys in changed.items()}
    return {**_moving(chain), "block": stored.block_value(block), "rows": rows}


def _present_rows(table: dict[Any, Any], keys: Iterable[Any]) -> list[list[Any]]:
    """Key and value; only the key where the row is gone."""
    return [[stored.plain(key), *([stored.plain(table[key])] if key in table else [])] for key in keys]


def replay(value: dict[str, Any], changes: Iterable[dict[str, Any]]) -> None:
    """Bring a snapshot forward by the changes of the blocks after it, all as JSON values."""
    tables = {name: {_hashable(entry[0]): entry for entry in value["state"].get(name, ())} for name in TABLES}
    for change in changes:
        for name, rows in change["rows"].items():
            for entry in rows:
                if len(entry) > 1:
                    tables[name][_hashable(entry[0])] = entry
                else:
                    tables[name].pop(_hashable(entry[0]), None)
        block = change["block"]
        value["blocks"].append(block)
        value["height"] = block["height"]
        value.update({name: change[name] for name in MOVING})
        included = {one["raw"] for one in block["txs"]}
        value["cache"] += [hash_of(base64.b64decode(one["raw"])) for one in block["txs"] if not one["trusted"]]
        value["mempool"] = [one for one in value["mempool"] if one["raw"] not in included]
    value["state"] = {name: list(table.values()) for name, table in tables.items()}


def _hashable(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key
