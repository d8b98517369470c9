"""Time limits and sizes of the web server's connections, in seconds and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RAW_TARGET: Final = "fred.raw_target"
"""Scope key of the request target as it came: path and query, a bare `?` included."""
OPEN_STREAM: Final = "fred.open_stream"
"""Scope key of a function: after its call the answer may go on for as long as its client takes what is written."""
STOPPING: Final = "fred.stopping"
"""Key in the scope's state of an `asyncio.Event` that is set when streams have to end because the server stops."""

MAX_HEAD_BYTES: Final = 65_536
"""Request line and headers together; more is answered with 431."""
MAX_DRAINED_BYTES: Final = 262_144
"""So much of a body that nobody reads is taken so that its connection can be used again; more ends the connection."""
LINGER_S: Final = 0.5
"""How long a client that is still sending may read the answer that ends its connection."""
MAX_MESSAGE_BYTES: Final = 512
"""The largest message of a WebSocket's client; one byte more is answered with close code 1009."""
SOCKET_BUFFER_BYTES: Final = 16_384
"""What a WebSocket's client may leave unread here before its writers wait."""


@dataclass(frozen=True, slots=True)
class Times:
    """Limits of one connection.

    `head_s` for all headers of a request; `read_s` for the rest of it, once it is answered; `write_s` from the end of
    the headers to the end of the answer; `idle_s` between two requests. `ping_s` between two pings of a WebSocket,
    `pong_s` from its start or its last pong to the next; `stall_s` for anything written to a stream or a WebSocket.
    """

    head_s: float = 5.0
    read_s: float = 15.0
    write_s: float = 15.0
    idle_s: float = 60.0
    ping_s: float = 30.0
    pong_s: float = 40.0
    stall_s: float = 10.0
