"""Restart and update in the whole application of the web process."""

import asyncio
import json
from base64 import b64encode

import pytest
from django.db import connections

from tests import asgi
from tests.scripted_backend import Hang
from tests.tenants_api.commands.fresh import Fresh
from tests.tenants_api.commands.named import K1
from tests.tenants_api.vectors import LEASE
from tests.waiting import wait_until


@pytest.fixture
def web(backend, chain, monkeypatch):
    """`web(story)`: run a story with the application; no thread keeps its connection, as in that process."""
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)
    from fred.web import compose

    def run(story):
        async def main():
            app = compose()
            try:
                return await story(app)
            finally:
                for close in app._closers:
                    await close()

        return asyncio.run(main())

    return run


KINDS = ["text/weird", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "", None]


def test_ta27_an_update_is_json_whatever_is_said_of_it(web, lease, backend):
    """TA-27: neither what it is called nor what is wanted back matters."""
    fresh = Fresh()
    payloads = [f"manifest {number}".encode() for number in range(len(KINDS))]

    async def story(app):
        answers = []
        for kind, payload in zip(KINDS, payloads, strict=True):
            headers = {**fresh(), "Accept": "text/html", **({} if kind is None else {"Content-Type": kind})}
            body = json.dumps({"payload": b64encode(payload).decode()}).encode()
            answers.append(await asgi.request(app, "POST", f"/v1/leases/{LEASE}/update", headers=headers, body=body))
        return answers

    assert [(one.status, one.body) for one in web(story)] == [(202, b'{"status":"updating"}\n')] * len(KINDS)
    assert [one.body["payload"] for one in backend.seen] == [b64encode(one).decode() for one in payloads]


def test_reads_answer_while_every_thread_for_commands_waits(web, lease, backend):
    """TA-119: one call to the backend, whoever joins gets its answer, and a status costs nobody's patience."""
    hang = Hang()
    backend.script["restart"].append(hang)
    fresh = Fresh()

    async def story(app):
        headers = [{**fresh(), "Idempotency-Key": K1} for _ in range(18)]
        path = f"/v1/leases/{LEASE}"
        asked = [asyncio.create_task(asgi.request(app, "POST", f"{path}/restart", headers=one)) for one in headers]
        await asyncio.to_thread(wait_until, backend.routes)
        async with asyncio.timeout(5):
            status = await asgi.request(app, "GET", f"{path}/status", headers=fresh())
        still_waiting = sum(not one.done() for one in asked)
        hang.release()
        return status, still_waiting, await asyncio.gather(*asked)

    status, still_waiting, answers = web(story)
    assert (status.status, still_waiting) == (200, 18)
    assert {(one.status, one.body) for one in answers} == {(202, b'{"status":"restarting"}\n')}
    assert sum("idempotency-replayed" in one.headers for one in answers) == 17
    assert backend.routes().count("restart") == 1
