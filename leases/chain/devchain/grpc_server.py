"""The gRPC server: every method of the chain over raw bytes, with faults and a log of calls."""

from __future__ import annotations

import errno
import socket
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from grpc_reflection.v1alpha import reflection

from leases.chain.devchain.chain import Chain, View
from leases.chain.devchain.errors import QueryRefused
from leases.chain.devchain.faults import Faults
from leases.chain.devchain.queries import Handler
from leases.chain.devchain.responses import with_unknown_fields

HEIGHT_HEADER = "x-cosmos-block-height"

if TYPE_CHECKING:
    _GenericHandler = grpc.GenericRpcHandler[bytes, bytes]
else:  # the class is generic only for type checkers
    _GenericHandler = grpc.GenericRpcHandler


class Calls:
    """The gRPC calls of the last time, and how many of each method there were."""

    def __init__(self) -> None:
        self.recent: deque[dict[str, Any]] = deque(maxlen=10_000)
        self.counts: Counter[str] = Counter()

    def note(self, method: str, outcome: str) -> None:
        """Remember one call and its status name."""
        self.counts[method] += 1
        self.recent.append({"time": time.time(), "method": method, "result": outcome})

    def clear(self) -> None:
        """Start counting anew."""
        self.recent.clear()
        self.counts.clear()


def view_for(chain: Chain, method: str, *, subject: bytes = b"", wanted: str = "") -> View:
    """What a query sees: now, the wanted height, or what the faults say: an old height, an empty chain.

    `wanted` counts only where the chain lets its past be read; raises `QueryRefused` for a height it does not have.
    """
    empty = chain.faults.find("empty_chain", method, subject)
    if empty is not None:
        height = min(int(empty.parameters.get("height", chain.height)), chain.height)
        return View(chain.genesis.state(), height, chain.blocks[height].time)
    if wanted and chain.reads_history:
        return chain.view(_past_height(chain, wanted))
    stale = chain.faults.find("stale_reads", method, subject)
    if stale is not None:
        return chain.view(max(1, chain.height - int(stale.parameters.get("blocks", 1))))
    return chain.view()


def _past_height(chain: Chain, wanted: str) -> int:
    height = int(wanted) if wanted.isascii() and wanted.isdigit() else -1
    if height == 0 or chain.oldest_state <= height <= chain.height:
        return height
    text = f"height {wanted} cannot be read; it must be from {chain.oldest_state} to {chain.height}"
    raise QueryRefused("INVALID_ARGUMENT", text)


def _refuse(faults: Faults, path: str, subject: bytes) -> None:
    rule = faults.find("grpc_error", path, subject)
    if rule is not None:
        code = str(rule.parameters.get("code", "UNAVAILABLE"))
        raise QueryRefused(code, str(rule.parameters.get("text", "fault")))
    _lose(faults, "lose_request", path, subject)


def _lose(faults: Faults, effect: str, path: str, subject: bytes) -> None:
    if faults.find(effect, path, subject) is not None:
        raise QueryRefused("UNAVAILABLE", "connection lost")


class ChainService(_GenericHandler):
    """Finds the handler of a method; unknown ones are UNIMPLEMENTED by gRPC itself."""

    def __init__(
        self, chain: Chain, handlers: dict[str, Handler], calls: Calls, *, after_broadcast: Callable[[], None]
    ) -> None:
        self._chain = chain
        self._calls = calls
        self._after_broadcast = after_broadcast
        self._methods = {
            path: grpc.unary_unary_rpc_method_handler(self._method(path, handler)) for path, handler in handlers.items()
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        """The handler of this call."""
        return self._methods.get(handler_call_details.method)

    def _method(self, path: str, handler: Handler) -> Callable[[bytes, Any], Awaitable[bytes]]:
        is_broadcast = path.endswith("/BroadcastTx")

        async def call(request: bytes, context: Any) -> bytes:
            faults = self._chain.faults
            outcome = "OK"
            try:
                if faults.all():
                    await faults.hold(path, request)
                    _refuse(faults, path, request)
                view = view_for(self._chain, path, subject=request, wanted=_wanted_height(context))
                answer = handler(self._chain, view, request)
                if is_broadcast:
                    self._after_broadcast()
                _lose(faults, "lose_response", path, request)
                if faults.find("unknown_field", path, request) is not None:
                    answer = with_unknown_fields(path, answer)
            except QueryRefused as refusal:
                outcome = refusal.status
                self._calls.note(path, outcome)
                await context.abort(grpc.StatusCode[refusal.status], refusal.text)
                raise
            self._calls.note(path, outcome)
            await context.send_initial_metadata(((HEIGHT_HEADER, str(view.height)),))
            return answer

        return call


def _wanted_height(context: Any) -> str:
    for name, value in context.invocation_metadata() or ():
        if name == HEIGHT_HEADER:
            return str(value)
    return ""


async def start(
    host: str, port: int, service: ChainService, *, services: tuple[str, ...], strikes: int = 2
) -> tuple[grpc.aio.Server, int]:
    """Listen; the port that was taken comes back. Raises OSError where nobody can listen.

    A client that pings more often than every five minutes without calls is sent away with GOAWAY after so many
    `strikes`, as real nodes do; 0 lets it ping.
    """
    _try(host, port)
    server = grpc.aio.server(
        options=[
            ("grpc.so_reuseport", 0),
            ("grpc.http2.min_ping_interval_without_data_ms", 300_000),
            ("grpc.http2.max_ping_strikes", strikes),
            ("grpc.keepalive_permit_without_calls", 0 if strikes else 1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
        ]
    )
    server.add_generic_rpc_handlers((service,))
    reflection.enable_server_reflection((*services, reflection.SERVICE_NAME), server)
    try:
        taken = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError:
        raise OSError(errno.EADDRINUSE, f"cannot listen on {host}:{port}") from None
    await server.start()
    return server, taken


def _try(host: str, port: int) -> None:
    """Raise OSError when nobody can listen there, before gRPC writes lines of its own about it."""
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from None
