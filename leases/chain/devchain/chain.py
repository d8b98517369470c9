"""The chain itself: mempool, checks, blocks. One thread uses it; nothing here waits."""

from __future__ import annotations

import time as clock
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from google.protobuf.message import Message

from leases.chain.devchain import ante, billing, blocks, execution
from leases.chain.devchain.blocks import Block
from leases.chain.devchain.context import Context
from leases.chain.devchain.errors import Refused
from leases.chain.devchain.execution import Simulation, SimulationFailed
from leases.chain.devchain.faults import Fault, Faults
from leases.chain.devchain.genesis import Genesis
from leases.chain.devchain.messages import pack
from leases.chain.devchain.profiles import Profile, profile
from leases.chain.devchain.state import State
from leases.chain.devchain.transactions import (
    MAX_BYTES,
    CheckResult,
    DecodedTx,
    TxResult,
    check_form,
    decode,
    hash_of,
)
from leases.chain.proto import tx_pb2

__all__ = ["Chain", "Simulation", "SimulationFailed", "View"]
HISTORY = 1_000
"""Blocks whose old state can still be read."""
KEPT_BLOCKS = 20_000
"""Older ones and their transactions are forgotten, as pruned nodes do."""
CACHED_HASHES = 10_000
MEMPOOL_SIZE = 50_000
EXPIRED_PER_BLOCK = 100
_LIFE = (
    *("state", "blocks", "txs", "mempool", "cache", "check_sequences", "trusted_count"),
    *("height", "earliest", "history_from", "time", "_views"),
)
"""What a chain is, without the settings of its node."""


@dataclass(frozen=True, slots=True)
class View:
    """The state as of a height, for reading."""

    state: State
    height: int
    time: int


