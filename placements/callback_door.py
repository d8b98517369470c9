"""Who knocks too often without a valid signature is told to wait; whoever signs is always let in."""

import asyncio
import ipaddress
import math
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import orjson

from fred import metrics
from fred.buckets import Buckets
from fred.conf import ProviderConfig

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

RATE: Final = 100.0
BURST: Final = 200
TOO_MANY: Final = "callback rate limit exceeded"
JSON: Final = (b"content-type", b"application/json")


class Door:
    """Counts refused callbacks by the address they came from, in all processes together."""

    def __init__(self, config: ProviderConfig, buckets: Buckets | None = None) -> None:
        self._config = config
        self._buckets = buckets or Buckets("callback", rate=RATE, burst=BURST)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="door")

    async def is_shut(self, scope: Scope, send: Send, headers: Sequence[tuple[bytes, bytes]] = ()) -> bool:
        """Take a token for this refused request; without one answer 429 and return True."""
        key = client_of(scope, self._config)
        wait = await asyncio.get_running_loop().run_in_executor(self._thread, self._buckets.take, key)
        if wait <= 0:
            return False
        metrics.RATE_LIMIT_REJECTIONS.labels("callback_ingress").inc()
        seconds = str(max(1, math.ceil(wait))).encode()
        await answer(send, 429, TOO_MANY, [(b"retry-after", seconds), *headers])
        return True

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def client_of(scope: Scope, config: ProviderConfig) -> str:
    """The address a request came from; behind our own proxies the last one that is not ours. IPv6 counts by /64."""
    address = (scope.get("client") or ("",))[0]
    if config.trusts(address):
        for hop in reversed(_forwarded(scope["headers"])):
            address = hop
            if not config.trusts(hop):
                break
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


async def answer(send: Send, status: int, text: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    """Send an error in the API's form."""
    body = orjson.dumps({"error": text, "code": status}, option=orjson.OPT_APPEND_NEWLINE)
    start = [JSON, (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})


def _forwarded(headers: Iterable[tuple[bytes, bytes]]) -> list[str]:
    values = [value.decode("latin-1") for name, value in headers if name == b"x-forwarded-for"]
    return [hop.strip() for value in values for hop in value.split(",") if hop.strip()]
