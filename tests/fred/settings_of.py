"""A good environment of a provider, to be spoilt one key at a time."""

import json
from typing import Any

SECRET = "0123456789abcdef0123456789abcdef"
ADDRESS = "manifest1qypqxpq9qcrsszg2pvxq6rs0zqg3yyc57qwfj5"
BACKEND = {"name": "docker-1", "url": "http://10.20.0.11:9001"}


def good(**changes: str | None) -> dict[str, str]:
    """The environment with these variables changed; None takes one out. Names without PROVIDER_ in front get it."""
    variables = {
        "PROVIDER_PROVIDER_UUID": "5b0e6b3e-4b4e-4a36-8a5e-0a8c3a1c7d11",
        "PROVIDER_PROVIDER_ADDRESS": ADDRESS,
        "PROVIDER_KEYRING_DIR": "/var/lib/provider/keys",
        "PROVIDER_KEY_NAME": "provider",
        "PROVIDER_CALLBACK_BASE_URL": "https://fred.example",
        "PROVIDER_CALLBACK_SECRET": SECRET,
        "PROVIDER_BACKENDS": json.dumps([BACKEND]),
        "DATABASE_URL": "postgres://fred:hunter2@db/fred",
        "REDIS_URL": "redis://valkey:6379/0",
        "DJANGO_SECRET_KEY": "k" * 50,
    }
    for name, value in changes.items():
        if value is None:
            variables.pop(name, None)
        else:
            variables[name] = value
    return variables


def with_backends(*entries: dict[str, Any], **changes: str | None) -> dict[str, str]:
    """The environment with these backends, each completed from a good one."""
    return good(PROVIDER_BACKENDS=json.dumps([{**BACKEND, **entry} for entry in entries]), **changes)
