"""What the admin API and the tests can do on a chain: messages of anybody, and things no message can do."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from leases.chain.devchain.chain import Chain
from leases.chain.devchain.errors import Refused
from leases.chain.devchain.genesis import TENANTS
from leases.chain.devchain.keys import AUTHORITY, PWR, as_coins, credit_address
from leases.chain.devchain.records import PENDING
from leases.chain.devchain.responses import decode_responses
from leases.chain.devchain.state import TABLES
from leases.chain.devchain.stored import plain
from leases.chain.devchain.transactions import TxResult
from leases.chain.proto import billing_pb2 as pb
from leases.chain.proto import coin_pb2, sku_pb2

if TYPE_CHECKING:
    from leases.chain.devchain.node import Node

PER_MESSAGE = 100
VERBS = ("ack", "reject", "cancel", "close", "withdraw")


def succeeded(results: Iterable[TxResult]) -> list[TxResult]:
    """The results, all of them successes; raises `Refused` with the first failure."""
    checked = list(results)
    for result in checked:
        if result.code:
            raise Refused.with_text(result.codespace, result.code, result.log)
    return checked


def _responses(results: Iterable[TxResult], field: str) -> list[str]:
    return [str(getattr(response, field)) for result in results for response in decode_responses(result.data)]


# --- market ------------------------------------------------------------------


async def create_provider(node: Node, address: str, *, payout_address: str, api_url: str) -> str:
    """A provider in the name of the authority; its uuid."""
    message = sku_pb2.MsgCreateProvider(
        authority=AUTHORITY, address=address, payout_address=payout_address, api_url=api_url
    )
    return _responses(succeeded(await node.act([[message]])), "uuid")[0]


async def create_sku(node: Node, provider_uuid: str, *, name: str, price: int, denom: str = PWR, unit: int = 1) -> str:
    """An offer in the name of the authority; its uuid."""
    message = sku_pb2.MsgCreateSKU(
        authority=AUTHORITY,
        provider_uuid=provider_uuid,
        name=name,
        base_price=coin_pb2.Coin(denom=denom, amount=str(price)),
    )
    message.unit = unit  # type: ignore[assignment]
    return _responses(succeeded(await node.act([[message]])), "uuid")[0]


async def fund_credit(node: Node, tenant: str, coins: Mapping[str, int], *, sender: str) -> str:
    """Credit for a tenant, from the sender's money; the credit address."""
    messages = [
        pb.MsgFundCredit(sender=sender, tenant=tenant, amount=coin_pb2.Coin(denom=denom, amount=str(amount)))
        for denom, amount in sorted(coins.items())
    ]
    succeeded(await node.act([messages]))
    return credit_address(tenant)


def mint(chain: Chain, address: str, coins: Mapping[str, int]) -> None:
    """New money at an address, whose account is made when it is missing."""
    chain.state.account(address)
    chain.state.add(address, as_coins(dict(coins)))


def drain_credit(chain: Chain, tenant: str, coins: Mapping[str, int] | None) -> None:
    """Take credit away without a message; None takes everything."""
    address = credit_address(tenant)
    taken = chain.state.coins_of(address) if coins is None else as_coins(dict(coins))
    for denom, amount in taken:
        if chain.state.balance(address, denom) < amount:
            raise ValueError(f"the credit of {tenant} holds less than {amount}{denom}")
    chain.state.add(address, taken, sign=-1)


# --- leases --------------------------------------------------------------------


async def create_leases(
    node: Node,
    count: int,
    *,
    tenants: Sequence[str] | None = None,
    items: Sequence[Mapping[str, Any]] | None = None,
    sku: str = "",
    meta_hash: bytes = b"",
) -> list[str]:
    """Leases in one block, shared out over the tenants (default: those of the fixture that have credit)."""
    chain = node.chain
    if tenants is None:
        known = [chain.genesis.keys[name].address for name in TENANTS]
        tenants = [address for address in known if address in chain.state.credits]
    if not tenants or count < 1:
        raise ValueError("no tenant has credit" if count >= 1 else "count must be positive")
    lines = [pb.LeaseItemInput(**line) for line in items] if items else [_first_sku(chain, sku)]
    shares: dict[str, list[Message]] = {tenant: [] for tenant in tenants}
    for tenant in itertools.islice(itertools.cycle(tenants), count):
        shares[tenant].append(pb.MsgCreateLease(tenant=tenant, items=lines, meta_hash=meta_hash))
    transactions = [part for share in shares.values() for part in _parts(share)]
    return _responses(succeeded(await node.act(transactions)), "lease_uuid")


