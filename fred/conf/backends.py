"""One entry of `backends`."""

import uuid
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

from fred.conf.values import Bool, Duration, Text, parse_list


def _parse_skus(value: object) -> tuple[uuid.UUID, ...]:
    skus = []
    for item in parse_list(value):
        try:
            skus.append(uuid.UUID(item))
        except ValueError:
            raise ValueError(f"{item!r} is not a UUID") from None
    return tuple(skus)


def _without_trailing_slashes(value: object) -> object:
    return value.rstrip("/") if isinstance(value, str) else value


class BackendConfig(BaseModel):
    """A backend this provider sends work to.

    The name is the identity of the storage behind it: never give it to other storage. Without a key of its own
    (`hmac_secret`) a backend is signed with the shared `callback_secret`.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True, validate_default=False
    )

    name: Text = ""
    """Required, unique. Names the storage behind it: never give it to other storage."""
    url: Annotated[Text, BeforeValidator(_without_trailing_slashes)] = ""
    """Required. `http://` or `https://` URL of the backend, without a fragment; a path only with `contract: v0_13`."""
    timeout: Duration = timedelta(seconds=30)
    """Limit for one request to it. Above 0."""
    skus: Annotated[tuple[uuid.UUID, ...], BeforeValidator(_parse_skus)] = ()
    """SKUs it serves."""
    default: Bool = False
    """Takes SKUs that no backend names. At most one entry; without any, the first is it."""
    tls_ca_file: Text = ""
    """PEM bundle to verify it with; empty: the system's certificates. The TLS keys need an https URL."""
    tls_skip_verify: Bool = False
    """Do not verify its certificate. Refused in production."""
    tls_client_cert_file: Text = ""
    """PEM certificate that we show it. Set with `tls_client_key_file` or not at all."""
    tls_client_key_file: Text = ""
    """Its PEM key, not encrypted."""
    hmac_secret: SecretStr = SecretStr("")
    """Key that signs to it and verifies from it, in place of `callback_secret`.

    At least 32 bytes, no other's; all backends have one or none.
    """
    hmac_secret_previous: SecretStr = SecretStr("")
    """Key its callbacks may still be signed with while keys change. Needs `hmac_secret`."""
    fenced: Bool = False
    """Never contact it and refuse its callbacks. Needs `hmac_secret` on every entry; not all may be fenced."""
    contract: Literal["auto", "v0_13", "current"] = Field(default="auto")
    """Dialect it speaks. `v0_13` allows a path in `url`; callbacks of `current` name a storage identity."""

    @property
    def has_tls_fields(self) -> bool:
        """Whether any of the TLS settings is used."""
        return bool(self.tls_ca_file or self.tls_skip_verify or self.tls_client_cert_file or self.tls_client_key_file)
