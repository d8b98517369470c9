"""Signed callbacks to the endpoint, and an endpoint that stores nothing but remembers."""

import asyncio
import json

from django.conf import settings as django_settings

from fred import signing
from fred.conf import BackendConfig
from placements.callback_batches import Batcher
from placements.callbacks_asgi import PATH, CallbackEndpoint
from tests import asgi

LEASE = "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"
SECRET = "a callback secret of this test, of over 32 bytes"
NOW = 1_790_000_000
SAID = json.dumps({"lease_uuid": LEASE, "status": "success"}).encode()


def config(**changes):
    return django_settings.FRED.model_copy(
        update={"callback_secret": type(django_settings.FRED.callback_secret)(SECRET), **changes}
    )


def signed(body, *, query="", secret=SECRET, at=NOW):
    target = f"{PATH}?{query}" if query else PATH
    return {signing.HEADER: signing.sign(secret, timestamp=at, method="POST", target=target, body=body)}


async def post(endpoint, body=SAID, *, query="", headers=None, method="POST"):
    headers = signed(body, query=query) if headers is None else headers
    return await asgi.request(endpoint, method, PATH, body=body, headers=headers, query=query)


class Kept:
    """Applies nothing and remembers everything, one batch after the other."""

    def __init__(self, *outcomes):
        self.batches = []
        self.outcomes = list(outcomes)

    def __call__(self, batch):
        self.batches.append(list(batch))
        outcome = self.outcomes.pop(0) if self.outcomes else set()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome(batch) if callable(outcome) else outcome


def run(work, *, apply=None, **changes):
    """Run `work(endpoint)` on a loop of its own, then close the endpoint."""
    kept = apply or Kept()

    async def main():
        endpoint = CallbackEndpoint(config(**changes), Batcher(kept), clock=lambda: NOW + 2)
        try:
            return await work(endpoint)
        finally:
            await endpoint.close()

    return asyncio.run(main()), kept


def envelope(text, code):
    return {"error": text, "code": code}


def keyed(name, secret, **fields):
    return BackendConfig(name=name, url="http://127.0.0.1:2", hmac_secret=secret, **fields)


OWN, PREVIOUS, OTHER = ("the key of one backend, over 32 bytes", "its key before that, over 32 bytes.", "b" * 40)
