"""Where a backend may be told to send its callbacks."""

import ipaddress
import re
from functools import lru_cache
from urllib.parse import urlsplit

from backends.contract import ValidationRefused

_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f]")


def check(url: str) -> None:
    """Raise `ValidationRefused` unless this is an http or https URL with a host that is not link-local.

    Loopback and private addresses are fine: a control plane may well live beside its backend. Link-local ones are where
    clouds keep their machine credentials.
    """
    if not url:
        raise ValidationRefused("callback_url is required")
    why = "malformed URL" if _UNPRINTABLE.search(url) else _wrong(url.partition("?")[0])
    if why:
        raise ValidationRefused(f"invalid callback_url: {why}")


@lru_cache(maxsize=1024)
def _wrong(place: str) -> str:
    """What is wrong with scheme, host and port; control planes have few of them."""
    try:
        parts = urlsplit(place)
        host = parts.hostname or ""
        parts.port  # noqa: B018 (the property raises for a port that is no number)
    except ValueError:
        return "malformed URL"
    if parts.scheme not in ("http", "https"):
        return "scheme must be http or https"
    if not host:
        return "host is required"
    try:
        address = ipaddress.ip_address(host.removesuffix(".").partition("%")[0])
    except ValueError:
        return ""  # a name
    mapped = getattr(address, "ipv4_mapped", None) or address
    if mapped.is_link_local:
        return "link-local addresses are not allowed"
    return "unspecified addresses are not allowed" if mapped.is_unspecified else ""
