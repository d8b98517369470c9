"""Records as protobuf messages and as JSON."""

from __future__ import annotations

import base64
import datetime as dt
from typing import Any

from leases.chain.devchain.context import pb_coins, timestamp
from leases.chain.devchain.keys import Coins
from leases.chain.devchain.records import ACTIVE, PENDING, Account, CreditAccount, Event, Lease, Provider, Sku
from leases.chain.devchain.settlement import reservation
from leases.chain.devchain.transactions import PUBLIC_KEY, DecodedTx, TxResult
from leases.chain.proto import abci_pb2, auth_pb2, billing_pb2, secp256k1_pb2, sku_pb2, tendermint_abci_pb2, tx_pb2
from leases.chain.proto.coin_pb2 import Coin


def varint(number: int) -> bytes:
    """A protobuf varint."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def nested(number: int, data: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def lease_message(lease: Lease) -> billing_pb2.Lease:
    """A lease as the chain sends it."""
    message = billing_pb2.Lease(
        uuid=lease.uuid,
        tenant=lease.tenant,
        provider_uuid=lease.provider_uuid,
        items=[
            billing_pb2.LeaseItem(
                sku_uuid=item.sku_uuid,
                quantity=item.quantity,
                locked_price=Coin(denom=item.denom, amount=str(item.price)),
                service_name=item.service_name,
                custom_domain=item.custom_domain,
            )
            for item in lease.items
        ],
        created_at=timestamp(lease.created_at),
        last_settled_at=timestamp(lease.settled_at),
        rejection_reason=lease.rejection_reason,
        closure_reason=lease.closure_reason,
        meta_hash=lease.meta_hash,
        min_lease_duration_at_creation=lease.min_duration,
    )
    message.state = lease.state  # type: ignore[assignment]  # any number may stand here
    for name in ("closed_at", "acknowledged_at", "rejected_at", "expired_at"):
        moment = getattr(lease, name)
        if moment:
            getattr(message, name).CopyFrom(timestamp(moment))
    return message


class LeaseWire:
    """Encoded leases, kept as long as their record is the same; a listing only joins them."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Lease, bool, bytes]] = {}

    def field(self, lease: Lease, *, reserved: bool = False) -> bytes:
        """The lease as field 1 of an answer; `reserved` adds what the strict chain says of its reservation."""
        known = self._known.get(lease.uuid)
        if known is not None and known[0] is lease and known[1] == reserved:
            return known[2]
        data = lease_message(lease).SerializeToString()
        if reserved:
            data += nested(16, reservation_bytes(lease))
        data = nested(1, data)
        self._known[lease.uuid] = (lease, reserved, data)
        return data


def reservation_coins(lease: Lease) -> Coins:
    """What is reserved for a lease; nothing once it has ended."""
    return reservation(lease, 0) if lease.state in (PENDING, ACTIVE) else ()


def reservation_bytes(lease: Lease) -> bytes:
    """A `LeaseReservation`, encoded."""
    return b"".join(nested(1, coin.SerializeToString()) for coin in pb_coins(reservation_coins(lease)))


def provider_message(provider: Provider) -> sku_pb2.Provider:
    """A provider as the chain sends it."""
    return sku_pb2.Provider(**provider._asdict())


def sku_message(sku: Sku) -> sku_pb2.SKU:
    """An offer as the chain sends it."""
    message = sku_pb2.SKU(
        uuid=sku.uuid,
        provider_uuid=sku.provider_uuid,
        name=sku.name,
        base_price=Coin(denom=sku.denom, amount=str(sku.price)),
        meta_hash=sku.meta_hash,
        active=sku.active,
    )
    message.unit = sku.unit  # type: ignore[assignment]
    return message


def credit_message(account: CreditAccount) -> billing_pb2.CreditAccount:
    """A credit account as the chain sends it."""
    return billing_pb2.CreditAccount(
        tenant=account.tenant,
        credit_address=account.address,
        active_lease_count=account.active,
        pending_lease_count=account.pending,
        reserved_amounts=pb_coins(account.reserved),
    )


def account_message(account: Account) -> auth_pb2.BaseAccount:
    """An account as the chain sends it; the key only after its first transaction."""
    message = auth_pb2.BaseAccount(address=account.address, account_number=account.number, sequence=account.sequence)
    if account.public_key:
        message.pub_key.type_url = PUBLIC_KEY
        message.pub_key.value = secp256k1_pb2.PubKey(key=account.public_key).SerializeToString()
    return message


def event_messages(events: list[Event], *, index: bool = True) -> list[tendermint_abci_pb2.Event]:
    """Events as protobuf; a simulation does not mark its attributes as indexed."""
    attribute = tendermint_abci_pb2.EventAttribute
    return [
        tendermint_abci_pb2.Event(
            type=event.type,
            attributes=[attribute(key=key, value=value, index=index) for key, value in event.attributes],
        )
        for event in events
    ]


def tx_message(tx: DecodedTx) -> tx_pb2.Tx:
    """A transaction in its decoded form."""
    return tx_pb2.Tx(body=tx.body, auth_info=tx.auth, signatures=tx.signatures)


def tx_response(result: TxResult) -> abci_pb2.TxResponse:
    """An included transaction as `GetTx` shows it."""
    response = abci_pb2.TxResponse(
        height=result.height,
        txhash=result.tx.hash,
        codespace=result.codespace,
        code=result.code,
        data=result.data.hex().upper(),
        raw_log=result.log,
        gas_wanted=result.gas_wanted,
        gas_used=result.gas_used,
        timestamp=time_text(result.time, digits=0),
        events=event_messages(result.events),
    )
    response.tx.type_url = "/cosmos.tx.v1beta1.Tx"
    response.tx.value = tx_message(result.tx).SerializeToString()
    return response


def time_text(nanoseconds: int, *, digits: int = 9) -> str:
    """RFC 3339 in UTC; trailing zeros of the fraction are dropped."""
    moment = dt.datetime.fromtimestamp(nanoseconds // 10**9, dt.UTC)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f"{nanoseconds % 10**9:09d}"[:digits].rstrip("0")
    return f"{text}.{fraction}Z" if fraction else f"{text}Z"


def time_ns(value: str | float) -> int:
    """Nanoseconds since 1970 of RFC 3339 text or a number of seconds; raises ValueError."""
    if not isinstance(value, str):
        return int(value * 10**9)
    moment = dt.datetime.fromisoformat(value)
    return int(moment.timestamp()) * 10**9 + moment.microsecond * 1000


def event_json(events: list[Event]) -> list[dict[str, Any]]:
    """Events as RPC answers show them."""
    return [
        {
            "type": event.type,
            "attributes": [{"key": key, "value": value, "index": True} for key, value in event.attributes],
        }
        for event in events
    ]


def result_json(result: TxResult) -> dict[str, Any]:
    """The execution result with all its members."""
    return {
        "code": result.code,
        "data": base64_text(result.data) if result.data else None,
        "log": result.log,
        "info": "",
        "gas_wanted": str(result.gas_wanted),
        "gas_used": str(result.gas_used),
        "events": event_json(result.events),
        "codespace": result.codespace,
    }


def base64_text(data: bytes) -> str:
    """Standard base64."""
    return base64.b64encode(data).decode()


def hex_text(data: bytes) -> str:
    """Upper-case hex, as CometBFT prints hashes."""
    return data.hex().upper()
