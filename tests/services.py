"""The environment of a test run: one PostgreSQL, one Valkey, and the settings of a provider that exists nowhere."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from fred.dev.servers import PostgresServer, ValkeyServer

OURS = ("PROVIDER_", "FRED_", "MOCK_BACKEND_", "DOCKER_BACKEND_", "DJANGO_", "CELERY_")
"""Prefixes of variables that must not leak from the caller's shell into the tests."""
KEPT = ("FRED_TEST_",)

PROVIDER = {
    "DJANGO_SETTINGS_MODULE": "fred.settings",
    "DJANGO_SECRET_KEY": "a secret key of the tests, long enough to be taken for a good one",
    "FRED_LOG_FORMAT": "text",
    "PROVIDER_PROVIDER_UUID": "01890a5d-ac96-774b-bcce-b302099a8057",
    "PROVIDER_PROVIDER_ADDRESS": "manifest1hj5fveer5cjtn4wd6wstzugjfdxzl0xp8ws9ct",
    "PROVIDER_CHAIN_ID": "manifest-localnet",
    "PROVIDER_GRPC_ENDPOINT": "127.0.0.1:1",
    "PROVIDER_WEBSOCKET_URL": "ws://127.0.0.1:1/websocket",
    "PROVIDER_KEYRING_BACKEND": "env",
    "PROVIDER_KEYRING_DIR": "/nonexistent",
    "PROVIDER_KEY_NAME": "provider",
    "FRED_SIGNER_PRIVATE_KEY": "e6c592cf744bf3b0d62a097f6abe41a4805586b4ce722d82d2464ddb34da739f",
    # All requests of a test come from one address.
    "PROVIDER_RATE_LIMIT_RPS": "100000",
    "PROVIDER_RATE_LIMIT_BURST": "100000",
    "PROVIDER_CALLBACK_BASE_URL": "http://127.0.0.1:8080",
    "PROVIDER_CALLBACK_SECRET": "a callback secret of the tests, over 32 bytes",
    "PROVIDER_BACKENDS": json.dumps(
        [
            {
                "name": "mock-1",
                "url": "http://127.0.0.1:2",
                "skus": ["01890a5d-ac96-774b-bcce-b302099a8001"],
                "default": True,
            }
        ]
    ),
}


class Services:
    """The servers of one test run; its workers share them, each with a database of its own."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fred-tests-"))
        self.postgres = PostgresServer(self.folder / "postgres", durable=False)
        self.valkey = ValkeyServer(self.folder / "valkey")

    def start(self) -> None:
        """Start both and write the environment that settings read; child processes inherit it."""
        for name in list(os.environ):
            if name.startswith(OURS) and not name.startswith(KEPT):
                del os.environ[name]
        self.postgres.start()
        self.valkey.start()
        metrics = self.folder / "metrics"
        metrics.mkdir()
        os.environ.update(PROVIDER)
        os.environ["DATABASE_URL"] = self.postgres.url
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(metrics)
        use_valkey(self.valkey.url)

    def stop(self) -> None:
        """Stop both and delete their data."""
        self.valkey.stop()
        self.postgres.stop()
        self.valkey.wipe()
        self.postgres.wipe()
        shutil.rmtree(self.folder, ignore_errors=True)


def use_valkey(url: str) -> None:
    """Make this address the one of hints and of the broker."""
    os.environ["REDIS_URL"] = os.environ["CELERY_BROKER_URL"] = url


def valkey_of_worker(url: str, number: int) -> str:
    """The same Valkey, the database of this number."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{number}"))
