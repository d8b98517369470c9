"""Running transactions: in a block, or on a state that is dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf.message import Message

from leases.chain.devchain import ante
from leases.chain.devchain.blocks import Block
from leases.chain.devchain.context import Context
from leases.chain.devchain.errors import Refused
from leases.chain.devchain.messages import TYPES, pack
from leases.chain.devchain.records import Event
from leases.chain.devchain.transactions import DecodedTx, TxResult, check_form, decode
from leases.chain.proto import abci_pb2, billing_pb2

if TYPE_CHECKING:
    from leases.chain.devchain.chain import Chain

_SIMULATE = "/cosmos.tx.v1beta1.Service/Simulate"


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a simulation found; `data` is the encoded `TxMsgData`."""

    gas_used: int
    data: bytes
    responses: list[Message]
    events: list[Event]


class SimulationFailed(Exception):
    """A simulation was refused; its text carries the raw log, a source line and the gas, as a node prints them."""

    def __init__(self, refusal: Refused, text: str, gas_used: int) -> None:
        line = "x/auth/ante/sigverify.go:290" if refusal.code == 32 else "cosmossdk.io/errors@v1.0.2/errors.go:155"
        super().__init__(f"{text} [{line}] with gas used: '{gas_used}'")


class _MessageFailed(Exception):
    def __init__(self, refusal: Refused, index: int) -> None:
        self.refusal = refusal
        self.text = refusal.inside_message(index)
        super().__init__(self.text)


def simulate(chain: Chain, raw: bytes) -> Simulation:
    """Run the messages on a state that is dropped; raises `SimulationFailed`."""
    gas = 1_174
    try:
        tx = decode(raw)
        ante.check_block_gas(tx, chain.block_gas_limit)
        check_form(tx, chain.profile)
        ante.check_signature_count(tx)
        gas = ante.gas_of_checks(tx, chain.state, with_fee=False)
        ante.check_account(tx, chain.state)
        ante.check_sequence(tx, chain.expected_sequence(tx.signer))
    except Refused as refusal:
        raise SimulationFailed(refusal, refusal.text, min(gas, 14_240)) from None
    ctx = chain.context(chain.height, chain.time)
    mark = len(chain.state.journal)
    ante.emit_opening(ctx, tx, tx.sequence, fee=tx.fee)
    try:
        responses = _run_messages(ctx, tx)
    except _MessageFailed as failure:
        raise SimulationFailed(failure.refusal, failure.text, gas + ctx.gas) from None
    finally:
        chain.state.undo_to(mark)
    used = gas + ctx.gas
    factor = chain.faults.find("gas_factor", _SIMULATE, raw)
    if factor is not None:
        used = int(used * float(factor.parameters.get("factor", 1)))
    return Simulation(used, _encode_responses(responses), responses, ctx.events)


def execute(chain: Chain, tx: DecodedTx, block: Block) -> TxResult:
    """Run a transaction in a block: fee and sequence are gone whatever its messages do."""
    result = TxResult(tx, block.height, len(block.txs), block.time, gas_wanted=tx.gas_limit)
    ctx = chain.context(block.height, block.time, block.hash)
    account = chain.state.accounts.get(tx.signer)
    try:
        if not tx.trusted:
            chain.check_state(tx, account.sequence if account is not None else 0)
    except Refused as refusal:
        result.code, result.codespace, result.log = refusal.code, refusal.codespace, refusal.text
        return result
    gas = ante.gas_of_checks(tx, chain.state, with_fee=bool(tx.fee))
    ante.deduct(ctx, tx)
    opening = len(ctx.events)
    mark = len(chain.state.journal)
    try:
        chain.refuse_by_fault("exec", tx.raw)
        responses = _run_messages(ctx, tx)
        if not tx.trusted and gas + ctx.gas > tx.gas_limit:
            raise ante.out_of_gas(tx.gas_limit, "ReadFlat", ante.OVERSHOOT)
        result.data = _encode_responses(responses)
        result.gas_used = gas + ctx.gas
    except (Refused, _MessageFailed) as failure:
        chain.state.undo_to(mark)
        del ctx.events[opening:]
        cause = failure.refusal if isinstance(failure, _MessageFailed) else failure
        result.code, result.codespace, result.log = cause.code, cause.codespace, failure.text
        late = cause.codespace == "sdk" and cause.code == 11
        result.gas_used = tx.gas_limit + ante.OVERSHOOT if late else gas + ctx.gas
    if _withdraws(tx) and chain.faults.find("empty_data", "chain:exec", tx.raw) is not None:
        result.data = b""
    result.events = ctx.events
    return result


def _withdraws(tx: DecodedTx) -> bool:
    return any(isinstance(message, billing_pb2.MsgWithdraw) for _, message in tx.messages)


def _run_messages(ctx: Context, tx: DecodedTx) -> list[Message]:
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


def _encode_responses(responses: list[Message]) -> bytes:
    return abci_pb2.TxMsgData(msg_responses=[pack(response) for response in responses]).SerializeToString()
