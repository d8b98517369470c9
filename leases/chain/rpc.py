"""The node's RPC over HTTP: what happened in a block, searches, status. Blocking; call it from a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import TypeVar
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import msgspec

from fred.http import Request, Tls, fetch
from leases.chain import events, noticed
from leases.chain.errors import ChainUnavailable, ResultsNotYet, ResultsPruned, RpcError
from leases.chain.events import AbciEvent, LeaseEvent

_MEBIBYTE = 1024 * 1024
_MAX_ANSWER_BYTES = 256 * _MEBIBYTE  # the results of a block with ten thousand leases are tens of megabytes
_SEARCH_PAGE = 100
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """What the node says of itself. Below `earliest_height` it holds nothing."""

    chain_id: str
    height: int
    time: datetime
    earliest_height: int
    is_catching_up: bool
    block_hash: str = ""  # of the newest block, upper-case hexadecimal


class _Error(msgspec.Struct):
    code: int = 0
    message: str = ""
    data: str | None = ""


class _Envelope(msgspec.Struct):
    result: msgspec.Raw = msgspec.Raw(b"")
    error: _Error | None = None


class _TxResult(msgspec.Struct):
    code: int = 0
    events: list[AbciEvent] | None = None


class _BlockResults(msgspec.Struct):
    height: str
    txs_results: list[_TxResult] | None = None
    finalize_block_events: list[AbciEvent] | None = None


class _BlockId(msgspec.Struct):
    hash: str = ""


class _Block(msgspec.Struct):
    block_id: _BlockId


class _FoundTx(msgspec.Struct):
    hash: str
    height: str
    tx_result: _TxResult


class _Found(msgspec.Struct):
    txs: list[_FoundTx]
    total_count: str


class _NodeInfo(msgspec.Struct):
    network: str


class _SyncInfo(msgspec.Struct):
    latest_block_height: str
    latest_block_time: str
    catching_up: bool
    earliest_block_height: str = "1"
    latest_block_hash: str = ""


class _Status(msgspec.Struct):
    node_info: _NodeInfo
    sync_info: _SyncInfo


def base_url(websocket_url: str) -> str:
    """Return the address of the HTTP RPC that belongs to a WebSocket address: same host and port, no path."""
    parts = urlsplit(websocket_url)
    return urlunsplit(("https" if parts.scheme == "wss" else "http", parts.netloc, "/", "", ""))


class NodeRpc:
    """One node's RPC, read for one provider.

    Every method raises `ChainUnavailable` when there is no usable answer and `RpcError` when the node answers with an
    error. `timeout` (seconds) covers one request. `ca_file` (PEM) is for `https`, empty means the system's roots.
    `on_outcome` hears of every call whether the node answered.
    """

    def __init__(
        self,
        url: str,
        *,
        provider_uuid: UUID,
        timeout: float = 10.0,
        ca_file: str = "",
        on_outcome: Callable[[bool], object] | None = None,
    ) -> None:
        self.url = url
        self._tls = Tls(ca_file=ca_file, minimum_1_3=False)
        self._on_outcome = on_outcome
        self._provider_uuid = str(provider_uuid)
        self._timeout = timeout

    def status(self) -> NodeStatus:
        """Read chain id, newest height, and whether the node is catching up."""
        found = self._call("status", {}, _Status)
        try:
            return NodeStatus(
                chain_id=found.node_info.network,
                height=int(found.sync_info.latest_block_height),
                time=events.moment(found.sync_info.latest_block_time),
                earliest_height=int(found.sync_info.earliest_block_height),
                is_catching_up=found.sync_info.catching_up,
                block_hash=found.sync_info.latest_block_hash.upper(),
            )
        except ValueError as error:
            raise ChainUnavailable(f"failed to read status: {error}") from error

    def block_events(self, height: int) -> tuple[LeaseEvent, ...]:
        """Return all lease events of a block: those of its transactions, then those of its end.

        Raises `ResultsNotYet` for a height the node has no results of; for the newest height that passes in a moment,
        for an old one they are pruned (`ResultsPruned` where the node says so). The events carry no hash.
        """
        found = self._call("block_results", {"height": str(height)}, _BlockResults)
        if found.height != str(height):
            raise ChainUnavailable(f"asked for the results of block {height}, got those of {found.height}")
        lists = [tx.events or [] for tx in found.txs_results or () if tx.code == 0]
        lists.append(found.finalize_block_events or [])
        return tuple(
            event
            for listed in lists
            for event in events.typed(events.from_list(listed, self._provider_uuid), height=height)
        )

    def block_hash(self, height: int) -> str:
        """Return the hash of a block, upper-case hexadecimal; `RpcError` for one the node does not hold."""
        return self._call("block", {"height": str(height)}, _Block).block_id.hash.upper()

    def search(self, query: str) -> Iterator[LeaseEvent]:
        """Walk the lease events of all transactions that match a query, oldest first."""
        seen = 0
        for page in count(1):
            parameters = {"query": query, "per_page": str(_SEARCH_PAGE), "page": str(page), "order_by": "asc"}
            found = self._call("tx_search", parameters, _Found)
            for tx in found.txs:
                occurrences = events.from_list(tx.tx_result.events or [], self._provider_uuid)
                yield from events.typed(occurrences, height=int(tx.height), tx_hash=tx.hash)
            seen += len(found.txs)
            if not found.txs or seen >= int(found.total_count):
                return

    def _call(self, method: str, parameters: dict[str, str], expected: type[_T]) -> _T:
        body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters})
        response = fetch(
            Request(
                url=self.url,
                headers=(("Content-Type", "application/json"),),
                body=body,
                timeout=self._timeout,
                max_body=_MAX_ANSWER_BYTES,
                tls=self._tls,
            )
        )
        if self._on_outcome is not None:
            self._on_outcome(response.error is None)
        if response.error is not None:
            noticed.fault("rpc_unavailable", f"{method}: {response.error.message}")
            raise ChainUnavailable(f"failed to call {method}: {response.error.message}", code=response.error.kind)
        try:
            envelope = msgspec.json.decode(response.body, type=_Envelope)
            if envelope.error is not None:
                typed = _typed_error(envelope.error)
                if type(typed) is RpcError:
                    noticed.fault("rpc_error", f"{method}: {typed}")
                raise typed
            return msgspec.json.decode(envelope.result, type=expected)
        except msgspec.MsgspecError as error:
            raise ChainUnavailable(f"failed to call {method}: status {response.status}, {error}") from error


def _typed_error(error: _Error) -> RpcError:
    data = error.data or ""
    kind = RpcError
    if "could not find results" in data or "must be less than or equal to" in data:
        kind = ResultsNotYet
    elif "lowest height is" in data or "not persisting" in data:
        kind = ResultsPruned
    return kind(code=error.code, message=error.message, data=data)
