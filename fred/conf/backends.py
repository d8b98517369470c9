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

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=False)

    name: Text = ""
    url: Annotated[Text, BeforeValidator(_without_trailing_slashes)] = ""
    timeout: Duration = timedelta(seconds=30)
    skus: Annotated[tuple[uuid.UUID, ...], BeforeValidator(_parse_skus)] = ()
    default: Bool = False
    tls_ca_file: Text = ""
    tls_skip_verify: Bool = False
    tls_client_cert_file: Text = ""
    tls_client_key_file: Text = ""
    hmac_secret: SecretStr = SecretStr("")
    hmac_secret_previous: SecretStr = SecretStr("")
    fenced: Bool = False
    contract: Literal["auto", "v0_13", "current"] = Field(default="auto")

    @property
    def has_tls_fields(self) -> bool:
        """Whether any of the TLS settings is used."""
        return bool(self.tls_ca_file or self.tls_skip_verify or self.tls_client_cert_file or self.tls_client_key_file)
