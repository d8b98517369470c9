"""A gRPC server that says what a test wants a node to say: real wire, written answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import grpc

from leases.chain.proto import billing_pb2, tendermint_pb2
from tests.leases.chain import vectors

HEIGHT = 39
OURS = UUID(vectors.PROVIDER_UUID)
LEASE = UUID(vectors.LEASE_UUID)
LATEST = "/cosmos.base.tendermint.v1beta1.Service/GetLatestBlock"
ACCOUNT = "/cosmos.auth.v1beta1.Query/Account"
SIMULATE = "/cosmos.tx.v1beta1.Service/Simulate"
GET_TX = "/cosmos.tx.v1beta1.Service/GetTx"
ONE_LEASE = "/liftedinit.billing.v1.Query/Lease"
LISTING = "/liftedinit.billing.v1.Query/LeasesByProvider"


@dataclass(frozen=True)
class Refusal:
    """A gRPC status instead of an answer."""

    code: grpc.StatusCode
    text: str = ""


@dataclass(frozen=True)
class At:
    """An answer read at a height; None: the node names none."""

    answer: Any
    height: int | None


class Node:
    """Answers by method: a message, bytes, `Refusal`, `At` one of these, or a function of the request's bytes."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.calls: Counter[str] = Counter()
        self.endpoint = ""

    def service(self, details: Any) -> Any:
        method = details.method

        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            self.calls[method.rpartition("/")[2]] += 1
            said = self.answers.get(method, Refusal(grpc.StatusCode.UNIMPLEMENTED, f"unknown method {method}"))
            if isinstance(said, Callable):
                said = said(request)
            height = HEIGHT
            if isinstance(said, At):
                said, height = said.answer, said.height
            if isinstance(said, Refusal):
                context.abort(said.code, said.text)
            if height is not None:
                context.send_initial_metadata((("x-cosmos-block-height", str(height)),))
            return said if isinstance(said, bytes) else said.SerializeToString()

        return grpc.unary_unary_rpc_method_handler(answer)


@contextmanager
def running(node: Node | None = None, *, credentials: grpc.ServerCredentials | None = None) -> Iterator[Node]:
    """Serve a node on a free port."""
    node = node or Node()
    server = grpc.server(futures.ThreadPoolExecutor(8), handlers=[node])
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    node.endpoint = f"127.0.0.1:{port}"
    try:
        yield node
    finally:
        server.stop(None).wait(10)


def lease_row(**changes: Any) -> billing_pb2.Lease:
    """An ACTIVE lease of ours with two services, changed as said."""
    row = billing_pb2.Lease.FromString(bytes.fromhex(vectors.entry("messages", "lease_active_services")["hex"]))
    for name, value in changes.items():
        setattr(row, name, value)
    return row


def block(height: int = HEIGHT) -> tendermint_pb2.GetLatestBlockResponse:
    """The newest block at this height."""
    answer = tendermint_pb2.GetLatestBlockResponse()
    answer.sdk_block.header.height = height
    answer.sdk_block.header.chain_id = "c"
    answer.sdk_block.header.time.seconds = 1_800_000_000
    return answer


def uuids(number: int) -> list[UUID]:
    """So many uuids of version 7, ascending."""
    return [UUID(int=(0x0190 << 112) | (0x7 << 76) | (0x8 << 60) | n) for n in range(number)]
