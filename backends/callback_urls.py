"""Where a backend may be told to send its callbacks."""

import ipaddress
from urllib.parse import urlsplit

from backends.contract import ValidationRefused


def check(url: str) -> None:
    """Raise `ValidationRefused` unless this is an http or https URL with a host that is not link-local.

    Loopback and private addresses are fine: a control plane may well live beside its backend. Link-local ones are where
    clouds keep their machine credentials.
    """
    if not url:
        raise ValidationRefused("callback_url is required")
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        parts.port  # noqa: B018 (the property raises for a port that is no number)
    except ValueError:
        raise ValidationRefused("invalid callback_url: malformed URL") from None
    if any(ord(letter) <= 0x20 or ord(letter) == 0x7F for letter in url):
        raise ValidationRefused("invalid callback_url: malformed URL")
    if parts.scheme not in ("http", "https"):
        raise ValidationRefused("invalid callback_url: scheme must be http or https")
    if not host:
        raise ValidationRefused("invalid callback_url: host is required")
    try:
        address = ipaddress.ip_address(host.removesuffix(".").partition("%")[0])
    except ValueError:
        return  # a name
    mapped = getattr(address, "ipv4_mapped", None) or address
    if mapped.is_link_local:
        raise ValidationRefused("invalid callback_url: link-local addresses are not allowed")
    if mapped.is_unspecified:
        raise ValidationRefused("invalid callback_url: unspecified addresses are not allowed")
