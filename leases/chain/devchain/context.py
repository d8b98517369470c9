"""What a message sees while it runs: state, block time, events, gas, and the rule for new uuids."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

from leases.chain.devchain.errors import Refused
from leases.chain.devchain.keys import Coins, coins_text
from leases.chain.devchain.profiles import Profile
from leases.chain.devchain.records import Event
from leases.chain.devchain.state import State
from leases.chain.proto.coin_pb2 import Coin

_FNV_PRIME = 0x100000001B3
_FNV_START = 0xCBF29CE484222325
_MASK_64 = (1 << 64) - 1


def fnv1a(data: bytes, start: int = _FNV_START) -> int:
    """FNV-1a over 64 bits; `start` continues an earlier hash."""
    value = start
    for byte in data:
        value = (value ^ byte) * _FNV_PRIME & _MASK_64
    return value


def timestamp(nanoseconds: int) -> Timestamp:
    """A protobuf time of a block time."""
    return Timestamp(seconds=nanoseconds // 10**9, nanos=nanoseconds % 10**9)


def pb_coins(coins: Coins) -> list[Coin]:
    """Coins as protobuf messages."""
    return [Coin(denom=denom, amount=str(amount)) for denom, amount in coins]


class Context:
    """One transaction's view. `time` is the block time in nanoseconds, `seed` header hash and chain id."""

    def __init__(self, state: State, *, time: int, header_hash: bytes, chain_id: str, profile: Profile) -> None:
        self.state = state
        self.time = time
        self.profile = profile
        self.events: list[Event] = []
        self.gas = 0
        self.suffix: tuple[tuple[str, str], ...] = ()
        self._seed = header_hash + chain_id.encode()
        self._uuid_seeds: dict[str, int] = {}

    def emit(self, event_type: str, *attributes: tuple[str, str]) -> None:
        """Add an event; the indexes of the running message become its last attributes."""
        self.events.append(Event(event_type, attributes + self.suffix))

    def pay(self, payer: str, receiver: str, coins: Coins) -> None:
        """Move money, with the bank's four events. The caller has checked that it is there; no coins do nothing."""
        if not coins:
            return
        self.state.add(payer, coins, sign=-1)
        self.state.add(receiver, coins)
        amount = coins_text(coins)
        self.emit("coin_spent", ("spender", payer), ("amount", amount))
        self.emit("coin_received", ("receiver", receiver), ("amount", amount))
        self.emit("transfer", ("recipient", receiver), ("sender", payer), ("amount", amount))
        self.emit("message", ("sender", payer))

    def require_funds(self, payer: str, coins: Coins, refusal: tuple[str, int] = ("sdk", 5)) -> None:
        """Refuse unless the payer holds the coins."""
        for denom, amount in coins:
            held = self.state.balance(payer, denom)
            if held < amount:
                raise Refused(*refusal, f"spendable balance {held}{denom} is smaller than {amount}{denom}")

    def new_uuid(self, module: str) -> str:
        """The next UUIDv7 of a module: block time in ms, 12 bits of its sequence, 62 bits of a hash."""
        sequence = self.state.next_sequence(module)
        seed = self._uuid_seeds.get(module)
        if seed is None:
            seed = self._uuid_seeds[module] = fnv1a(self._seed + module.encode())
        tail = fnv1a(sequence.to_bytes(8, "big"), seed) & ((1 << 62) - 1) | (0b10 << 62)
        text = f"{self.time // 10**6:012x}7{sequence & 0xFFF:03x}{tail:016x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
