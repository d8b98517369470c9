"""Our own settings, from the environment only: services, Django, logs, metrics, rows, keys."""

from datetime import timedelta
from typing import Literal

from pydantic import BaseModel, ConfigDict, SecretStr

from fred.conf.values import Bool, Duration, HostPort, Text, TextList


class HouseConfig(BaseModel):
    """What the house needs besides the provider: where its services are and how it shows itself."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True)

    database_url: SecretStr = SecretStr("")
    """Required. PostgreSQL, as `postgres://user:password@host:port/name`."""
    redis_url: SecretStr = SecretStr("")
    """Required. Valkey: hint gates, breakers, heartbeats. `redis://host:port/number`."""
    celery_broker_url: SecretStr = SecretStr("")
    """Broker of the hints; empty: `REDIS_URL`."""
    django_secret_key: SecretStr = SecretStr("")
    """Required. Signs sessions of the admin site; 50 characters or more in production."""
    fred_debug: Bool = False
    """Django's debug pages. Refused in production."""
    fred_allowed_hosts: TextList = ("*",)
    """Host names the admin site answers to. In production its server refuses `*`."""
    fred_admin_enabled: Bool = True
    """Whether there is an admin site."""
    fred_admin_listen_addr: HostPort = "127.0.0.1:8081"
    """Where the admin site's server listens (process `admin`)."""
    fred_admin_four_eyes: Bool = False
    """Demand a second person for dangerous acts."""
    fred_role: Literal["", "admin"] = ""
    """`admin` makes a web server the admin site; the process `admin` sets it."""
    fred_log_format: Literal["json", "text"] = "json"
    """Format of log lines."""
    fred_metrics_listen_addr: Text = ""
    """Listener for the metrics of processes other than web."""
    prometheus_multiproc_dir: Text = ""
    """Folder in which all processes keep counters; empty: each shows only its own. Must exist."""
    fred_keyring_passphrase: SecretStr = SecretStr("")
    """Passphrase of a `file` keyring. Only processes of the queue `chain` need it."""
    fred_mnemonic: SecretStr = SecretStr("")
    """The mnemonic of the provider's key. With sub-signers: missing keys of theirs are derived from it. With
    `keyring_backend: env` also the signing key, when the next is not set. Also read by `lease_token`.
    """
    fred_signer_private_key: SecretStr = SecretStr("")
    """With `keyring_backend: env`: the signing key, 64 hex digits."""
    fred_retention_news: Duration = timedelta(days=7)
    """How long applied callbacks and status events are kept. Above 0."""
    fred_retention_history: Duration = timedelta(days=30)
    """How long chain events, decisions, sweeps, decided transactions and tenants' requests are kept. Above 0."""
    fred_retention_settled: Duration = timedelta(days=90)
    """How long settled operations, removals and wishes for the chain are kept. Above 0."""
    fred_crash_at: Text = ""
    """For tests: named points at which the process kills itself. Leave it empty."""

    @property
    def broker_url(self) -> str:
        """Celery's broker: its own URL, else Valkey's."""
        return self.celery_broker_url.get_secret_value() or self.redis_url.get_secret_value()
