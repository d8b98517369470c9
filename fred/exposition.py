"""What `/metrics` answers. No Django inside."""

from prometheus_client import exposition

from fred.metrics import registry


def render(accept: str = "", /) -> tuple[bytes, str]:
    """Body and content type of a scrape, in the format this Accept header asks for."""
    encode, content_type = exposition.choose_encoder(accept)
    return encode(registry()), content_type
