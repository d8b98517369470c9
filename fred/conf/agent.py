"""An agent's settings. It starts without database, broker or any provider key."""

import uuid
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, SecretStr

from fred.conf.values import Bool, Duration, Float, HostPort, Int, Text, parse_text


def _parse_storage_id(value: object) -> uuid.UUID | None:
    if value is None or isinstance(value, uuid.UUID):
        return value
    text = parse_text(value)
    if not text:
        return None
    try:
        return uuid.UUID(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a UUID") from None


class AgentConfig(BaseModel):
    """The mock agent, from `MOCK_BACKEND_` and the key in upper case.

    `addr` is where it listens, `state_path` its SQLite file (empty: memory only), `delay` how long a provision
    takes, `retention` how long a closed lease's data is kept (0: not at all), `host` what a tenant is told to
    connect to (empty: derived from the lease).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True)

    addr: HostPort = "127.0.0.1:9000"
    """Where it listens; `--listen` wins."""
    name: Text = "mock-backend"
    """Its name, as the provider's list of backends has it. Required."""
    host: Text = ""
    """Host that tenants are told to connect to; empty: made up from the lease."""
    callback_secret: SecretStr = SecretStr("")
    """Required. Key that signs both ways; the provider's. At least 32 bytes."""
    require_hmac: Bool = True
    """Refuse requests without a valid signature."""
    storage_id: Annotated[uuid.UUID | None, BeforeValidator(_parse_storage_id)] = None
    """Identity of its storage."""
    state_path: Text = ""
    """SQLite file that keeps its state; empty: memory only."""
    delay: Duration = timedelta(0)
    """How long a provision takes. 0 or more."""
    fail_ratio: Float = 0.0
    """Share of provisions that fail. 0 to 1."""
    seed: Int = 0
    """Makes which of them fail repeatable."""
    retention: Duration = timedelta(0)
    """How long data of a removed lease is kept; 0: not at all."""
    sender: Literal["v0_13", "current", "once"] = "current"
    """When an undelivered callback is sent again: `current` after 1 s, 5 s, then every 30 s; `v0_13` after 1 s and 5
    s, then at the next start; `once` never.
    """
    callback_max_age: Duration = timedelta(hours=24)
    """After this an undelivered callback is given up. Above 0."""
    client_timeout: Duration = timedelta(seconds=10)
    """Limit for sending one callback. Above 0."""
    tls_skip_verify: Bool = False
    """Do not verify the provider's certificate."""
    read_timeout: Duration = timedelta(seconds=15)
    """Limit for receiving a request. Above 0."""
    write_timeout: Duration = timedelta(seconds=15)
    """Limit for sending a response. Above 0."""
    idle_timeout: Duration = timedelta(seconds=60)
    """How long an idle connection is kept open. Above 0; whole seconds, at least one."""
    max_request_body_size: Int = 2_097_152
    """Most bytes of a request's body. Above 0."""
    control: Bool = True
    """Offer a route that scripts outcomes."""
