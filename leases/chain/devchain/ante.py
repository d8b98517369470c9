"""The checks before the messages: time-out, memo, gas, fee, key, sequence, signature; and the gas model.

Gas is a linear model fitted to real nodes. A transaction pays for its checks, its bytes and its messages.
"""

from __future__ import annotations

import base64
import math
from fractions import Fraction

from leases.chain.devchain.context import Context
from leases.chain.devchain.errors import Refused
from leases.chain.devchain.keys import (
    FEE_COLLECTOR,
    FEE_DENOM,
    Coins,
    address_of,
    coins_text,
    decode_address,
    signature_holds,
)
from leases.chain.devchain.state import State
from leases.chain.devchain.transactions import DecodedTx
from leases.chain.proto import tx_pb2

GAS_BASE, GAS_FEE, GAS_FIRST, GAS_PER_BYTE, GAS_FAILED = 30_000, 17_000, 13_000, 10, 5_000
OVERSHOOT = 711
"""By how much the last step of an out-of-gas transaction exceeds its limit."""


def gas_of_checks(tx: DecodedTx, state: State, *, with_fee: bool) -> int:
    """Gas of everything but the messages."""
    account = state.accounts.get(tx.signer) if tx.signers else None
    first = account is None or not account.public_key
    return GAS_BASE + GAS_FEE * with_fee + GAS_FIRST * first + GAS_PER_BYTE * len(tx.raw)


def out_of_gas(limit: int, location: str, overshoot: int) -> Refused:
    """The refusal of a transaction that needs more than it declared."""
    detail = f"out of gas in location: {location}; gasWanted: {limit}, gasUsed: {limit + overshoot}"
    return Refused("sdk", 11, detail)


def check_block_gas(tx: DecodedTx, limit: int) -> None:
    """No transaction may declare more gas than fits into a block; a negative limit is none."""
    if 0 <= limit < tx.gas_limit:
        raise Refused("sdk", 11, f"tx gas limit {tx.gas_limit} exceeds block max gas {limit}")


def check_signature_count(tx: DecodedTx) -> None:
    """One signature, by the one signer of all messages."""
    if not tx.signatures:
        raise Refused("sdk", 15)
    if not len(tx.signatures) == len(tx.auth.signer_infos) == len(tx.signers):
        wrong = f"wrong number of signers; expected {len(tx.signers)}, got {len(tx.signatures)}"
        raise Refused("sdk", 4, wrong)
    if len(tx.signers) != 1:
        raise Refused("sdk", 4, "messages of different signers in one transaction")


def check_limits(tx: DecodedTx, state: State, *, height: int) -> None:
    """Time-out height, memo, and gas for the checks themselves. `height` is the last committed one."""
    timeout = tx.body.timeout_height
    if timeout and timeout < height:
        raise Refused("sdk", 30, f"block height: {height}, timeout height: {timeout}")
    if len(tx.body.memo) > 256:
        raise Refused("sdk", 12, f"maximum number of characters is 256 but received {len(tx.body.memo)} characters")
    if tx.gas_limit < gas_of_checks(tx, state, with_fee=bool(tx.fee)):
        raise out_of_gas(tx.gas_limit, "ReadPerByte", 3)


def check_account(tx: DecodedTx, state: State) -> None:
    """The payer must exist. The chain prints its raw bytes, which are no text."""
    if tx.signer not in state.accounts:
        raw = (decode_address(tx.signer) or b"").decode("utf-8", "replace")
        raise Refused("sdk", 9, f"fee payer address: {raw} does not exist")


def check_fee(tx: DecodedTx, state: State, *, price: Fraction) -> None:
    """Enough for the node's minimum gas price, and payable."""
    if price:
        required = math.ceil(price * tx.gas_limit)
        if dict(tx.fee).get(FEE_DENOM, 0) < required:
            detail = f"insufficient fees; got: {coins_text(tx.fee)} required: {required}{FEE_DENOM}"
            raise Refused("sdk", 13, detail)
    for denom, amount in tx.fee:
        held = state.balance(tx.signer, denom)
        if held < amount:
            raise Refused("sdk", 5, f"{held}{denom} is smaller than {amount}{denom}")


def check_key(tx: DecodedTx) -> None:
    """The key in the transaction must be the signer's."""
    if not tx.public_key or address_of(tx.public_key) != tx.signer:
        raise Refused("sdk", 8, f"pubKey does not match signer address {tx.signer} with signer index: 0")


def check_sequence(tx: DecodedTx, expected: int) -> None:
    """The sequence must be the account's next one."""
    if tx.sequence != expected:
        raise Refused("sdk", 32, f"account sequence mismatch, expected {expected}, got {tx.sequence}")


def check_signature(tx: DecodedTx, *, number: int, chain_id: str) -> None:
    """The signature must hold over exactly the bytes that were sent, for this chain and account number."""
    document = tx_pb2.SignDoc(
        body_bytes=tx.body_bytes, auth_info_bytes=tx.auth_bytes, chain_id=chain_id, account_number=number
    ).SerializeToString()
    direct = tx.auth.signer_infos[0].mode_info.single.mode == 1
    if not direct or not signature_holds(tx.public_key, tx.signatures[0], document):
        detail = f"signature verification failed; please verify account number ({number}) and chain-id ({chain_id})"
        raise Refused("sdk", 4, f"{detail}: (unable to verify single signer signature)")


def deduct(ctx: Context, tx: DecodedTx) -> None:
    """Take the fee, set the key, use the sequence; emit the events every transaction starts with."""
    state = ctx.state
    account = state.account(tx.signer)
    if not tx.trusted:
        ctx.pay(tx.signer, FEE_COLLECTOR, tx.fee)
        state.set(
            state.accounts,
            tx.signer,
            account._replace(sequence=account.sequence + 1, public_key=account.public_key or tx.public_key),
        )
    emit_opening(ctx, tx, account.sequence, fee=() if tx.trusted else tx.fee)


def emit_opening(ctx: Context, tx: DecodedTx, sequence: int, *, fee: Coins) -> None:
    """The three events about fee, sequence and signature."""
    ctx.emit("tx", ("fee", coins_text(fee)), ("fee_payer", tx.signer))
    ctx.emit("tx", ("acc_seq", f"{tx.signer}/{sequence}"))
    ctx.emit("tx", ("signature", _base64(tx.signatures[0] if tx.signatures else b"")))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
