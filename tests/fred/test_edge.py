"""What every answer carries, whoever made it."""

from __future__ import annotations

import asyncio

import pytest

from fred.edge import SECURITY_HEADERS, Edge
from tests.asgi import request


async def teapot(scope, receive, send):
    await send({"type": "http.response.start", "status": 418, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"short and stout"})


async def crash(scope, receive, send):
    raise RuntimeError("boom")


def ask(method="GET", *, origins=("*",), app=teapot, **headers):
    edge = Edge(app, cors_origins=origins)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return asyncio.run(request(edge, method, "/x", headers=named))


def test_security_headers_stand_on_every_answer():
    answer = ask(origins=())
    for name, value in SECURITY_HEADERS:
        assert answer.headers[name.decode()] == value.decode()
    assert "vary" not in answer.headers
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_preflight_has_no_security_header_and_reaches_nobody():
    answer = ask(
        "OPTIONS",
        app=crash,
        origin="https://app.example",
        access_control_request_method="POST",
        access_control_request_headers="authorization,content-type",
    )
    assert answer.status == 204
    assert answer.body == b""
    assert answer.headers == {
        "vary": "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
        "access-control-allow-origin": "*",
        "access-control-allow-methods": "POST",
        "access-control-allow-headers": "authorization,content-type",
        "access-control-max-age": "600",
    }


@pytest.mark.parametrize(
    ("origins", "headers"),
    [
        pytest.param(["https://a.example"], {"origin": "https://b.example"}, id="origin"),
        pytest.param(["*"], {"origin": "https://b.example", "access_control_request_method": "DELETE"}, id="method"),
        pytest.param(
            ["*"], {"origin": "https://b.example", "access_control_request_headers": "x-secret"}, id="a header"
        ),
        pytest.param(["*"], {}, id="no origin"),
    ],
)
def test_a_preflight_that_asks_too_much_is_204_without_permissions(origins, headers):
    answer = ask("OPTIONS", origins=origins, **({"access_control_request_method": "GET"} | headers))
    assert answer.status == 204
    assert list(answer.headers) == ["vary"]


@pytest.mark.parametrize(
    ("origins", "origin", "allowed"),
    [
        pytest.param(["*"], "https://x.example", "*", id="all"),
        pytest.param(["https://x.example"], "HTTPS://X.example", "HTTPS://X.example", id="case does not matter"),
        pytest.param(["https://*.example"], "https://a.b.example", "https://a.b.example", id="a star inside"),
        pytest.param(["https://*.example"], "https://.exampl", None, id="a star is no licence"),
        pytest.param(["https://x.example"], "https://y.example", None, id="another"),
    ],
)
def test_simple_answers_name_the_allowed_origin(origins, origin, allowed):
    answer = ask(origins=origins, origin=origin)
    assert answer.headers["vary"] == "Origin"
    assert answer.headers.get("access-control-allow-origin") == allowed


def test_head_gets_no_permission_but_vary():
    answer = ask("HEAD", origin="https://x.example")
    assert answer.headers["vary"] == "Origin"
    assert "access-control-allow-origin" not in answer.headers


def test_options_without_the_preflight_header_reaches_the_application():
    assert ask("OPTIONS", origin="https://x.example").status == 418