class Chain:
    """State, mempool and blocks of one chain."""

    def __init__(self, genesis: Genesis, *, profile_name: str = "B", wall: Callable[[], int] = clock.time_ns) -> None:
        self.genesis = genesis
        self.profile: Profile = profile(profile_name)
        self.gas_price: Fraction = genesis.gas_price
        self.block_gas_limit = -1
        self.mempool_size = MEMPOOL_SIZE
        self.kept_blocks = KEPT_BLOCKS
        self.reads_history = False
        self.faults = Faults()
        self.faults.listeners.append(self._on_fault)
        self.listeners: list[Callable[[Block], None]] = []
        self.offset = 0
        self.frozen_step = 0
        self.minimum_gap = 10**6
        self._wall = wall
        self._departed: dict[str, Any] | None = None
        self.start()

    def start(self) -> None:
        """Begin at height 1 with nothing but the genesis accounts."""
        self.state = self.genesis.state()
        self.blocks: dict[int, Block] = {}
        self.txs: dict[str, TxResult] = {}
        self.mempool: OrderedDict[str, DecodedTx] = OrderedDict()
        self.cache: OrderedDict[str, None] = OrderedDict()
        self.check_sequences: dict[str, int] = {}
        self._views: dict[int, View] = {}
        self.trusted_count = 0
        self.height = 0
        self.earliest = 1
        self.history_from = 1
        self.time = self._wall() + self.offset
        self.produce()

    def load(self, state: State, made: list[Block]) -> None:
        """Go on from a saved chain; states of heights before its end cannot be read."""
        self.state = state
        self.blocks = {block.height: block for block in made}
        self.txs = {result.tx.hash: result for block in made for result in block.txs}
        self.mempool.clear()
        self.cache.clear()
        self._views.clear()
        last = made[-1]
        self.earliest, self.height, self.history_from, self.time = made[0].height, last.height, last.height, last.time

    @property
    def is_departed(self) -> bool:
        """Whether a fault put an empty chain in this one's place."""
        return self._departed is not None

    def _on_fault(self, rule: Fault, began: bool) -> None:
        if rule.effect != "reorg_reset":
            return
        if began and self._departed is None:
            self._departed = {name: getattr(self, name) for name in _LIFE}
            self.start()
        elif not began and self._departed is not None and self.faults.peek("reorg_reset") is None:
            for name, value in self._departed.items():
                setattr(self, name, value)
            self._departed = None

    # --- reading -----------------------------------------------------------

    @property
    def chain_id(self) -> str:
        """The name of the chain."""
        return self.genesis.chain_id

    @property
    def network(self) -> str:
        """The name that the node tells: the chain's, unless a fault says otherwise."""
        rule = self.faults.peek("wrong_chain")
        return self.chain_id if rule is None else str(rule.parameters.get("chain_id", f"{self.chain_id}-other"))

    @property
    def head(self) -> Block:
        """The last committed block."""
        return self.blocks[self.height]

    @property
    def oldest_state(self) -> int:
        """The lowest height whose state can be read."""
        return max(self.history_from, self.height - HISTORY, self.earliest)

    def view(self, height: int = 0) -> View:
        """The state at a height (0: now). A height before the kept history gives the oldest kept one."""
        height = min(max(height, self.oldest_state), self.height) if height > 0 else self.height
        if height == self.height:
            return View(self.state, self.height, self.time)
        found = self._views.get(height)
        if found is None:
            undo = (self.blocks[number].undo for number in range(self.height, height, -1))
            found = self._views[height] = View(self.state.copy(undo), height, self.blocks[height].time)
        return found

    def find_tx(self, tx_hash: str) -> TxResult | None:
        """An included transaction, as soon as the index shows it."""
        result = self.txs.get(tx_hash)
        if result is None or not self._indexed(result):
            return None
        return result

    def _indexed(self, result: TxResult) -> bool:
        lag = self.faults.peek("index_lag")
        if lag is None or not lag.fits("chain:index", result.tx.raw):
            return True
        late_blocks = int(lag.parameters.get("blocks", 0))
        late_ms = float(lag.parameters.get("ms", 0))
        waited = (self._wall() / 10**9 - result.indexed_at) * 1000
        return result.height + late_blocks <= self.height and waited >= late_ms

    # --- mempool -----------------------------------------------------------

    def broadcast(self, raw: bytes) -> CheckResult:
        """CheckTx: take a transaction into the mempool, or say why not."""
        tx_hash = hash_of(raw)
        if tx_hash in self.cache:
            return CheckResult(tx_hash, 19, "sdk")
        try:
            self._check_room(raw)
            self.refuse_by_fault("checktx", raw)
            tx = decode(raw)
            ante.check_block_gas(tx, self.block_gas_limit)
            check_form(tx, self.profile)
            ante.check_signature_count(tx)
            self._skip_sequences(tx)
            self.check_state(tx, self.expected_sequence(tx.signer), price=self._price(raw))
            account = self.state.accounts[tx.signer]
            ante.check_signature(tx, number=account.number, chain_id=self.chain_id)
        except Refused as refusal:
            return CheckResult(tx_hash, refusal.code, refusal.codespace, refusal.text)
        self._remember(tx_hash)
        self.mempool[tx_hash] = tx
        self.check_sequences[tx.signer] = tx.sequence + 1
        return CheckResult(tx_hash)

    def _check_room(self, raw: bytes) -> None:
        """Room in the mempool, and a size it takes."""
        full = self.faults.find("mempool_full", "chain:checktx", raw) is not None
        if full or len(self.mempool) >= self.mempool_size:
            raise Refused("sdk", 20)
        if len(raw) > MAX_BYTES:
            raise Refused("sdk", 21)

    def check_state(self, tx: DecodedTx, sequence: int, *, price: Fraction = Fraction(0)) -> None:
        """Everything about limits, account, fee, key and sequence, in the chain's order; raises `Refused`.

        The minimum gas price is the node's own wish: a block takes what another node let in.
        """
        ante.check_limits(tx, self.state, height=self.height)
        ante.check_account(tx, self.state)
        ante.check_fee(tx, self.state, price=price)
        ante.check_key(tx)
        ante.check_sequence(tx, sequence)

    def _price(self, raw: bytes) -> Fraction:
        dear = self.faults.find("min_gas_price", "chain:checktx", raw)
        return self.gas_price if dear is None else Fraction(str(dear.parameters.get("price", 1)))

    def refuse_by_fault(self, stage: str, raw: bytes) -> None:
        """Refuse a transaction because a rule says so; raises `Refused`."""
        rule = self.faults.find("chain_error", f"chain:{stage}", raw)
        if rule is not None:
            told = rule.parameters
            text = str(told.get("raw_log", "invalid request"))
            raise Refused.with_text(str(told.get("codespace", "sdk")), int(told.get("code", 18)), text)

    def _skip_sequences(self, tx: DecodedTx) -> None:
        """Somebody else used sequences of this signer: what waits with a lower one will never be included."""
        account = self.state.accounts.get(tx.signer)
        rule = self.faults.find("sequence_skip", "chain:checktx", tx.raw) if account is not None else None
        if rule is not None and account is not None:
            skipped = account._replace(sequence=account.sequence + int(rule.parameters.get("n", 1)))
            self.state.set(self.state.accounts, tx.signer, skipped)
            self.recheck()

    def _remember(self, tx_hash: str) -> None:
        self.cache[tx_hash] = None
        while len(self.cache) > CACHED_HASHES + len(self.mempool):
            self.cache.popitem(last=False)

    def expected_sequence(self, address: str) -> int:
        """The next sequence of an account, transactions in the mempool counted."""
        if address in self.check_sequences:
            return self.check_sequences[address]
        account = self.state.accounts.get(address)
        return account.sequence if account is not None else 0

    def submit_trusted(self, messages: Iterable[Message]) -> DecodedTx:
        """Put messages of one sender into the mempool without signature, fee or sequence; raises `Refused`."""
        packed = [pack(message) for message in messages]
        body = tx_pb2.TxBody(messages=packed, memo=f"devchain {self.trusted_count}")
        self.trusted_count += 1
        raw = tx_pb2.TxRaw(body_bytes=body.SerializeToString()).SerializeToString()
        tx = decode(raw)
        tx.trusted = True
        check_form(tx, self.profile)
        self.mempool[tx.hash] = tx
        return tx

    def simulate(self, raw: bytes) -> Simulation:
        """Run the messages on a state that is dropped; raises `SimulationFailed`."""
        return execution.simulate(self, raw)

    # --- blocks ------------------------------------------------------------

    def next_time(self, step: int = 0) -> int:
        """The time of the next block: wall clock plus offset, but after the last; with `step` exactly that later."""
        if step or self.frozen_step:
            moment = self.time + (step or self.frozen_step)
            self.offset = max(self.offset, moment - self._wall())
        else:
            moment = max(self.time + self.minimum_gap, self._wall() + self.offset)
        return moment if moment % 10**9 else moment + 1

    def produce(self, *, step: int = 0) -> Block:
        """Make and commit the next block from the mempool. `step` in nanoseconds sets its distance to the last."""
        height, moment = self.height + 1, self.next_time(step)
        last_hash = self.head.hash if self.height else b""
        block = Block(
            height, moment, blocks.header_hash(self.chain_id, height, moment), last_hash, blocks.app_hash(height - 1)
        )
        ctx = self.context(height, moment, block.hash)
        blocks.begin(ctx)
        for tx in self._take_from_mempool(height):
            block.txs.append(execution.execute(self, tx, block))
        self._expire(ctx)
        block.events = ctx.events
        block.undo = self.state.take_journal()
        self.blocks[height] = block
        self.height, self.time = height, moment
        self._views.clear()
        self._prune()
        indexed_at = self._wall() / 10**9
        for result in block.txs:
            result.indexed_at = indexed_at
            self.txs[result.tx.hash] = result
        self.recheck()
        for listener in list(self.listeners):
            listener(block)
        return block

    def _prune(self) -> None:
        if self.height > HISTORY:
            block = self.blocks.get(self.height - HISTORY)
            if block is not None:
                block.undo = []
        while self.height - self.earliest >= self.kept_blocks:
            for result in self.blocks.pop(self.earliest).txs:
                self.txs.pop(result.tx.hash, None)
            self.earliest += 1

    def context(self, height: int, moment: int, header: bytes = b"") -> Context:
        """What messages of a block see."""
        known = header or (self.blocks[height].hash if height in self.blocks else b"")
        return Context(self.state, time=moment, header_hash=known, chain_id=self.chain_id, profile=self.profile)

    def _take_from_mempool(self, height: int) -> list[DecodedTx]:
        withheld: set[str] = set()
        taken: list[DecodedTx] = []
        gas = 0
        for tx_hash, tx in list(self.mempool.items()):
            timeout = tx.body.timeout_height
            if timeout and timeout < height:
                self._forget(tx_hash)
                continue
            if tx.signer in withheld:
                continue
            if not tx.trusted and self._is_withheld(tx):
                withheld.add(tx.signer)
                continue
            gas += tx.gas_limit
            if 0 <= self.block_gas_limit < gas:
                break
            del self.mempool[tx_hash]
            taken.append(tx)
        return taken

    def _forget(self, tx_hash: str) -> None:
        """Drop what can never be included; the same bytes may be sent again."""
        del self.mempool[tx_hash]
        self.cache.pop(tx_hash, None)

    def _is_withheld(self, tx: DecodedTx) -> bool:
        rule, tx_hash = self.faults.peek("never_include"), tx.hash
        if rule is None or not rule.fits("chain:block", tx.raw):
            return False
        held: list[str] = rule.parameters.setdefault("hashes", [])
        if tx_hash in held:
            return True
        if rule.times is not None and len(held) >= rule.times:
            return False
        held.append(tx_hash)
        rule.used += 1
        return True

    def _expire(self, ctx: Context) -> None:
        timeout = self.state.params.pending_timeout * 10**9
        ctx.suffix = (("mode", "EndBlock"),)
        for lease in self.state.overdue(ctx.time - timeout, EXPIRED_PER_BLOCK):
            billing.expire(ctx, lease)

    def recheck(self) -> None:
        """Count sequences anew and drop what waits with a wrong one."""
        self.check_sequences.clear()
        for tx_hash, tx in list(self.mempool.items()):
            if tx.trusted:
                continue
            if tx.sequence == self.expected_sequence(tx.signer):
                self.check_sequences[tx.signer] = tx.sequence + 1
            else:
                self._forget(tx_hash)
