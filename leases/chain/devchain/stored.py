"""Records, blocks and transactions as JSON values, and back.

A record becomes an object with the names of its fields, bytes become hex. Reading goes by the types of the record's
class, so that a value written by an older version gets the defaults of what it did not know.
"""

from __future__ import annotations

import base64
import functools
from typing import Any, get_args, get_origin, get_type_hints

from leases.chain.devchain import blocks
from leases.chain.devchain.blocks import Block
from leases.chain.devchain.records import (
    Account,
    CreditAccount,
    Event,
    Grant,
    Lease,
    Params,
    Provider,
    Sku,
)
from leases.chain.devchain.transactions import DecodedTx, TxResult, decode

_ROWS: dict[str, Any] = {
    "accounts": Account,
    "balances": int,
    "grants": Grant,
    "providers": Provider,
    "skus": Sku,
    "leases": Lease,
    "credits": CreditAccount,
    "domains": tuple[str, str],
    "sequences": int,
}
_SETTINGS: dict[str, Any] = {"params": Params, "sku_allowed": tuple[str, ...]}


def plain(value: Any) -> Any:
    """A stored value as JSON."""
    if hasattr(value, "_asdict"):
        return {name: plain(field) for name, field in value._asdict().items()}
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    return value.hex() if isinstance(value, bytes) else value


def row(table: str, key: Any, value: Any) -> tuple[Any, Any]:
    """Key and value of a table from their JSON; raises KeyError or TypeError for what is none."""
    kind = _SETTINGS[key] if table == "settings" else _ROWS[table]
    return tuple(key) if isinstance(key, list) else key, _typed(kind, value)


@functools.cache
def _fields(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _typed(kind: Any, value: Any) -> Any:
    if kind is bytes:
        return bytes.fromhex(value)
    if get_origin(kind) is tuple:
        inner = get_args(kind)
        if inner[-1] is Ellipsis:
            return tuple(_typed(inner[0], part) for part in value)
        return tuple(_typed(one, part) for one, part in zip(inner, value, strict=True))
    if isinstance(value, dict):
        known = _fields(kind)
        return kind(**{name: _typed(known[name], part) for name, part in value.items()})
    return value


# --- blocks -----------------------------------------------------------------------


def block_value(block: Block) -> dict[str, Any]:
    """A block with its transactions and events; what undoes it is left out."""
    return {
        "height": block.height,
        "time_ns": block.time,
        "hash": block.hash.hex(),
        "last_hash": block.last_hash.hex(),
        "events": _events_value(block.events),
        "txs": [_result_value(result) for result in block.txs],
    }


def block_from(value: dict[str, Any]) -> Block:
    """A block from its JSON."""
    height, time = int(value["height"]), int(value["time_ns"])
    made = Block(
        height, time, bytes.fromhex(value["hash"]), bytes.fromhex(value["last_hash"]), blocks.app_hash(height - 1)
    )
    made.events = _events_from(value["events"])
    made.txs = [_result_from(one, height, index, time) for index, one in enumerate(value["txs"])]
    return made


def tx_value(tx: DecodedTx) -> dict[str, Any]:
    """A transaction as its bytes, and whether it came without a signature."""
    return {"raw": base64.b64encode(tx.raw).decode(), "trusted": tx.trusted}


def tx_from(value: dict[str, Any]) -> DecodedTx:
    """A transaction from its JSON."""
    tx = decode(base64.b64decode(value["raw"]))
    tx.trusted = bool(value["trusted"])
    return tx


def _result_value(result: TxResult) -> dict[str, Any]:
    return {
        **tx_value(result.tx),
        "code": result.code,
        "codespace": result.codespace,
        "log": result.log,
        "data": result.data.hex(),
        "gas_wanted": result.gas_wanted,
        "gas_used": result.gas_used,
        "indexed_at": result.indexed_at,
        "events": _events_value(result.events),
    }


def _result_from(value: dict[str, Any], height: int, index: int, time: int) -> TxResult:
    return TxResult(
        tx_from(value),
        height,
        index,
        time,
        code=int(value["code"]),
        codespace=str(value["codespace"]),
        log=str(value["log"]),
        data=bytes.fromhex(value["data"]),
        gas_wanted=int(value["gas_wanted"]),
        gas_used=int(value["gas_used"]),
        events=_events_from(value["events"]),
        indexed_at=float(value["indexed_at"]),
    )


def _events_value(events: list[Event]) -> list[Any]:
    return [[event.type, [list(pair) for pair in event.attributes]] for event in events]


def _events_from(value: list[Any]) -> list[Event]:
    return [Event(kind, tuple((key, text) for key, text in attributes)) for kind, attributes in value]
