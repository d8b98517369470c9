"""An agent's settings. It starts without database, broker or any provider key."""

import uuid
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, SecretStr

from fred.conf.values import Bool, Duration, Float, HostPort, Int, Text, TextList, parse_text


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
    tls_cert_file: Text = ""
    """PEM certificate chain; with it and its key the agent speaks HTTPS. Read again when it changes and on SIGHUP."""
    tls_key_file: Text = ""
    """PEM key of that certificate."""
    tls_client_ca_file: Text = ""
    """PEM bundle; with it every client must present a certificate of one of these authorities."""
    tls_client_allowed_names: TextList = ()
    """Common names or DNS names of client certificates that are let in; empty: all of that authority."""
    read_timeout: Duration = timedelta(seconds=15)
    """Limit for receiving a request. Above 0."""
    write_timeout: Duration = timedelta(seconds=15)
    """Limit for sending a response. Above 0."""
    idle_timeout: Duration = timedelta(seconds=60)
    """How long an idle connection is kept open. Above 0; whole seconds, at least one."""
    max_request_body_size: Int = 2_097_152
    """Most bytes of a request's body. Above 0."""
    callback_secret_next: SecretStr = SecretStr("")
    """The next key of a rotation: requests signed with it are accepted too. Empty, or at least 32 bytes."""
    plain_connection: Bool = False
    """Give leases the connection data and log keys of the Go mock: host, protocol and metadata only."""
    skus: Text = ""
    """Sizes of the known SKUs as JSON, `{"<sku>": {"cpu": 1, "memory_mb": 512, "disk_mb": 0, "data_mb": 0}}`; any other
    SKU is refused. Empty: all are known. `data_mb` is what a workload is taken to write.
    """
    total_cpu_cores: Float = 0.0
    """Cores there are room for; 0: not tracked, all fits."""
    total_memory_mb: Float = 0.0
    """Memory there is room for, in MiB; 0: not tracked."""
    total_disk_mb: Float = 0.0
    """Disk there is room for, in MiB; 0: not tracked."""
    control: Bool = True
    """Offer the control API under `/_mock/`, if there is a token for it."""
    control_token: SecretStr = SecretStr("")
    """Bearer token of the control API; empty: no control API. At least 16 characters."""
    control_anywhere: Bool = False
    """Offer the control API also on an address that is not loopback."""
    faults: Text = ""
    """Faults from the start, as JSON: a list of rules, see docs/mock-backend.md."""
