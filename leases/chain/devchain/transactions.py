"""Transactions: their bytes, what is decoded of them, and what became of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError, Message

from leases.chain.devchain import profiles
from leases.chain.devchain.errors import Refused
from leases.chain.devchain.keys import Coins
from leases.chain.devchain.messages import (
    TYPES,
    inner_messages,
    parse_strictly,
    refuse_unknown_fields,
    signer_of,
    unpack,
)
from leases.chain.devchain.profiles import Profile
from leases.chain.devchain.records import Event
from leases.chain.proto import secp256k1_pb2, tx_pb2

PUBLIC_KEY = "/cosmos.crypto.secp256k1.PubKey"
MAX_BYTES = 1024 * 1024


def hash_of(raw: bytes) -> str:
    """SHA-256 of the bytes, upper-case hex: the name of a transaction."""
    return hashlib.sha256(raw).hexdigest().upper()


@dataclass(slots=True)
class DecodedTx:
    """A transaction that parsed. `trusted` ones come from the admin API: no signature, no sequence, no fee."""

    raw: bytes
    hash: str
    body: tx_pb2.TxBody
    auth: tx_pb2.AuthInfo
    body_bytes: bytes
    auth_bytes: bytes
    signatures: list[bytes]
    messages: list[tuple[str, Message]]
    signers: list[str]
    public_key: bytes
    trusted: bool = False

    @property
    def signer(self) -> str:
        """The account that signs and pays."""
        return self.signers[0]

    @property
    def sequence(self) -> int:
        """The sequence it was signed with."""
        return self.auth.signer_infos[0].sequence if self.auth.signer_infos else 0

    @property
    def gas_limit(self) -> int:
        """The declared gas."""
        return self.auth.fee.gas_limit

    @property
    def fee(self) -> Coins:
        """The offered fee."""
        return tuple((coin.denom, int(coin.amount or 0)) for coin in self.auth.fee.amount)


@dataclass(slots=True)
class TxResult:
    """What became of a transaction in its block. `indexed_at` is the wall clock of its block, in seconds."""

    tx: DecodedTx
    height: int
    index: int
    time: int
    code: int = 0
    codespace: str = ""
    log: str = ""
    data: bytes = b""
    gas_wanted: int = 0
    gas_used: int = 0
    events: list[Event] = field(default_factory=list)
    indexed_at: float = 0.0


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The answer to a broadcast: `code` 0 is accepted by the mempool."""

    hash: str
    code: int = 0
    codespace: str = ""
    log: str = ""


def decode(raw: bytes) -> DecodedTx:
    """Parse a transaction strictly; raises `Refused` with sdk code 2 for what does not parse."""
    envelope = parse_strictly(tx_pb2.TxRaw, raw)
    body = tx_pb2.TxBody()
    try:
        body.ParseFromString(envelope.body_bytes)
    except DecodeError:
        raise Refused("sdk", 2, "error decoding cosmos.tx.v1beta1.TxBody") from None
    refuse_unknown_fields(body, ignore_non_critical=True)
    auth = parse_strictly(tx_pb2.AuthInfo, envelope.auth_info_bytes)
    messages = [(packed.type_url, unpack(packed)) for packed in body.messages]
    signers: list[str] = []
    for type_url, message in messages:
        signer = signer_of(type_url, message)
        if signer not in signers:
            signers.append(signer)
    return DecodedTx(
        raw=raw,
        hash=hash_of(raw),
        body=body,
        auth=auth,
        body_bytes=envelope.body_bytes,
        auth_bytes=envelope.auth_info_bytes,
        signatures=list(envelope.signatures),
        messages=messages,
        signers=signers,
        public_key=_public_key(auth),
    )


def _public_key(auth: tx_pb2.AuthInfo) -> bytes:
    if not auth.signer_infos or auth.signer_infos[0].public_key.type_url != PUBLIC_KEY:
        return b""
    return secp256k1_pb2.PubKey.FromString(auth.signer_infos[0].public_key.value).key


def check_form(tx: DecodedTx, traits: Profile) -> None:
    """Every message's own form, those inside of others too; raises `Refused`."""
    if not tx.messages:
        raise Refused("sdk", 18, "must contain at least one message")
    for type_url, message in tx.messages:
        TYPES[type_url].check(message)
        for inner in inner_messages(message):
            profiles.check_form(traits, inner)
