"""The real chain over gRPC: `CosmosClient` keeps the promises of `leases.chain.client.ChainClient`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Any
from uuid import UUID

import grpc

from fred.budget import of_part
from fred.metrics import CHAIN_QUERY_SECONDS
from leases.chain import decode, noticed
from leases.chain.absences import RecentlyMissing, fault_of
from leases.chain.channel import (
    Answer,
    NodeChannel,
    Tls,
    answer,
    failure,
    height_of,
    is_not_found,
    says_no_grant,
    status_of,
)
from leases.chain.client import (
    Absent,
    Account,
    BlockHead,
    Broadcast,
    Doubt,
    ExactLease,
    LeasePage,
    Provider,
    TxResult,
    Unknown,
)
from leases.chain.codes import without_place
from leases.chain.errors import (
    AccountAbsent,
    CallRefused,
    ChainUnavailable,
    GasUnknown,
    ListingIncomplete,
    SimulationRefused,
)
from leases.chain.proto import (
    auth_pb2,
    authz_pb2,
    bank_pb2,
    billing_pb2,
    pagination_pb2,
    sku_pb2,
    tendermint_pb2,
    tx_pb2,
)
from leases.chain.stopwatch import Stopwatch
from leases.status import LeaseState

QUERY_SECONDS = BROADCAST_SECONDS = 10.0
SIMULATE_SECONDS = GET_TX_SECONDS = 5.0
LARGE_PAGE = 1000  # the most a ledger gives; used once the first page was full
MAX_LISTING_STARTS = 4
_SIDE_BY_SIDE = 64

_LEASE = "/liftedinit.billing.v1.Query/Lease"
_LEASES_BY_PROVIDER = "/liftedinit.billing.v1.Query/LeasesByProvider"
_PROVIDER = "/liftedinit.sku.v1.Query/Provider"
_ACCOUNT = "/cosmos.auth.v1beta1.Query/Account"
_BALANCE = "/cosmos.bank.v1beta1.Query/Balance"
_SIMULATE = "/cosmos.tx.v1beta1.Service/Simulate"
_BROADCAST = "/cosmos.tx.v1beta1.Service/BroadcastTx"
_GET_TX = "/cosmos.tx.v1beta1.Service/GetTx"
_GRANTS = "/cosmos.authz.v1beta1.Query/Grants"
_BLOCK = "/cosmos.base.tendermint.v1beta1.Service/GetBlockByHeight"
_LATEST_BLOCK = "/cosmos.base.tendermint.v1beta1.Service/GetLatestBlock"
_SYNCING = "/cosmos.base.tendermint.v1beta1.Service/GetSyncing"

_LISTING_LABELS = {LeaseState.PENDING: "get_pending_leases", LeaseState.ACTIVE: "get_active_leases"}

LeaseRead = ExactLease | Absent | Unknown


class CosmosClient:
    """One node, asked for one provider. See `ChainClient` for what each method promises.

    `page_limit` is the size of a listing's first page; when that was full, the next have up to 1,000 rows. No query
    takes over `query_seconds`, or what a part of a request has left. `on_outcome` hears if each call was answered.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        provider_uuid: UUID,
        tls: Tls | None = None,
        page_limit: int = 100,
        query_seconds: float = QUERY_SECONDS,
        on_outcome: Callable[[bool], object] | None = None,
    ) -> None:
        self._query_s = query_seconds
        self._channel = NodeChannel(endpoint, tls=tls, on_outcome=on_outcome)
        self._missing = RecentlyMissing()
        self._provider_uuid = provider_uuid
        self._page_limit = page_limit

    @property
    def endpoint(self) -> str:
        """Host and port that are asked."""
        return self._channel.endpoint

    def close(self) -> None:
        """Give up the connection of this process; the next call makes a new one."""
        self._channel.close()

    # Leases

    def lease(self, lease_uuid: UUID) -> LeaseRead:
        """Read one lease exactly."""
        return self.leases([lease_uuid])[lease_uuid]

    def leases(self, lease_uuids: Sequence[UUID]) -> Mapping[UUID, LeaseRead]:
        """Read many leases exactly, 64 side by side; once all of those are silent the rest is `Unknown` unasked."""
        found: dict[UUID, LeaseRead] = {}
        waiting = iter(dict.fromkeys(lease_uuids))
        silence: LeaseRead | None = None
        while part := list(islice(waiting, _SIDE_BY_SIDE)):
            if silence is None:
                waited = Stopwatch()
                with waited:
                    found |= self._read_side_by_side(part)
                CHAIN_QUERY_SECONDS.labels("get_lease").observe(waited.seconds)
                reads = [found[uuid] for uuid in part]
                silence = reads[0] if all(map(_is_silence, reads)) else None
            else:
                found |= dict.fromkeys(part, silence)
        return found

    def list_leases(self, provider_uuid: UUID, state: LeaseState | None = None) -> Iterator[LeasePage]:
        """Walk a provider's leases.

        An empty page that is not the first, or a page older than the one before, means that the ledger lost its place
        or another node answered: the walk starts anew, and ends with `ListingIncomplete` when that does not help.
        """
        wanted = state or LeaseState.UNSPECIFIED
        waited = Stopwatch()
        try:
            for _ in range(MAX_LISTING_STARTS):
                if (yield from self._walk(provider_uuid, wanted, waited)):
                    return
            raise ListingIncomplete(f"the listing of {wanted.name} leases was cut {MAX_LISTING_STARTS} times")
        finally:
            if wanted in _LISTING_LABELS:
                CHAIN_QUERY_SECONDS.labels(_LISTING_LABELS[wanted]).observe(waited.seconds)

    # Accounts and providers

    def account(self, address: str) -> Account:
        """Read number and committed sequence of an account."""
        request = auth_pb2.QueryAccountRequest(address=address)
        try:
            got = self._channel.call(_ACCOUNT, request, auth_pb2.QueryAccountResponse, timeout=self._query_s)
        except grpc.RpcError as error:
            if is_not_found(error):
                raise AccountAbsent(address) from error
            raise failure(error, "query account") from error
        return replace(decode.account(address, got.message.account), height=got.height)

    def balance(self, address: str, denom: str) -> int:
        """Return a balance in base units; 0 for an unknown address. Raises `ChainUnavailable`, `CallRefused`."""
        request = bank_pb2.QueryBalanceRequest(address=address, denom=denom)
        got = self._ask(_BALANCE, request, bank_pb2.QueryBalanceResponse, doing="query balance")
        return int(got.message.balance.amount or "0")

    def has_grant(self, granter: str, grantee: str, *, type_url: str) -> bool:
        """Whether `grantee` may send messages of this type for `granter`. Raises `ChainUnavailable`, `CallRefused`."""
        request = authz_pb2.QueryGrantsRequest(granter=granter, grantee=grantee, msg_type_url=type_url)
        try:
            got = self._channel.call(_GRANTS, request, authz_pb2.QueryGrantsResponse, timeout=self._query_s)
        except grpc.RpcError as error:
            if says_no_grant(error):
                return False
            raise failure(error, f"query grant for {granter} → {grantee} ({type_url})") from error
        return bool(got.message.grants)

    def provider(self, provider_uuid: UUID) -> Provider | Absent | Unknown:
        """Read a provider's registration."""
        request = sku_pb2.QueryProviderRequest(uuid=str(provider_uuid))
        got = self._look_up(_PROVIDER, request, sku_pb2.QueryProviderResponse, timeout=self._query_s)
        if not isinstance(got, Answer):
            return got
        try:
            return decode.provider(got.message.provider)
        except decode.Unreadable as error:
            return Unknown(str(error), Doubt.UNREADABLE)

    # Transactions

    def simulate(self, tx_bytes: bytes) -> int:
        """Return the gas that this transaction would use."""
        request = tx_pb2.SimulateRequest(tx_bytes=tx_bytes)
        try:
            got = self._channel.call(_SIMULATE, request, tx_pb2.SimulateResponse, timeout=SIMULATE_SECONDS)
        except grpc.RpcError as error:
            code, text = status_of(error)
            if code is grpc.StatusCode.UNKNOWN and "with gas used:" in text:
                raise SimulationRefused(without_place(text)) from error
            raise failure(error, "simulate transaction") from error
        if not got.message.HasField("gas_info"):
            noticed.fault("gas_unknown")
            raise GasUnknown("the node's simulation says nothing of gas")
        return int(got.message.gas_info.gas_used)

    def broadcast(self, tx_bytes: bytes) -> Broadcast:
        """Hand signed bytes to the node's mempool (mode SYNC)."""
        request = tx_pb2.BroadcastTxRequest(tx_bytes=tx_bytes, mode=tx_pb2.BROADCAST_MODE_SYNC)
        try:
            got = self._channel.call(_BROADCAST, request, tx_pb2.BroadcastTxResponse, timeout=BROADCAST_SECONDS)
        except grpc.RpcError as error:
            raise failure(error, "broadcast transaction") from error
        if not got.message.HasField("tx_response"):
            raise ChainUnavailable("failed to broadcast transaction: the answer is empty")
        response = got.message.tx_response
        if response.code:
            noticed.fault(fault_of(response.codespace, response.code, "tx_refused"), response.raw_log)
        return Broadcast(response.code, response.codespace, response.txhash, response.raw_log)

    def tx(self, tx_hash: str) -> TxResult | Absent | Unknown:
        """Look an included transaction up by its hash."""
        request = tx_pb2.GetTxRequest(hash=tx_hash)
        got = self._look_up(_GET_TX, request, tx_pb2.GetTxResponse, timeout=GET_TX_SECONDS)
        if isinstance(got, Absent):
            self._missing.note(tx_hash, got.height)
        if not isinstance(got, Answer):
            return got
        if not got.message.HasField("tx_response"):
            return Unknown(f"the answer for transaction {tx_hash} is empty")
        result = decode.tx_result(got.message.tx_response)
        if self._missing.was_at(tx_hash, result.height):
            noticed.fault("index_lag", tx_hash)
        if result.code:
            noticed.fault(fault_of(result.codespace, result.code, "tx_failed"), result.raw_log)
        return result

    # The node

    def latest_height(self) -> BlockHead:
        """Read the node's newest block."""
        request = tendermint_pb2.GetLatestBlockRequest()
        got = self._ask(_LATEST_BLOCK, request, tendermint_pb2.GetLatestBlockResponse, doing="read the newest block")
        return decode.header(got.message, doing="read the newest block")

    def block_time(self, height: int) -> datetime:
        """Read when a block was made. Raises `ChainUnavailable`, and `CallRefused` for one the node does not hold."""
        request = tendermint_pb2.GetBlockByHeightRequest(height=height)
        got = self._ask(_BLOCK, request, tendermint_pb2.GetBlockByHeightResponse, doing=f"read block {height}")
        return decode.header(got.message, doing=f"read block {height}").time

    def is_syncing(self) -> bool:
        """Whether the node is catching up."""
        doing, request = "ask whether the node is syncing", tendermint_pb2.GetSyncingRequest()
        got = self._ask(_SYNCING, request, tendermint_pb2.GetSyncingResponse, doing=doing)
        return bool(got.message.syncing)

    # Inside

    def _walk(self, provider_uuid: UUID, state: LeaseState, waited: Stopwatch) -> Generator[LeasePage, None, bool]:
        """One walk from the first page; whether it reached the end."""
        key, height, limit = b"", -1, self._page_limit
        while True:
            with waited:
                page, key = self._page(provider_uuid, state, key=key, limit=limit)
            is_empty = not (page.leases or page.unreadable)
            if height >= 0 and (page.height < height or (is_empty and not key)):
                noticed.fault("listing_cut", f"{state.name} at height {page.height}, after one of {height}")
                return False
            if is_empty and key:
                noticed.fault("empty_page", state.name)
            yield page
            if not key:
                return True
            height, limit = page.height, max(limit, LARGE_PAGE)

    def _read_side_by_side(self, lease_uuids: Sequence[UUID]) -> dict[UUID, LeaseRead]:
        """Read some leases at once. Those not found are asked again, once the node's height is known."""
        found: dict[UUID, LeaseRead] = {}
        missing: list[UUID] = []
        try:
            futures = {uuid: self._start_lease(uuid) for uuid in lease_uuids}
        except ChainUnavailable as error:
            return dict.fromkeys(lease_uuids, Unknown(error.reason))
        read, errors = self._answers(futures)
        found |= read
        for uuid, failed in errors.items():
            if not is_not_found(failed):
                found[uuid] = _unknown(failed, "query lease")
            elif (height := height_of(failed)) >= 0:
                found[uuid] = Absent(height)
            else:
                missing.append(uuid)
        return found | self._prove_absent(missing)

    def _prove_absent(self, lease_uuids: Sequence[UUID]) -> dict[UUID, LeaseRead]:
        """Ask again for leases that were not found: an error carries no height, so the node is asked for it first."""
        if not lease_uuids:
            return {}
        try:
            height = self.latest_height().height
            futures = {uuid: self._start_lease(uuid) for uuid in lease_uuids}
        except (ChainUnavailable, CallRefused) as error:
            return dict.fromkeys(lease_uuids, Unknown(error.reason))
        found, errors = self._answers(futures)
        for uuid, failed in errors.items():
            found[uuid] = Absent(height) if is_not_found(failed) else _unknown(failed, "query lease")
        return found

    def _answers(self, futures: Mapping[UUID, Any]) -> tuple[dict[UUID, LeaseRead], dict[UUID, grpc.RpcError]]:
        """Wait for reads that are under way together; return what they brought, and the errors of the others."""
        found: dict[UUID, LeaseRead] = {}
        errors: dict[UUID, grpc.RpcError] = {}
        for uuid, future in futures.items():
            try:
                found[uuid] = self._exact(uuid, answer(future))
            except grpc.RpcError as error:
                errors[uuid] = error
        self._channel.heard([*errors.values()], answers=len(found))
        return found, errors

    def _start_lease(self, lease_uuid: UUID) -> Any:
        request = billing_pb2.QueryLeaseRequest(lease_uuid=str(lease_uuid))
        return self._channel.start(_LEASE, request, billing_pb2.QueryLeaseResponse, timeout=of_part(self._query_s))

    def _exact(self, lease_uuid: UUID, got: Answer) -> LeaseRead:
        if got.height < 0 or not got.message.HasField("lease"):
            return Unknown(f"the answer for lease {lease_uuid} names no height or no lease")
        try:
            lease = decode.lease(got.message.lease)
        except decode.Unreadable as error:
            return Unknown(str(error), Doubt.UNREADABLE)
        if lease.uuid != lease_uuid:
            return Unknown(f"asked for lease {lease_uuid}, the answer is about {lease.uuid}", Doubt.UNREADABLE)
        if lease.provider_uuid != self._provider_uuid:
            reason = f"lease {lease_uuid} belongs to provider {lease.provider_uuid}"
            return Unknown(reason, Doubt.FOREIGN, lease.state)
        return ExactLease(lease, got.height)

    def _page(self, provider_uuid: UUID, state: LeaseState, *, key: bytes, limit: int) -> tuple[LeasePage, bytes]:
        request = billing_pb2.QueryLeasesByProviderRequest(
            provider_uuid=str(provider_uuid),
            pagination=pagination_pb2.PageRequest(key=key, limit=limit),
            state_filter=state.value,  # type: ignore[arg-type]
        )
        got = self._ask(
            _LEASES_BY_PROVIDER, request, billing_pb2.QueryLeasesByProviderResponse, doing=f"query {state.name} leases"
        )
        if got.height < 0:
            raise ChainUnavailable(f"failed to query {state.name} leases: the answer names no height")
        leases, unreadable = decode.leases_of(provider_uuid, got.message.leases)
        return LeasePage(leases, got.height, unreadable), got.message.pagination.next_key

    def _ask(self, method: str, request: Any, response_type: type[Any], *, doing: str) -> Answer:
        try:
            return self._channel.call(method, request, response_type, timeout=of_part(self._query_s))
        except grpc.RpcError as error:
            raise failure(error, doing) from error

    def _look_up(
        self, method: str, request: Any, response_type: type[Any], *, timeout: float
    ) -> Answer | Absent | Unknown:
        """Ask for one thing; when it is not found, ask again after the node's height is known."""
        height = -1
        for _ in range(2):
            try:
                return self._channel.call(method, request, response_type, timeout=timeout)
            except grpc.RpcError as error:
                if not is_not_found(error):
                    return _unknown(error, f"call {method}")
                height = max(height, height_of(error))
                if height >= 0:
                    return Absent(height)
            except ChainUnavailable as error:
                return Unknown(error.reason)
            try:
                height = self.latest_height().height
            except (ChainUnavailable, CallRefused) as error:
                return Unknown(error.reason)
        return Absent(height)


def _unknown(error: grpc.RpcError, doing: str) -> Unknown:
    """A refused argument is an answer about that argument; everything else puts the node in question."""
    is_refused = status_of(error)[0] is grpc.StatusCode.INVALID_ARGUMENT
    return Unknown(str(failure(error, doing)), Doubt.UNREADABLE if is_refused else Doubt.SILENT)


def _is_silence(read: LeaseRead) -> bool:
    return isinstance(read, Unknown) and read.doubt is Doubt.SILENT
