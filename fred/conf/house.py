"""Our own settings, from the environment only: services, Django, logs, metrics, rows, keys."""

from datetime import timedelta
from typing import Literal

from pydantic import BaseModel, ConfigDict, SecretStr

from fred.conf.values import Bool, Duration, HostPort, Text, TextList


class HouseConfig(BaseModel):
    """What the house needs besides the provider: where its services are and how it shows itself."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    database_url: SecretStr = SecretStr("")
    redis_url: SecretStr = SecretStr("")
    celery_broker_url: SecretStr = SecretStr("")
    django_secret_key: SecretStr = SecretStr("")
    fred_debug: Bool = False
    fred_allowed_hosts: TextList = ("*",)
    fred_admin_enabled: Bool = True
    fred_admin_listen_addr: HostPort = "127.0.0.1:8081"
    fred_admin_four_eyes: Bool = False
    fred_role: Literal["", "admin"] = ""
    fred_log_format: Literal["json", "text"] = "json"
    fred_metrics_listen_addr: Text = ""
    prometheus_multiproc_dir: Text = ""
    fred_keyring_passphrase: SecretStr = SecretStr("")
    fred_mnemonic: SecretStr = SecretStr("")
    fred_signer_private_key: SecretStr = SecretStr("")
    fred_retention_news: Duration = timedelta(days=7)
    fred_retention_history: Duration = timedelta(days=30)
    fred_retention_settled: Duration = timedelta(days=90)
    fred_crash_at: Text = ""

    @property
    def broker_url(self) -> str:
        """Celery's broker: its own URL, else Valkey's."""
        return self.celery_broker_url.get_secret_value() or self.redis_url.get_secret_value()
