"""Who a request comes from: the peer, or behind our own proxies the last address that is none of them. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

CLIENT_IP: Final = "fred.client_ip"
"""Scope key of the client's address, a text."""

_FORWARDED: Final = b"x-forwarded-for"
_REAL: Final = b"x-real-ip"
_IPV6_NETWORK: Final = 64


def client_ip(scope: Mapping[str, Any], trusts: Callable[[str], bool]) -> str:
    """The address of the client as text; `trusts` says of an address whether it is one of our proxies.

    Headers count only when the peer itself is trusted. Of all `X-Forwarded-For` together the rightmost address that is
    none of ours is the client; what is no address is skipped. Without one `X-Real-IP` counts, then the peer.
    """
    direct: str = (scope.get("client") or ("",))[0]
    if not _is_trusted(direct, trusts):
        return direct
    headers = scope["headers"]
    for hop in _hops(headers):
        if _canonical(hop) is not None and not _is_trusted(hop, trusts):
            return hop
    real = next((value.decode("latin-1").strip() for name, value in headers if name == _REAL), "")
    return real if _canonical(real) is not None else direct


@lru_cache(maxsize=8192)
def bucket_key(address: str) -> str:
    """What clients are counted by: an IPv4 address, the /64 of an IPv6 address; all others together."""
    found = _parsed(address)
    if found is None:
        return "unknown"
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((found, _IPV6_NETWORK), strict=False))
    return str(found)


def _hops(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[str]:
    """The entries of all lines together, from the right."""
    lines = [value.decode("latin-1") for name, value in headers if name == _FORWARDED]
    for line in reversed(lines):
        for hop in reversed(line.split(",")):
            yield hop.strip()


def _is_trusted(address: str, trusts: Callable[[str], bool]) -> bool:
    found = _canonical(address)
    return found is not None and trusts(found)


@lru_cache(maxsize=8192)
def _canonical(address: str) -> str | None:
    found = _parsed(address)
    return None if found is None else str(found)


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An IP address without port, brackets or zone; an IPv4 address inside IPv6 as itself."""
    if "%" in address:
        return None
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found
