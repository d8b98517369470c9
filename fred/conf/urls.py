"""What a URL in the settings may be. No name is looked up."""

import ipaddress
import re
import socket
from collections.abc import Iterator
from urllib.parse import SplitResult, urlsplit

_ENCODED_ZONE = re.compile(r"%25|%")


def check_url(text: str, /) -> Iterator[str]:
    """Each way this is not an http or https URL with a host, or ends in a fragment, which would swallow every path."""
    parts = _split(text)
    if parts is None:
        yield f"invalid URL: {text!r}"
    elif parts.scheme not in {"http", "https"}:
        yield f'URL must use http:// or https:// scheme, got "{parts.scheme}"'
    elif not parts.hostname:
        yield "URL must have a host"
    elif "#" in text:
        yield f'URL must not have a fragment: remove "{text[text.index("#") :]}"'


def check_production_url(text: str, /) -> Iterator[str]:
    """Each way this points back at the machine it is used on. Only literals are judged; private ranges are fine."""
    parts = _split(text)
    host = (parts.hostname or "").removesuffix(".") if parts else ""
    if host.lower() == "localhost":
        yield "URL must not use localhost"
        return
    address = address_of(host)
    if address is None:
        return
    if address.is_loopback:
        yield "URL must not use a loopback address"
    elif address.is_link_local:
        yield "URL must not use a link-local address"
    elif address.is_unspecified:
        yield "URL must not use an unspecified address"


def address_of(host: str, /) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address a host literal stands for: IPv6 without its zone, mapped IPv4, integer and octal IPv4 forms."""
    bare = _ENCODED_ZONE.split(host.strip("[]"), maxsplit=1)[0]
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        if not re.fullmatch(r"[0-9a-fA-FxX.]+", bare) or not re.match(r"[0-9]", bare):
            return None
        try:
            return ipaddress.IPv4Address(socket.inet_aton(bare))
        except (OSError, ValueError):
            return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def path_of(text: str, /) -> str:
    """The path of a URL, without a trailing slash."""
    parts = _split(text)
    return parts.path.rstrip("/") if parts else ""


def _split(text: str) -> SplitResult | None:
    if any(character.isspace() or ord(character) < 32 for character in text):
        return None
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - reading it is what checks it
    except ValueError:
        return None
    return parts