def _first_sku(chain: Chain, wanted: str) -> pb.LeaseItemInput:
    for sku in chain.state.skus.values():
        if not wanted or wanted in (sku.uuid, sku.name):
            return pb.LeaseItemInput(sku_uuid=sku.uuid, quantity=1)
    raise ValueError(f"there is no SKU {wanted}" if wanted else "there is no SKU")


def _parts(messages: Sequence[Message]) -> Iterable[Sequence[Message]]:
    for start in range(0, len(messages), PER_MESSAGE):
        yield messages[start : start + PER_MESSAGE]


async def move_leases(
    node: Node, verb: str, uuids: Sequence[str], *, sender: str = "", reason: str = ""
) -> list[TxResult]:
    """Acknowledge, reject, cancel, close or withdraw, 100 leases per transaction, all in one block.

    Without a sender the provider acts, for a cancellation the tenant.
    """
    groups: dict[str, list[str]] = {}
    for uuid in uuids:
        groups.setdefault(sender or _natural_sender(node.chain, verb, uuid), []).append(uuid)
    transactions: list[list[Message]] = []
    for who, owned in groups.items():
        parts = (owned[start : start + PER_MESSAGE] for start in range(0, len(owned), PER_MESSAGE))
        transactions.extend([_move_message(verb, who, part, reason)] for part in parts)
    return succeeded(await node.act(transactions))


def _natural_sender(chain: Chain, verb: str, uuid: str) -> str:
    lease = chain.state.leases.get(uuid)
    if lease is None:
        raise ValueError(f"no lease {uuid}")
    return lease.tenant if verb == "cancel" else chain.state.providers[lease.provider_uuid].address


def _move_message(verb: str, sender: str, uuids: list[str], reason: str) -> Message:
    match verb:
        case "ack":
            return pb.MsgAcknowledgeLease(sender=sender, lease_uuids=uuids)
        case "reject":
            return pb.MsgRejectLease(sender=sender, lease_uuids=uuids, reason=reason)
        case "cancel":
            return pb.MsgCancelLease(tenant=sender, lease_uuids=uuids)
        case "close":
            return pb.MsgCloseLease(sender=sender, lease_uuids=uuids, reason=reason)
        case "withdraw":
            return pb.MsgWithdraw(sender=sender, lease_uuids=uuids)
    raise ValueError(f"unknown verb {verb}")


async def set_domain(node: Node, uuid: str, domain: str, *, service_name: str = "", sender: str = "") -> TxResult:
    """Set or (empty) clear a custom domain, as the tenant unless a sender is given."""
    lease = node.chain.state.leases[uuid]
    message = pb.MsgSetItemCustomDomain(
        sender=sender or lease.tenant, lease_uuid=uuid, service_name=service_name, custom_domain=domain
    )
    return succeeded(await node.act([[message]]))[0]


def overdue(chain: Chain, uuids: Iterable[str]) -> dict[str, Any]:
    """Move the creation of PENDING leases back, so that the next block expires them (100 per block)."""
    moved = []
    early = chain.time - (chain.state.params.pending_timeout + 1) * 10**9
    for uuid in uuids:
        lease = chain.state.leases[uuid]
        if lease.state != PENDING:
            raise ValueError(f"lease {uuid} is not PENDING")
        chain.state.put_lease(lease._replace(created_at=min(lease.created_at, early)))
        moved.append(uuid)
    return {"lease_uuids": moved}


def write_state(chain: Chain, uuid: str, number: int) -> dict[str, Any]:
    """Write any number as the state of a lease, known or not."""
    chain.state.put_lease(chain.state.leases[uuid]._replace(state=number))
    return {"state": number}


def change_params(chain: Chain, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Change some parameters of the billing module at once; raises ValueError for an unknown name."""
    typed: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list | tuple) else int(value) for name, value in changes.items()
    }
    params = chain.state.params._replace(**typed)
    chain.state.set(chain.state.settings, "params", params)
    return params._asdict()


def dump(chain: Chain) -> dict[str, Any]:
    """The whole state as JSON values."""
    shown: dict[str, Any] = {"chain_id": chain.chain_id, "height": chain.height, "time_ns": chain.time}
    for name in TABLES:
        table = getattr(chain.state, name)
        rows = [
            {"key": list(key) if isinstance(key, tuple) else key, "value": plain(row)} for key, row in table.items()
        ]
        shown[name] = rows
    return shown
