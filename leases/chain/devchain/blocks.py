"""Blocks: their header, their own events, and the money that moves between two of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from leases.chain.devchain.context import Context
from leases.chain.devchain.keys import (
    DISTRIBUTION,
    FEE_COLLECTOR,
    decode_address,
    encode_address,
    named_key,
)
from leases.chain.devchain.records import Event
from leases.chain.devchain.transactions import TxResult

_VALIDATOR = named_key("validator")
OPERATOR = encode_address(decode_address(_VALIDATOR.address) or b"", "manifestvaloper")
PROPOSER = hashlib.sha256(_VALIDATOR.public_key).digest()[:20]
VALIDATORS_HASH = hashlib.sha256(PROPOSER).digest()
CONSENSUS_HASH = hashlib.sha256(b"consensus").digest()
EMPTY_HASH = hashlib.sha256(b"").digest()


@dataclass(slots=True)
class Block:
    """A committed block. `time` is nanoseconds; `undo` takes its writes back."""

    height: int
    time: int
    hash: bytes
    last_hash: bytes
    app_hash: bytes
    txs: list[TxResult] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    undo: list[tuple[str, Any, Any]] = field(default_factory=list)

    @property
    def data_hash(self) -> bytes:
        """A hash over the transactions."""
        if not self.txs:
            return EMPTY_HASH
        return hashlib.sha256(b"".join(bytes.fromhex(result.tx.hash) for result in self.txs)).digest()


def header_hash(chain_id: str, height: int, time: int) -> bytes:
    """The hash of a block: it depends on nothing but chain, height and time."""
    number, moment = height.to_bytes(8, "big"), time.to_bytes(8, "big")
    return hashlib.sha256(b"devchain" + chain_id.encode() + number + moment).digest()


def app_hash(height: int) -> bytes:
    """A stand-in for the hash of the state."""
    return hashlib.sha256(b"app" + height.to_bytes(8, "big")).digest()


def begin(ctx: Context) -> None:
    """Hand the fees of the last block on; emit what every block starts with."""
    coins = ctx.state.coins_of(FEE_COLLECTOR)
    ctx.suffix = (("mode", "BeginBlock"),)
    amount = ",".join(f"{value}{denom}" for denom, value in coins)
    ctx.state.add(FEE_COLLECTOR, coins, sign=-1)
    ctx.state.add(DISTRIBUTION, coins)
    ctx.emit("coin_spent", ("spender", FEE_COLLECTOR), ("amount", amount))
    ctx.emit("coin_received", ("receiver", DISTRIBUTION), ("amount", amount))
    ctx.emit("transfer", ("recipient", DISTRIBUTION), ("sender", FEE_COLLECTOR), ("amount", amount))
    ctx.emit("message", ("sender", FEE_COLLECTOR))
    rewards = ",".join(f"{_decimal(value * 98, 100)}{denom}" for denom, value in coins)
    ctx.emit("commission", ("amount", ""), ("validator", OPERATOR))
    ctx.emit("rewards", ("amount", rewards), ("validator", OPERATOR))


def _decimal(numerator: int, denominator: int) -> str:
    """A fraction with eighteen places, cut."""
    whole, rest = divmod(numerator, denominator)
    return f"{whole}.{rest * 10**18 // denominator:018d}"
