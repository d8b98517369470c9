"""Reads of a client from a scripted peer, pages, and breakers that listen."""

import json

from backends.client import BackendClient
from tests.backends.servers import answer, peer, target, uuid_number


def row(number, **fields):
    return {"lease_uuid": str(uuid_number(number)), "status": "ready", **fields}


def paged(pages, noun="provisions"):
    """A script that serves these (rows, continue) pages; the token names the next one."""

    def script(got):
        number = next((i for i, (_, token) in enumerate(pages) if token and f"continue={token}&" in got.target), -1) + 1
        rows, token = pages[number]
        return answer(200, json.dumps({noun: rows, **({"continue": token} if token else {})}).encode())

    return script


def read(script, method, *arguments, **changes):
    """What this read of a client makes of a scripted peer, and what the peer got."""
    with peer(script) as server:
        found = getattr(BackendClient(target(server.url, **changes)), method)(*arguments)
        return found, server.got


class Refusing:
    """A breaker that is open."""

    def enter(self, *, limit=None):
        return None

    def record(self, ticket, *, pulse):
        raise AssertionError("nothing was sent")


class Listening:
    """A breaker that lets everything through and notes what it is told."""

    def __init__(self):
        self.pulses = []

    def enter(self, *, limit=None):
        return 7

    def record(self, ticket, *, pulse):
        assert ticket == 7
        self.pulses.append(pulse)
