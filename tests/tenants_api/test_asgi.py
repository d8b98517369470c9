"""The tenant routes as the web process serves them: threads, headers of every answer, bodies over the cap."""

import asyncio
import hashlib

import pytest
from django.db import connections

from leases.models import Lease, Payload
from leases.status import LeaseState
from tests import asgi
from tests.tenants_api.calls import bearer, envelope
from tests.tenants_api.vectors import LEASE

pytestmark = pytest.mark.django_db(transaction=True)
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "x-xss-protection": "1; mode=block",
    "cache-control": "no-store",
    "vary": "Origin",
    "content-type": "application/json",
}


@pytest.fixture
def web(house, chain, monkeypatch):
    """The whole application of the web process; `web(method, path, …)` sends one request.

    As in that process no thread keeps its connection from one request to the next.
    """
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)
    from fred.web import compose

    def send(method, path, **fields):
        async def main():
            app = compose()
            answer = await asgi.request(app, method, path, **fields)
            for close in app._closers:
                await close()
            return answer

        return asyncio.run(main())

    return send


def without_length(answer):
    assert answer.headers["x-request-id"]
    assert answer.headers["traceparent"]
    own = {"content-length", "x-request-id", "traceparent"}
    return {name: value for name, value in answer.headers.items() if name not in own}


@pytest.mark.parametrize(
    ("route", "headers", "status"),
    [("status", bearer, 200), ("status", dict, 401), ("provision", bearer, 404), ("nope", dict, 404)],
)
def test_ta23_an_answer_has_these_headers_and_no_others(route, headers, status, web, lease):
    answer = web("GET", f"/v1/leases/{LEASE}/{route}", headers=headers())
    assert answer.status == status
    assert without_length(answer) == HEADERS


def test_ta22_another_method(web):
    answer = web("DELETE", f"/v1/leases/{LEASE}/status")
    assert (answer.status, answer.json()) == (405, envelope("method not allowed", 405))
    assert without_length(answer) == HEADERS | {"allow": "GET, HEAD"}


def test_ta27_accept_and_content_type_do_not_matter(web, lease):
    headers = {**bearer(), "Accept": "text/html", "Content-Type": "text/weird", "Host": "anything.example"}
    assert web("GET", f"/v1/leases/{LEASE}/status", headers=headers).status == 200


@pytest.mark.parametrize(("length", "status"), [(1_048_576, 202), (1_048_577, 400)])
def test_ta29_the_upload_takes_a_mebibyte_and_no_more(length, status, web, lease):
    body = b"x" * length
    digest = hashlib.sha256(body).digest()
    Lease.objects.update(chain_state=LeaseState.PENDING, meta_hash=digest)
    parts = [body[:500_000], body[500_000:]]
    answer = web("POST", f"/v1/leases/{LEASE}/data", headers=bearer(meta_hash=digest.hex()), body=parts)
    assert answer.status == status
    if status == 400:
        assert answer.json() == envelope("failed to read request body", 400)
        assert answer.headers["connection"] == "close"
    else:
        assert answer.body == b""
        assert answer.headers["content-length"] == "0"
    assert Payload.objects.exists() == (status == 202)


def test_ta19_an_oversize_body_without_a_token(web, lease):
    answer = web("POST", f"/v1/leases/{LEASE}/data", body=b"x" * 1_048_577)
    assert (answer.status, answer.json()) == (401, envelope("unauthorized", 401))
