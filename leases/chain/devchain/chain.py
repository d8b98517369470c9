"""The chain itself: mempool, checks, simulation, blocks. One thread uses it; nothing here waits."""

from __future__ import annotations

import itertools
import time as clock
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from google.protobuf.message import Message

from leases.chain.devchain import ante, billing, blocks
from leases.chain.devchain.blocks import Block
from leases.chain.devchain.context import Context
from leases.chain.devchain.errors import Refused
from leases.chain.devchain.faults import Faults
from leases.chain.devchain.genesis import Genesis
from leases.chain.devchain.messages import TYPES, pack
from leases.chain.devchain.records import Event
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
from leases.chain.proto import abci_pb2, tx_pb2

HISTORY = 1_000
"""Blocks whose old state can still be read."""
KEPT_BLOCKS = 20_000
"""Older ones are forgotten, as pruned nodes do; transactions stay."""
CACHED_HASHES = 10_000
MEMPOOL_SIZE = 50_000
EXPIRED_PER_BLOCK = 100


@dataclass(frozen=True, slots=True)
class View:
    """The state as of a height, for reading."""

    state: State
    height: int
    time: int


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a simulation found; `data` is the encoded `TxMsgData`."""

    gas_used: int
    data: bytes
    responses: list[Message]
    events: list[Event]


class SimulationFailed(Exception):
    """A simulation was refused; `where` is the source line the node would print."""

    def __init__(self, refusal: Refused, text: str, gas_used: int) -> None:
        line = "x/auth/ante/sigverify.go:290" if refusal.code == 32 else "cosmossdk.io/errors@v1.0.2/errors.go:155"
        super().__init__(f"{text} [{line}] with gas used: '{gas_used}'")


class Chain:
    """State, mempool and blocks of one chain."""

    def __init__(self, genesis: Genesis, *, profile: str = "B", wall: Callable[[], int] = clock.time_ns) -> None:
        if profile != "B":
            raise ValueError(f"unknown profile {profile}; known is B")
        self.genesis = genesis
        self.profile = profile
        self.faults = Faults()
        self.listeners: list[Callable[[Block], None]] = []
        self.offset = 0
        self.frozen_step = 0
        self.minimum_gap = 10**6
        self._wall = wall
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
        self._trusted = itertools.count()
        self.height = 0
        self.earliest = 1
        self.time = self._wall() + self.offset
        self.produce()

    # --- reading -----------------------------------------------------------

    @property
    def chain_id(self) -> str:
        """The name of the chain."""
        return self.genesis.chain_id

    @property
    def head(self) -> Block:
        """The last committed block."""
        return self.blocks[self.height]

    def view(self, height: int = 0) -> View:
        """The state at a height (0: now). A height before the kept history gives the oldest kept one."""
        oldest = max(1, self.height - HISTORY)
        height = min(max(height, oldest), self.height) if height > 0 else self.height
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
        if lag is None:
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
            self._refuse_by_fault("checktx")
            tx = decode(raw)
            check_form(tx)
            ante.check_signature_count(tx)
            self._check_state(tx, self.expected_sequence(tx.signer))
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
        if len(self.mempool) >= MEMPOOL_SIZE:
            raise Refused("sdk", 20)
        if len(raw) > MAX_BYTES:
            raise Refused("sdk", 21)

    def _check_state(self, tx: DecodedTx, sequence: int) -> None:
        """Everything about limits, account, fee, key and sequence, in the chain's order."""
        ante.check_limits(tx, self.state, height=self.height)
        ante.check_account(tx, self.state)
        ante.check_fee(tx, self.state, price=self.genesis.gas_price)
        ante.check_key(tx)
        ante.check_sequence(tx, sequence)

    def _refuse_by_fault(self, stage: str) -> None:
        rule = self.faults.find("chain_error", f"chain:{stage}")
        if rule is not None:
            told = rule.parameters
            text = str(told.get("raw_log", "invalid request"))
            raise Refused.with_text(str(told.get("codespace", "sdk")), int(told.get("code", 18)), text)

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
        body = tx_pb2.TxBody(messages=packed, memo=f"devchain {next(self._trusted)}")
        raw = tx_pb2.TxRaw(body_bytes=body.SerializeToString()).SerializeToString()
        tx = decode(raw)
        tx.trusted = True
        check_form(tx)
        self.mempool[tx.hash] = tx
        return tx

    # --- simulation --------------------------------------------------------

    def simulate(self, raw: bytes) -> Simulation:
        """Run the messages on a state that is dropped; raises `SimulationFailed`."""
        gas = 1_174
        try:
            tx = decode(raw)
            check_form(tx)
            ante.check_signature_count(tx)
            gas = ante.gas_of_checks(tx, self.state, with_fee=False)
            ante.check_account(tx, self.state)
            ante.check_sequence(tx, self.expected_sequence(tx.signer))
        except Refused as refusal:
            raise SimulationFailed(refusal, refusal.text, min(gas, 14_240)) from None
        ctx = self._context(self.height, self.time)
        mark = len(self.state.journal)
        ante.emit_opening(ctx, tx, tx.sequence, fee=tx.fee)
        try:
            responses = self._run_messages(ctx, tx)
        except _MessageFailed as failure:
            raise SimulationFailed(failure.refusal, failure.text, gas + ctx.gas) from None
        finally:
            self.state.undo_to(mark)
        factor = self.faults.find("gas_factor", "/cosmos.tx.v1beta1.Service/Simulate")
        used = gas + ctx.gas
        if factor is not None:
            used = int(used * float(factor.parameters.get("factor", 1)))
        return Simulation(used, _encode_responses(responses), responses, ctx.events)

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
        ctx = self._context(height, moment, block.hash)
        blocks.begin(ctx)
        for tx in self._take_from_mempool(height):
            block.txs.append(self._execute(tx, block))
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
        self._recheck()
        for listener in list(self.listeners):
            listener(block)
        return block

    def _prune(self) -> None:
        if self.height > HISTORY:
            self.blocks[self.height - HISTORY].undo = []
        while self.height - self.earliest >= KEPT_BLOCKS:
            del self.blocks[self.earliest]
            self.earliest += 1

    def _context(self, height: int, moment: int, header: bytes = b"") -> Context:
        known = header or (self.blocks[height].hash if height in self.blocks else b"")
        return Context(self.state, time=moment, header_hash=known, chain_id=self.chain_id, profile=self.profile)

    def _take_from_mempool(self, height: int) -> list[DecodedTx]:
        withheld: set[str] = set()
        taken: list[DecodedTx] = []
        for tx_hash, tx in list(self.mempool.items()):
            timeout = tx.body.timeout_height
            if timeout and timeout < height:
                del self.mempool[tx_hash]
                continue
            if tx.signer in withheld:
                continue
            if not tx.trusted and self._is_withheld(tx_hash):
                withheld.add(tx.signer)
                continue
            del self.mempool[tx_hash]
            taken.append(tx)
        return taken

    def _is_withheld(self, tx_hash: str) -> bool:
        rule = self.faults.peek("never_include")
        if rule is None:
            return False
        held: list[str] = rule.parameters.setdefault("hashes", [])
        if tx_hash in held:
            return True
        if rule.times is not None and len(held) >= rule.times:
            return False
        held.append(tx_hash)
        rule.used += 1
        return True

    def _execute(self, tx: DecodedTx, block: Block) -> TxResult:
        result = TxResult(tx, block.height, len(block.txs), block.time, gas_wanted=tx.gas_limit)
        ctx = self._context(block.height, block.time, block.hash)
        account = self.state.accounts.get(tx.signer)
        try:
            if not tx.trusted:
                self._check_state(tx, account.sequence if account is not None else 0)
        except Refused as refusal:
            result.code, result.codespace, result.log = refusal.code, refusal.codespace, refusal.text
            return result
        gas = ante.gas_of_checks(tx, self.state, with_fee=bool(tx.fee))
        ante.deduct(ctx, tx)
        opening = len(ctx.events)
        mark = len(self.state.journal)
        try:
            self._refuse_by_fault("exec")
            responses = self._run_messages(ctx, tx)
            if not tx.trusted and gas + ctx.gas > tx.gas_limit:
                raise ante.out_of_gas(tx.gas_limit, "ReadFlat", ante.OVERSHOOT)
            result.data = _encode_responses(responses)
            result.gas_used = gas + ctx.gas
        except (Refused, _MessageFailed) as failure:
            self.state.undo_to(mark)
            del ctx.events[opening:]
            cause = failure.refusal if isinstance(failure, _MessageFailed) else failure
            result.code, result.codespace, result.log = cause.code, cause.codespace, failure.text
            late = cause.codespace == "sdk" and cause.code == 11
            result.gas_used = tx.gas_limit + ante.OVERSHOOT if late else gas + ctx.gas
        result.events = ctx.events
        return result

    def _run_messages(self, ctx: Context, tx: DecodedTx) -> list[Message]:
        responses: list[Message] = []
        for index, (type_url, message) in enumerate(tx.messages):
            before = ctx.gas
            ctx.suffix = (("msg_index", str(index)),)
            signer = str(getattr(message, TYPES[type_url].signer))
            module = type_url.split(".")[1]
            ctx.emit("message", ("action", type_url), ("sender", signer), ("module", module))
            try:
                responses.append(TYPES[type_url].run(ctx, message))
            except Refused as refusal:
                ctx.gas = before + ante.GAS_FAILED
                raise _MessageFailed(refusal, index) from None
        ctx.suffix = ()
        return responses

    def _expire(self, ctx: Context) -> None:
        timeout = self.state.params.pending_timeout * 10**9
        ctx.suffix = (("mode", "EndBlock"),)
        for lease in self.state.overdue(ctx.time - timeout, EXPIRED_PER_BLOCK):
            billing.expire(ctx, lease)

    def _recheck(self) -> None:
        self.check_sequences.clear()
        for tx_hash, tx in list(self.mempool.items()):
            if tx.trusted:
                continue
            if tx.sequence == self.expected_sequence(tx.signer):
                self.check_sequences[tx.signer] = tx.sequence + 1
            else:
                del self.mempool[tx_hash]


class _MessageFailed(Exception):
    def __init__(self, refusal: Refused, index: int) -> None:
        self.refusal = refusal
        self.text = refusal.inside_message(index)
        super().__init__(self.text)


def _encode_responses(responses: list[Message]) -> bytes:
    return abci_pb2.TxMsgData(msg_responses=[pack(response) for response in responses]).SerializeToString()
