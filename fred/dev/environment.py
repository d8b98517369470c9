"""The environment of each child: nothing leaks in from the caller's shell but what a program needs to run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fred.dev.chain_admin import Inhabitants
from fred.dev.ports import HOST
from fred.dev.vault import Vault

OURS = ("PROVIDER_", "FRED_", "MOCK_BACKEND_", "DOCKER_BACKEND_", "DJANGO_", "CELERY_", "DATABASE_URL", "REDIS_URL")
BACKEND = "mock-1"
KEPT_OF_OURS = ("FRED_CRASH_AT",)


@dataclass(frozen=True, slots=True)
class Environments:
    """Makes the environment of each kind of child from what this house has."""

    folder: Path
    ports: Mapping[str, int]
    vault: Vault
    database_url: str
    redis_url: str

    def plain(self) -> dict[str, str]:
        """For the simulated chain and migrations: the caller's environment without any setting of ours."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(OURS) or name.startswith(KEPT_OF_OURS)
        }
        return inherited | {
            "DJANGO_SETTINGS_MODULE": "fred.settings",
            "PYTHONUNBUFFERED": "1",
            "FRED_LOG_FORMAT": "text",
        }

    def services(self) -> dict[str, str]:
        """With the database and the broker."""
        return self.plain() | {
            "DATABASE_URL": self.database_url,
            "REDIS_URL": self.redis_url,
            "CELERY_BROKER_URL": self.redis_url,
            "DJANGO_SECRET_KEY": self.vault.django_secret_key,
            "PROMETHEUS_MULTIPROC_DIR": str(self.folder / "metrics"),
        }

    def provider(self, chain: Inhabitants) -> dict[str, str]:
        """The control plane of the demo provider, without its signing key."""
        return self.services() | {
            "PROVIDER_PROVIDER_UUID": chain.provider_uuid,
            "PROVIDER_PROVIDER_ADDRESS": chain.provider.address,
            "PROVIDER_CHAIN_ID": chain.chain_id,
            "PROVIDER_GRPC_ENDPOINT": f"{HOST}:{self.ports['chain-grpc']}",
            "PROVIDER_WEBSOCKET_URL": f"ws://{HOST}:{self.ports['chain-rpc']}/websocket",
            "PROVIDER_KEYRING_BACKEND": "env",
            "PROVIDER_KEYRING_DIR": str(self.folder),
            "PROVIDER_KEY_NAME": "provider",
            "PROVIDER_API_LISTEN_ADDR": f"{HOST}:{self.ports['api']}",
            "PROVIDER_CALLBACK_BASE_URL": f"http://{HOST}:{self.ports['api']}",
            "PROVIDER_SHUTDOWN_TIMEOUT": "5s",
            # Whoever calls here comes from one address, the house itself included.
            "PROVIDER_RATE_LIMIT_RPS": "10000",
            "PROVIDER_RATE_LIMIT_BURST": "10000",
            "PROVIDER_CALLBACK_SECRET": self.vault.callback_secret,
            "PROVIDER_BACKENDS": json.dumps(
                [
                    {
                        "name": BACKEND,
                        "url": f"http://{HOST}:{self.ports['agent']}",
                        "skus": list(chain.skus.values()),
                        "default": True,
                    }
                ]
            ),
            "FRED_ADMIN_LISTEN_ADDR": f"{HOST}:{self.ports['admin']}",
        }

    def signing(self, chain: Inhabitants) -> dict[str, str]:
        """The same with the provider's key: only processes that sign get it."""
        return self.provider(chain) | {"FRED_SIGNER_PRIVATE_KEY": chain.provider.private_key}

    def admin(self, chain: Inhabitants) -> dict[str, str]:
        """The second server, with the admin site."""
        return self.provider(chain) | {"FRED_ROLE": "admin"}

    def agent(self) -> dict[str, str]:
        """The mock agent: it knows nothing of the control plane but the key they share."""
        return self.plain() | {
            "MOCK_BACKEND_NAME": BACKEND,
            "MOCK_BACKEND_ADDR": f"{HOST}:{self.ports['agent']}",
            "MOCK_BACKEND_CALLBACK_SECRET": self.vault.callback_secret,
            "MOCK_BACKEND_STATE_PATH": str(self.folder / "agent" / "state.sqlite"),
            "MOCK_BACKEND_RETENTION": "1h",
        }
