"""Transactions as bytes: SIGN_MODE_DIRECT, one signer.

Body and auth info are encoded once; what was signed is never encoded again. The nonce of the signature is
deterministic, so the same inputs give the same bytes and the same hash, and a node recognises what it has seen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from google.protobuf.any_pb2 import Any as PackedAny

from leases.chain.client import Coin
from leases.chain.errors import GasOverflow
from leases.chain.gas import MAX_GAS, SIMULATED_GAS_LIMIT
from leases.chain.keys import SigningKey
from leases.chain.proto import coin_pb2, secp256k1_pb2, signing_pb2, tx_pb2

MAX_TX_BYTES = 900_000  # below the 1 MiB that a node's mempool takes, with room for what wraps it

_PUBLIC_KEY_TYPE = "/cosmos.crypto.secp256k1.PubKey"
_DIRECT = tx_pb2.ModeInfo(single=tx_pb2.ModeInfo.Single(mode=signing_pb2.SIGN_MODE_DIRECT))


@dataclass(frozen=True, slots=True)
class SignedTx:
    """Bytes ready for the mempool and the hash they will be known by (upper-case hexadecimal)."""

    tx_bytes: bytes
    tx_hash: str
    sequence: int
    gas_limit: int
    fee: Coin
    timeout_height: int
    signature: bytes


def body(messages: Iterable[PackedAny], *, memo: str = "", timeout_height: int = 0) -> bytes:
    """Encode the messages. After `timeout_height` (0: never) the chain refuses to include them."""
    built = tx_pb2.TxBody(messages=messages, memo=memo, timeout_height=timeout_height)
    return built.SerializeToString(deterministic=True)


def auth_info(public_key: bytes, *, sequence: int, gas_limit: int, fee: Iterable[Coin]) -> bytes:
    """Encode signer, sequence, gas and fee. Raises `GasOverflow` for more gas than a signed 64-bit integer holds."""
    if gas_limit > MAX_GAS:
        raise GasOverflow(f"gas limit {gas_limit} overflows int64")
    key = PackedAny(
        type_url=_PUBLIC_KEY_TYPE, value=secp256k1_pb2.PubKey(key=public_key).SerializeToString(deterministic=True)
    )
    built = tx_pb2.AuthInfo(
        signer_infos=[tx_pb2.SignerInfo(public_key=key, mode_info=_DIRECT, sequence=sequence)],
        fee=tx_pb2.Fee(
            amount=[coin_pb2.Coin(denom=coin.denom, amount=str(coin.amount)) for coin in fee], gas_limit=gas_limit
        ),
    )
    return built.SerializeToString(deterministic=True)


def sign_doc(body_bytes: bytes, auth_info_bytes: bytes, *, chain_id: str, account_number: int) -> bytes:
    """Encode what is signed."""
    document = tx_pb2.SignDoc(
        body_bytes=body_bytes, auth_info_bytes=auth_info_bytes, chain_id=chain_id, account_number=account_number
    )
    return document.SerializeToString(deterministic=True)


def sign(
    key: SigningKey,
    body_bytes: bytes,
    *,
    chain_id: str,
    account_number: int,
    sequence: int,
    gas_limit: int,
    fee: Coin,
    timeout_height: int = 0,
) -> SignedTx:
    """Sign an encoded body. `timeout_height` is only noted in the result; it must be what the body was made with."""
    info = auth_info(key.public_key, sequence=sequence, gas_limit=gas_limit, fee=[fee])
    document = sign_doc(body_bytes, info, chain_id=chain_id, account_number=account_number)
    signature = key.sign(hashlib.sha256(document).digest())
    raw = tx_pb2.TxRaw(body_bytes=body_bytes, auth_info_bytes=info, signatures=[signature])
    tx_bytes = raw.SerializeToString(deterministic=True)
    return SignedTx(
        tx_bytes=tx_bytes,
        tx_hash=tx_hash(tx_bytes),
        sequence=sequence,
        gas_limit=gas_limit,
        fee=fee,
        timeout_height=timeout_height,
        signature=signature,
    )


def unsigned_for_simulation(public_key: bytes, body_bytes: bytes, *, sequence: int) -> bytes:
    """Encode a transaction for the node to try: no fee, a fixed gas limit, one empty signature."""
    info = auth_info(public_key, sequence=sequence, gas_limit=SIMULATED_GAS_LIMIT, fee=[])
    raw = tx_pb2.TxRaw(body_bytes=body_bytes, auth_info_bytes=info, signatures=[b""])
    return raw.SerializeToString(deterministic=True)


def tx_hash(tx_bytes: bytes) -> str:
    """Return the hash a transaction is known by: SHA-256, upper-case hexadecimal."""
    return hashlib.sha256(tx_bytes).hexdigest().upper()
