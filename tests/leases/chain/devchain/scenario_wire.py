"""How the scenario speaks to a chain: over RPC, gRPC and WebSockets, everything kept as it came."""

from __future__ import annotations

import base64
import contextlib
import http.client
import itertools
import json
import threading
from typing import Any

import grpc
from google.protobuf.message import Message
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from leases.chain.proto import (
    authz_pb2,
    billing_pb2,
)
from tests.devchain_fixture import Wallet
from tests.waiting import wait_until

BLOCK = 1.011
FEE = 3_000_000
GAS = 2_000_000


class Frames(threading.Thread):
    """Everything one WebSocket connection says."""

    def __init__(self, socket: ClientConnection, queries: list[str]) -> None:
        super().__init__(daemon=True)
        self.frames: list[dict[str, Any]] = []
        self._socket = socket
        for number, query in enumerate(queries, 1):
            self._send(number, "subscribe", query=query)
        self.start()
        wait_until(lambda: len(self.frames) >= len(queries))

    def _send(self, number: int, method: str, **params: str) -> None:
        self._socket.send(json.dumps({"jsonrpc": "2.0", "method": method, "id": number, "params": params}))

    def run(self) -> None:
        try:
            for frame in self._socket:
                self.frames.append(json.loads(frame))
        except ConnectionClosed:
            return

    def end(self) -> list[dict[str, Any]]:
        """Ask for something else, so that all frames before the answer have come; then leave."""
        self._send(99, "health")
        wait_until(lambda: any(frame["id"] == 99 for frame in self.frames))
        self._socket.close()
        self.join(5)
        return [frame for frame in self.frames if frame["id"] != 99]


class Play:
    """One run of the scenario."""

    def __init__(self, chain: Any) -> None:
        self.chain = chain
        self.log: dict[str, Any] = {"steps": [], "grpc": [], "rpc": []}
        self.wallets: dict[str, Wallet] = {}
        self.first: Frames
        self.second: Frames
        self.withdrawn = ""
        self._http = http.client.HTTPConnection(chain.rpc.removeprefix("http://"), timeout=10)
        self._open = contextlib.ExitStack()
        self._open.callback(self._http.close)
        self._channel = self._open.enter_context(grpc.insecure_channel(chain.grpc))
        self._numbers = itertools.count(1)

    def wallet(self, name: str) -> Wallet:
        """The key of a name, with the sequence that follows what was sent."""
        if name not in self.wallets:
            self.wallets[name] = Wallet.of(self.chain, name)
        return self.wallets[name]

    def close(self) -> None:
        self._open.close()

    def listen(self, *queries: str) -> Frames:
        """A further WebSocket connection."""
        socket = connect(self.chain.websocket, max_size=None, ping_interval=None)
        return Frames(self._open.enter_context(socket), list(queries))

    # --- the wire ------------------------------------------------------------------

    def rpc(self, method: str, **params: Any) -> dict[str, Any]:
        call = {"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": params}
        self._http.request("POST", "/", json.dumps(call))
        answer: dict[str, Any] = json.loads(self._http.getresponse().read())
        return answer

    def broadcast(self, raw: bytes) -> dict[str, Any]:
        answer = self.rpc("broadcast_tx_sync", tx=base64.b64encode(raw).decode())
        return answer["result"] if "result" in answer else {"rpc_error": answer["error"]}

    def found(self, tx_hash: str) -> dict[str, Any]:
        found = self.rpc("tx", hash=base64.b64encode(bytes.fromhex(tx_hash)).decode(), prove=False)
        result: dict[str, Any] = found["result"]
        return result

    def block(self) -> None:
        self.chain.produce_block(step=BLOCK)

    def send(self, step: str, name: str, *messages: Message, **how: Any) -> dict[str, Any]:
        """One step: sign, broadcast, and when it was taken a block; what its execution said."""
        wallet = self.wallet(name)
        how = {"gas": GAS, "fee": FEE, **how}
        entry: dict[str, Any] = {"step": step, "check_tx": self.broadcast(wallet.sign(*messages, **how))}
        if entry["check_tx"].get("code") == 0:
            wallet.sequence += 1
            self.block()
            entry["tx"] = self.found(entry["check_tx"]["hash"])
        self.log["steps"].append(entry)
        result: dict[str, Any] = entry.get("tx", {}).get("tx_result", {})
        return result

    def ask(self, method: str, request: Message) -> None:
        """One gRPC call, kept as it came."""
        stub = self._channel.unary_unary(f"/{method}", request_serializer=None, response_deserializer=None)
        kept: dict[str, Any] = {"method": f"/{method}", "request": request.SerializeToString().hex()}
        try:
            data, call = stub.with_call(request.SerializeToString(), timeout=10)
            kept |= {"response": data.hex(), "headers": dict(call.initial_metadata())}
        except grpc.RpcError as refused:
            kept |= {"code": refused.code().name, "details": refused.details()}
        self.log["grpc"].append(kept)

    def note_rpc(self, method: str, **params: Any) -> None:
        answer = self.rpc(method, **params)
        kept = {"error": answer["error"]} if "error" in answer else {"result": answer["result"]}
        self.log["rpc"].append({"method": method, "params": params, **kept})


def created(result: dict[str, Any], kind: str, attribute: str) -> list[str]:
    """The values of an attribute in all events of one type."""
    return [
        pair["value"]
        for event in result["events"]
        if event["type"] == kind
        for pair in event["attributes"]
        if pair["key"] == attribute
    ]


def ack(sender: str, *uuids: str) -> billing_pb2.MsgAcknowledgeLease:
    return billing_pb2.MsgAcknowledgeLease(sender=sender, lease_uuids=uuids)


def reject(sender: str, uuid: str, reason: str = "") -> billing_pb2.MsgRejectLease:
    return billing_pb2.MsgRejectLease(sender=sender, lease_uuids=[uuid], reason=reason)


def close(sender: str, uuid: str, reason: str = "") -> billing_pb2.MsgCloseLease:
    return billing_pb2.MsgCloseLease(sender=sender, lease_uuids=[uuid], reason=reason)


def withdraw(sender: str, *uuids: str, provider: str = "", limit: int = 0) -> billing_pb2.MsgWithdraw:
    return billing_pb2.MsgWithdraw(sender=sender, lease_uuids=uuids, provider_uuid=provider, limit=limit)


def lease(tenant: str, *items: tuple[str, int, str], meta_hash: bytes = b"") -> billing_pb2.MsgCreateLease:
    lines = [billing_pb2.LeaseItemInput(sku_uuid=sku, quantity=count, service_name=name) for sku, count, name in items]
    return billing_pb2.MsgCreateLease(tenant=tenant, items=lines, meta_hash=meta_hash)


def acting(grantee: str, message: Message) -> authz_pb2.MsgExec:
    made = authz_pb2.MsgExec(grantee=grantee)
    made.msgs.add(type_url=f"/{message.DESCRIPTOR.full_name}", value=message.SerializeToString())
    return made
