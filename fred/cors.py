"""CORS: which pages of browsers may read our answers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fred.envelope import Headers

METHODS: Final = (b"GET", b"POST", b"OPTIONS")
"""What a preflight may ask for; asking whether one may ask is always allowed."""
REQUEST_HEADERS: Final = frozenset(
    {b"authorization", b"content-type", b"idempotency-key", b"last-event-id", b"x-request-id", b"traceparent"}
)
EXPOSED_HEADERS: Final = b"Retry-After, X-Request-ID, Idempotency-Replayed"
PREFLIGHT_MAX_AGE_S: Final = b"600"
_PREFLIGHT_VARY: Final = b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers"
_READABLE: Final = frozenset({"GET", "POST", "OPTIONS"})


class Cors:
    """The origins whose pages may read our answers."""

    def __init__(self, origins: Sequence[str]) -> None:
        """`*` alone allows all; one `*` inside an origin stands for any text there; case does not matter."""
        lowered = [origin.lower().encode() for origin in origins]
        self._all = b"*" in lowered
        self._exact = frozenset(origin for origin in lowered if b"*" not in origin)
        self._patterns = [origin.partition(b"*")[::2] for origin in lowered if b"*" in origin and origin != b"*"]

    def allows(self, origin: bytes) -> bool:
        """Whether this `Origin` header is one of the configured."""
        lowered = origin.lower()
        if not lowered:
            return False
        return (
            self._all
            or lowered in self._exact
            or any(
                len(lowered) >= len(before) + len(after) and lowered.startswith(before) and lowered.endswith(after)
                for before, after in self._patterns
            )
        )

    def preflight(self, origin: bytes, *, method: bytes, headers: bytes) -> Headers:
        """Headers of the 204 to a preflight for this method and these headers, as the browser wrote them.

        The permissions stand there only when all that was asked for is allowed.
        """
        made: Headers = [(b"vary", _PREFLIGHT_VARY)]
        wanted = [name.strip() for name in headers.split(b",") if name.strip()]
        if not self.allows(origin) or method not in METHODS or not REQUEST_HEADERS.issuperset(wanted):
            return made
        made += [
            (b"access-control-allow-origin", self._echo(origin)),
            (b"access-control-allow-methods", method),
        ]
        if wanted:
            made.append((b"access-control-allow-headers", headers))
        made.append((b"access-control-max-age", PREFLIGHT_MAX_AGE_S))
        return made

    def simple(self, origin: bytes, *, method: str) -> Headers:
        """Headers of every other answer, errors included."""
        made: Headers = [(b"vary", b"Origin")]
        if method in _READABLE and self.allows(origin):
            made += [
                (b"access-control-allow-origin", self._echo(origin)),
                (b"access-control-expose-headers", EXPOSED_HEADERS),
            ]
        return made

    def _echo(self, origin: bytes) -> bytes:
        return b"*" if self._all else origin
