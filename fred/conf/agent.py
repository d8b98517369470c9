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

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    addr: HostPort = "127.0.0.1:9000"
    name: Text = "mock-backend"
    host: Text = ""
    callback_secret: SecretStr = SecretStr("")
    require_hmac: Bool = True
    storage_id: Annotated[uuid.UUID | None, BeforeValidator(_parse_storage_id)] = None
    state_path: Text = ""
    delay: Duration = timedelta(0)
    fail_ratio: Float = 0.0
    seed: Int = 0
    retention: Duration = timedelta(0)
    sender: Literal["v0_13", "current", "once"] = "current"
    callback_max_age: Duration = timedelta(hours=24)
    client_timeout: Duration = timedelta(seconds=10)
    tls_skip_verify: Bool = False
    read_timeout: Duration = timedelta(seconds=15)
    write_timeout: Duration = timedelta(seconds=15)
    idle_timeout: Duration = timedelta(seconds=60)
    max_request_body_size: Int = 2_097_152
    control: Bool = True
