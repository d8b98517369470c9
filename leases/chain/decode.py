"""Answers of the chain to facts. Unknown fields are skipped, unknown enum numbers stay numbers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from uuid import UUID

from google.protobuf.any_pb2 import Any as PackedAny
from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

from leases.chain.client import Account, BlockHead, ChainLease, Coin, LeaseItem, Provider, TxResult
from leases.chain.errors import AccountUnreadable, ChainUnavailable
from leases.chain.proto import abci_pb2, auth_pb2, billing_pb2, coin_pb2, sku_pb2, tendermint_pb2, vesting_pb2
from leases.status import LeaseState

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_ONE = -62_135_596_800  # what an unset time that cannot be absent looks like

_VESTING_TYPES: dict[
    str,
    type[
        vesting_pb2.ContinuousVestingAccount
        | vesting_pb2.DelayedVestingAccount
        | vesting_pb2.PeriodicVestingAccount
        | vesting_pb2.PermanentLockedAccount
    ],
] = {
    "ContinuousVestingAccount": vesting_pb2.ContinuousVestingAccount,
    "DelayedVestingAccount": vesting_pb2.DelayedVestingAccount,
    "PeriodicVestingAccount": vesting_pb2.PeriodicVestingAccount,
    "PermanentLockedAccount": vesting_pb2.PermanentLockedAccount,
}


class Unreadable(ValueError):
    """The answer is well formed but holds something this build has no value for."""


def moment(stamp: Timestamp) -> datetime | None:
    """Return a time, cut to microseconds; None for the year 1, which means that nothing was set."""
    if stamp.seconds <= _YEAR_ONE:
        return None
    return _EPOCH + timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)


def coin(message: coin_pb2.Coin) -> Coin:
    """Return an amount. Raises `Unreadable` when it is no decimal integer."""
    return _coin(message.denom, message.amount)


def lease(message: billing_pb2.Lease) -> ChainLease:
    """Return a lease. Raises `Unreadable` for a state number this build does not know and for malformed fields."""
    state = LeaseState.parse(message.state)
    if state is None or state is LeaseState.UNSPECIFIED:
        raise Unreadable(f"lease {message.uuid} has the unknown state {message.state}")
    try:
        return ChainLease(
            uuid=UUID(message.uuid),
            tenant=message.tenant,
            provider_uuid=_shared_uuid(message.provider_uuid),
            state=state,
            items=tuple(
                LeaseItem(
                    _shared_uuid(item.sku_uuid),
                    item.quantity,
                    coin(item.locked_price),
                    item.service_name,
                    item.custom_domain,
                )
                for item in message.items
            ),
            created_at=moment(message.created_at) if message.HasField("created_at") else None,
            last_settled_at=moment(message.last_settled_at) if message.HasField("last_settled_at") else None,
            acknowledged_at=moment(message.acknowledged_at) if message.HasField("acknowledged_at") else None,
            closed_at=moment(message.closed_at) if message.HasField("closed_at") else None,
            rejected_at=moment(message.rejected_at) if message.HasField("rejected_at") else None,
            expired_at=moment(message.expired_at) if message.HasField("expired_at") else None,
            meta_hash=message.meta_hash,
            rejection_reason=message.rejection_reason,
            closure_reason=message.closure_reason,
            min_lease_duration_seconds=message.min_lease_duration_at_creation,
        )
    except (ValueError, OverflowError) as error:
        raise Unreadable(f"lease {message.uuid!r}: {error}") from error


def leases_of(provider_uuid: UUID, rows: Iterable[billing_pb2.Lease]) -> tuple[tuple[ChainLease, ...], tuple[str, ...]]:
    """Return a provider's leases of a page, and the uuids of rows that cannot be used or are another provider's."""
    found: list[ChainLease] = []
    unreadable: list[str] = []
    for row in rows:
        try:
            one = lease(row)
        except Unreadable:
            unreadable.append(row.uuid)
            continue
        if one.provider_uuid == provider_uuid:
            found.append(one)
        else:
            unreadable.append(row.uuid)
    return tuple(found), tuple(unreadable)


def account(address: str, packed: PackedAny) -> Account:
    """Return number and sequence from any account type that holds a base account.

    Raises `AccountUnreadable` for other types.
    """
    base = _base_account(packed)
    return Account(address=base.address or address, number=base.account_number, sequence=base.sequence)


def provider(message: sku_pb2.Provider) -> Provider:
    """Return a provider's registration. Raises `Unreadable` when its uuid is none."""
    try:
        uuid = UUID(message.uuid)
    except ValueError as error:
        raise Unreadable(f"provider {message.uuid!r}: {error}") from error
    return Provider(
        uuid=uuid,
        address=message.address,
        payout_address=message.payout_address,
        is_active=message.active,
        api_url=message.api_url,
    )


def tx_result(message: abci_pb2.TxResponse) -> TxResult:
    """Return what became of an included transaction."""
    return TxResult(
        tx_hash=message.txhash,
        height=message.height,
        code=message.code,
        codespace=message.codespace,
        raw_log=message.raw_log,
        gas_wanted=message.gas_wanted,
        gas_used=message.gas_used,
        data=message.data,
    )


# A listing repeats few SKUs and prices many times: one object for all of them.
_shared_uuid = lru_cache(maxsize=4096)(UUID)


@lru_cache(maxsize=4096)
def _coin(denom: str, amount: str) -> Coin:
    if not amount.isdecimal():
        raise Unreadable(f"amount {amount!r} of {denom!r} is no integer")
    return Coin(denom, int(amount))


def _base_account(packed: PackedAny) -> auth_pb2.BaseAccount:
    name = packed.type_url.rpartition(".")[2]
    try:
        if packed.type_url == "/cosmos.auth.v1beta1.BaseAccount":
            return auth_pb2.BaseAccount.FromString(packed.value)
        if packed.type_url == "/cosmos.auth.v1beta1.ModuleAccount":
            return auth_pb2.ModuleAccount.FromString(packed.value).base_account
        if packed.type_url == "/cosmos.vesting.v1beta1.BaseVestingAccount":
            return vesting_pb2.BaseVestingAccount.FromString(packed.value).base_account
        if packed.type_url.startswith("/cosmos.vesting.v1beta1.") and name in _VESTING_TYPES:
            return _VESTING_TYPES[name].FromString(packed.value).base_vesting_account.base_account
    except DecodeError as error:
        raise AccountUnreadable(f"failed to unpack account: {error}") from error
    raise AccountUnreadable(f"failed to unpack account: unexpected type {packed.type_url}")


def header(
    answer: tendermint_pb2.GetLatestBlockResponse | tendermint_pb2.GetBlockByHeightResponse, *, doing: str
) -> BlockHead:
    """Read the header of a block's answer, in either of its two forms. Raises `ChainUnavailable` when there is none."""
    found = answer.sdk_block.header if answer.HasField("sdk_block") else answer.block.header
    time = moment(found.time)
    if found.height <= 0 or time is None:
        raise ChainUnavailable(f"failed to {doing}: the answer holds no header")
    return BlockHead(height=found.height, time=time, chain_id=found.chain_id)
