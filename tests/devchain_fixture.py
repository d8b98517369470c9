"""A running simulated chain for tests, and a wallet that signs for it. Import the fixtures into a conftest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from leases.chain import devchain as simulated
from leases.chain.devchain.keys import PWR, Key
from leases.chain.proto import billing_pb2, secp256k1_pb2, tx_pb2

MICRO = "docker-micro"


@pytest.fixture
def devchain() -> Iterator[simulated.RunningDevchain]:
    """Fixture `devnet` with a block per transaction."""
    with simulated.run() as chain:
        yield chain


@pytest.fixture
def manual_devchain() -> Iterator[simulated.RunningDevchain]:
    """Fixture `devnet`, blocks only when the test makes them."""
    with simulated.run(block_mode="manual") as chain:
        yield chain


@dataclass
class Wallet:
    """Signs for one key, from the wire format alone: nothing of the product's signer is used."""

    key: Key
    chain_id: str
    number: int = 0
    sequence: int = 0

    @classmethod
    def of(cls, chain: simulated.RunningDevchain, name: str) -> Wallet:
        key = chain.keys[name]
        account = chain.call(lambda: chain.node.chain.state.accounts[key.address])
        return cls(key, chain.chain_id, account.number, account.sequence)

    @property
    def address(self) -> str:
        return self.key.address

    def sign(self, *messages: Message, gas: int = 2_000_000, fee: int = 0, **changes: Any) -> bytes:
        """TxRaw bytes; changes: sequence, number, memo, timeout_height, chain_id, key, signature, or a whole body."""
        body = tx_pb2.TxBody(memo=changes.get("memo", ""), timeout_height=changes.get("timeout_height", 0))
        if "body" in changes:
            body = changes["body"]
            messages = ()
        for message in messages:
            body.messages.add(type_url=f"/{message.DESCRIPTOR.full_name}", value=message.SerializeToString())
        auth = tx_pb2.AuthInfo()
        signer = auth.signer_infos.add(sequence=changes.get("sequence", self.sequence))
        signer.public_key.type_url = "/cosmos.crypto.secp256k1.PubKey"
        key = changes.get("key", self.key)
        signer.public_key.value = secp256k1_pb2.PubKey(key=key.public_key).SerializeToString()
        signer.mode_info.single.mode = 1
        auth.fee.gas_limit = gas
        if fee:
            auth.fee.amount.add(denom="umfx", amount=str(fee))
        document = tx_pb2.SignDoc(
            body_bytes=body.SerializeToString(),
            auth_info_bytes=auth.SerializeToString(),
            chain_id=changes.get("chain_id", self.chain_id),
            account_number=changes.get("number", self.number),
        )
        signature = changes.get("signature", key.sign)(document.SerializeToString())
        raw = tx_pb2.TxRaw(
            body_bytes=document.body_bytes, auth_info_bytes=document.auth_info_bytes, signatures=[signature]
        )
        return raw.SerializeToString()

    def ack(self, uuids: Sequence[str], **how: Any) -> bytes:
        return self.sign(billing_pb2.MsgAcknowledgeLease(sender=self.address, lease_uuids=uuids), **how)


Ask = Callable[[str, Message, type[Message]], Any]


@pytest.fixture
def ask() -> Iterator[Callable[..., Any]]:
    """`ask(chain, method, request, answer class)` → the answer; `.headers` of the last call are kept."""
    channels: dict[str, grpc.Channel] = {}

    def call(chain: simulated.RunningDevchain, method: str, request: Message, answer: Any) -> Any:
        channel = channels.setdefault(chain.grpc, grpc.insecure_channel(chain.grpc))
        stub = channel.unary_unary(f"/{method}", request_serializer=None, response_deserializer=None)
        data, info = stub.with_call(request.SerializeToString(), timeout=5)
        call.headers = dict(info.initial_metadata())  # type: ignore[attr-defined]
        return answer.FromString(data)

    yield call
    for channel in channels.values():
        channel.close()


__all__ = ["PWR", "Wallet", "ask", "devchain", "manual_devchain"]
