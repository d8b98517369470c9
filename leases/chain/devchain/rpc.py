"""The RPC of CometBFT: methods with named parameters, over POST, over GET and inside a WebSocket."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from leases.chain.devchain.blocks import PROPOSER, Block
from leases.chain.devchain.chain import Chain
from leases.chain.devchain.encoding import base64_text, hex_text, result_json, time_text
from leases.chain.devchain.errors import QueryRefused
from leases.chain.devchain.frames import (
    block_id_json,
    block_json,
    block_results_json,
    commit_json,
    header_json,
)
from leases.chain.devchain.grpc_server import view_for
from leases.chain.devchain.http_server import Request, Response
from leases.chain.devchain.node_queries import CHANNELS, COMET_VERSION
from leases.chain.devchain.queries import Handler
from leases.chain.devchain.query_language import parse
from leases.chain.devchain.transactions import TxResult

_ABCI_CODES = {"NOT_FOUND": (22, "key not found"), "INVALID_ARGUMENT": (18, "invalid request")}
_GRPC_NAMES = {"NOT_FOUND": "NotFound", "INVALID_ARGUMENT": "InvalidArgument", "UNKNOWN": "Unknown"}


class RpcError(Exception):
    """An error object of JSON-RPC."""

    def __init__(self, data: str, *, code: int = -32603, message: str = "Internal error") -> None:
        self.error = {"code": code, "message": message, "data": data}
        super().__init__(data)


class Rpc:
    """The methods of one chain. `wait_for` resolves when a transaction is in a block."""

    def __init__(
        self,
        chain: Chain,
        handlers: dict[str, Handler],
        *,
        after_broadcast: Callable[[], None],
        wait_for: Callable[[str], Awaitable[TxResult]],
    ) -> None:
        self._chain = chain
        self._handlers = handlers
        self._after_broadcast = after_broadcast
        self._wait_for = wait_for
        self._methods: dict[str, Callable[[dict[str, Any]], Any]] = {
            "status": self._status,
            "health": lambda _: {},
            "net_info": lambda _: {"listening": True, "listeners": [], "n_peers": "0", "peers": []},
            "abci_info": self._abci_info,
            "abci_query": self._abci_query,
            "block": self._block,
            "block_results": self._block_results,
            "header": self._header,
            "commit": self._commit,
            "validators": self._validators,
            "genesis": self._genesis,
            "broadcast_tx_sync": self._broadcast_sync,
            "broadcast_tx_async": self._broadcast_async,
            "tx": self._tx,
            "tx_search": self._tx_search,
        }

    # --- transport -----------------------------------------------------------

    async def answer(self, request: Request) -> Response | None:
        """An HTTP request: JSON-RPC by POST, a call by URI otherwise."""
        if request.method == "POST":
            try:
                call = request.json()
            except ValueError:
                error = {"code": -32700, "message": "Parse error. Invalid JSON", "data": "invalid JSON"}
                return Response(500, {"jsonrpc": "2.0", "id": None, "error": error})
            if isinstance(call, list):
                return Response(200, [await self.call(one) for one in call])
            return Response(200, await self.call(call))
        params = {name: value.strip('"') for name, value in request.query.items()}
        call = {"id": -1, "method": request.path.strip("/"), "params": params, "uri": True}
        answer = await self.call(call)
        return Response(500 if "error" in answer else 200, answer)

    async def call(self, call: dict[str, Any]) -> dict[str, Any]:
        """One JSON-RPC call to its answer object."""
        envelope = {"jsonrpc": "2.0", "id": call.get("id")}
        try:
            result = await self.run(str(call.get("method", "")), call.get("params") or {}, uri="uri" in call)
        except RpcError as error:
            return {**envelope, "error": error.error}
        return {**envelope, "result": result}

    async def run(self, method: str, params: dict[str, Any], *, uri: bool = False) -> Any:
        """Run one method; raises `RpcError`."""
        faults, where, subject = self._chain.faults, f"rpc:{method}", b""
        if faults.all():
            subject = _subject(params)
            await faults.hold(where, subject)
            rule = faults.find("rpc_error", where, subject)
            if rule is not None:
                raise RpcError(str(rule.parameters.get("text", "fault")))
        result = await self._result(method, params, uri=uri)
        if isinstance(result, dict) and faults.find("unknown_field", where, subject) is not None:
            return {**result, "odd": True}
        return result

    async def _result(self, method: str, params: dict[str, Any], *, uri: bool) -> Any:
        if method == "broadcast_tx_commit":
            return await self._broadcast_commit(params)
        handler = self._methods.get(method)
        if handler is None:
            raise RpcError("", code=-32601, message="Method not found")
        if uri and str(params.get("hash", "")).lower().startswith("0x"):
            params = {**params, "hash": base64_text(bytes.fromhex(params["hash"][2:]))}
        try:
            return handler(params)
        except (ValueError, KeyError, TypeError) as error:
            raise RpcError(str(error), code=-32602, message="Invalid params") from None

    # --- blocks ----------------------------------------------------------------

    def _at(self, params: dict[str, Any]) -> Block:
        height = int(params.get("height") or 0)
        chain = self._chain
        if height > chain.height:
            text = f"height {height} must be less than or equal to the current blockchain height {chain.height}"
            raise RpcError(text)
        if height < 0:
            raise RpcError(f"height must be greater than 0, but got {height}")
        if 0 < height < chain.earliest:
            raise RpcError(f"height {height} is not available, lowest height is {chain.earliest}")
        return chain.blocks[height or chain.height]

    def _status(self, _params: dict[str, Any]) -> dict[str, Any]:
        chain = self._chain
        first, last = chain.blocks[chain.earliest], chain.blocks[view_for(chain, "rpc:status").height]
        return {
            "node_info": {
                "protocol_version": {"p2p": "8", "block": "11", "app": "0"},
                "id": PROPOSER.hex(),
                "listen_addr": "tcp://0.0.0.0:26656",
                "network": chain.network,
                "version": COMET_VERSION,
                "channels": CHANNELS,
                "moniker": "devchain",
                "other": {"tx_index": "on", "rpc_address": "tcp://127.0.0.1:26657"},
            },
            "sync_info": {
                "latest_block_hash": hex_text(last.hash),
                "latest_app_hash": hex_text(last.app_hash),
                "latest_block_height": str(last.height),
                "latest_block_time": time_text(last.time),
                "earliest_block_hash": hex_text(first.hash),
                "earliest_app_hash": hex_text(first.app_hash),
                "earliest_block_height": str(first.height),
                "earliest_block_time": time_text(first.time),
                "catching_up": chain.faults.find("catching_up") is not None,
            },
            "validator_info": {**_validator(), "voting_power": "1"},
        }

    def _abci_info(self, _params: dict[str, Any]) -> dict[str, Any]:
        head = self._chain.head
        info = {"data": "manifest", "version": "devchain", "last_block_height": str(head.height)}
        return {"response": {**info, "last_block_app_hash": base64_text(head.app_hash)}}

    def _block(self, params: dict[str, Any]) -> dict[str, Any]:
        block = self._at(params)
        return {"block_id": block_id_json(block.hash), "block": block_json(block, self._chain.network)}

    def _block_results(self, params: dict[str, Any]) -> dict[str, Any]:
        return block_results_json(self._at(params))

    def _header(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"header": header_json(self._at(params), self._chain.network)}

    def _commit(self, params: dict[str, Any]) -> dict[str, Any]:
        block = self._at(params)
        header = header_json(block, self._chain.network)
        signed = {"header": header, "commit": commit_json(block.height, block.hash, block.time)}
        return {"signed_header": signed, "canonical": True}

    def _validators(self, params: dict[str, Any]) -> dict[str, Any]:
        one = {**_validator(), "voting_power": "1", "proposer_priority": "0"}
        return {"block_height": str(self._at(params).height), "validators": [one], "count": "1", "total": "1"}

    def _genesis(self, _params: dict[str, Any]) -> dict[str, Any]:
        chain = self._chain
        start = time_text(chain.blocks[chain.earliest].time)
        return {"genesis": {"genesis_time": start, "chain_id": chain.network, "initial_height": "1"}}

    # --- transactions -------------------------------------------------------------

    def _broadcast_sync(self, params: dict[str, Any]) -> dict[str, Any]:
        try:
            raw = base64.b64decode(str(params["tx"]), validate=True)
        except binascii.Error as error:
            raise RpcError(str(error), code=-32602, message="Invalid params") from None
        checked = self._chain.broadcast(raw)
        if (checked.codespace, checked.code) == ("sdk", 19):
            raise RpcError("tx already exists in cache")
        self._after_broadcast()
        return {
            "code": checked.code,
            "data": "",
            "log": checked.log,
            "codespace": checked.codespace,
            "hash": checked.hash,
        }

    def _broadcast_async(self, params: dict[str, Any]) -> dict[str, Any]:
        answer = self._broadcast_sync(params)
        return {"code": 0, "data": "", "log": "", "codespace": "", "hash": answer["hash"]}

    async def _broadcast_commit(self, params: dict[str, Any]) -> dict[str, Any]:
        checked = self._broadcast_sync(params)
        check = {**checked, "gas_wanted": "0", "gas_used": "0", "info": "", "events": []}
        tx_hash = check.pop("hash")
        if checked["code"]:
            return {"check_tx": check, "tx_result": {"code": 0}, "hash": tx_hash, "height": "0"}
        with contextlib.suppress(asyncio.TimeoutError):
            result = await asyncio.wait_for(self._wait_for(tx_hash), 10)
            height = str(result.height)
            return {"check_tx": check, "tx_result": result_json(result), "hash": tx_hash, "height": height}
        raise RpcError("timed out waiting for tx to be included in a block")

    def _tx(self, params: dict[str, Any]) -> dict[str, Any]:
        tx_hash = base64.b64decode(str(params["hash"])).hex().upper()
        result = self._chain.find_tx(tx_hash)
        if result is None:
            raise RpcError(f"tx ({tx_hash}) not found")
        return _found(result)

    def _tx_search(self, params: dict[str, Any]) -> dict[str, Any]:
        try:
            query = parse(str(params.get("query", "")))
        except ValueError as error:
            raise RpcError(str(error)) from None
        size = min(max(int(params.get("per_page") or 30), 1), 100)
        page = max(int(params.get("page") or 1), 1)
        chain = self._chain
        found = [result for tx_hash, result in chain.txs.items() if chain.find_tx(tx_hash) and query.matches_tx(result)]
        if params.get("order_by") == "desc":
            found.reverse()
        pages = max(1, -(-len(found) // size))
        if page > pages:
            raise RpcError(f"page should be within [1, {pages}] range, given {page}")
        part = found[(page - 1) * size : page * size]
        return {"txs": [_found(result) for result in part], "total_count": str(len(found))}

    # --- queries --------------------------------------------------------------------

    def _abci_query(self, params: dict[str, Any]) -> dict[str, Any]:
        path = str(params.get("path", ""))
        data = bytes.fromhex(str(params.get("data") or "").removeprefix("0x"))
        try:
            view = view_for(self._chain, path, subject=data, wanted=str(params.get("height") or ""))
        except QueryRefused as refusal:
            return {"response": {"code": 18, "codespace": "sdk", "log": refusal.text, "height": "0", "value": None}}
        response: dict[str, Any] = {"code": 0, "log": "", "info": "", "index": "0", "key": None, "value": None}
        response |= {"proofOps": None, "height": str(view.height), "codespace": ""}
        handler = self._handlers.get(path)
        if handler is None:
            response |= {"code": 6, "codespace": "sdk", "log": f"unknown query path {path}: unknown request"}
            return {"response": response}
        try:
            response["value"] = base64_text(handler(self._chain, view, data))
        except QueryRefused as refusal:
            code, text = _ABCI_CODES.get(refusal.status, (1, "internal"))
            name = _GRPC_NAMES.get(refusal.status, refusal.status)
            log = f"rpc error: code = {name} desc = {refusal.text}: {text}"
            response |= {"code": code, "codespace": "sdk", "log": log}
        return {"response": response}


def _found(result: TxResult) -> dict[str, Any]:
    return {
        "hash": result.tx.hash,
        "height": str(result.height),
        "index": result.index,
        "tx_result": result_json(result),
        "tx": base64_text(result.tx.raw),
    }


def _subject(params: dict[str, Any]) -> bytes:
    """What rules are matched against: the parameters, and a transaction in them decoded."""
    text = orjson.dumps(params)
    try:
        return text + base64.b64decode(str(params.get("tx", "")), validate=True)
    except binascii.Error:
        return text


def _validator() -> dict[str, Any]:
    key = {"type": "tendermint/PubKeyEd25519", "value": base64_text(PROPOSER + bytes(12))}
    return {"address": hex_text(PROPOSER), "pub_key": key}


def dumps(value: Any) -> bytes:
    """JSON bytes."""
    return orjson.dumps(value)
