"""Who knocks too often without a valid signature is told to wait; whoever signs is always let in."""

import math
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Final

from fred import metrics
from fred.clients import CLIENT_IP, bucket_key, client_ip
from fred.conf import ProviderConfig
from fred.envelope import answer
from fred.loop_buckets import LoopBuckets

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

RATE: Final = 100.0
BURST: Final = 200
TOO_MANY: Final = "callback rate limit exceeded"


class Door:
    """Counts refused callbacks by the address they came from, in all processes together."""

    def __init__(self, config: ProviderConfig, buckets: LoopBuckets | None = None) -> None:
        self._config = config
        self._buckets = buckets or LoopBuckets("callback", rate=RATE, burst=BURST)

    async def is_shut(self, scope: Scope, send: Send, headers: Sequence[tuple[bytes, bytes]] = ()) -> bool:
        """Take a token for this refused request; without one answer 429 and return True."""
        address = scope[CLIENT_IP] if CLIENT_IP in scope else client_ip(scope, self._config.trusts)
        draw = await self._buckets.take_soon(bucket_key(address))
        if draw.wait_s <= 0:
            return False
        metrics.RATE_LIMIT_REJECTIONS.labels("callback_ingress").inc()
        seconds = str(max(1, math.ceil(draw.wait_s))).encode()
        await answer(send, 429, TOO_MANY, [(b"retry-after", seconds), *headers])
        return True

    async def close(self) -> None:
        """End the connection to the buckets."""
        await self._buckets.close()
