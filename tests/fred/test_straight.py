"""Requests that go straight to their views."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.urls import Resolver404, get_resolver, path

from fred import urls
from fred.straight import Straight


def view(request: HttpRequest, **found: object) -> HttpResponse:
    return HttpResponse(repr(found))


def other(request: HttpRequest, name: str) -> HttpResponse:
    return HttpResponse(f"other {name}", status=404)


def crash(request: HttpRequest, name: str) -> HttpResponse:
    raise RuntimeError("never shown")


urlpatterns = [
    path("plain", view),
    path("v1/things/<str:name>/status", view),
    path("v1/things/<str:name>/other", other),
    path("v1/things/<str:name>/crash", crash),
    path("v1/things/<int:number>/count", view),
    path("v1/things/<uuid:one>/<str:name>/both", view),
    path("v1/things/<str:name>", view),
    path("<str:name>/first", view),
    path("free/<str:name>/", view),
    path("v1/extra/<str:name>/extra", view, {"more": 1}),
]
handler404 = "fred.views.not_found"
handler500 = "fred.views.server_error"
pytestmark = pytest.mark.urls(__name__)


def answer(straight: Straight, asked: str) -> tuple[int, bytes]:
    response = straight.response(RequestFactory().get(asked))
    return response.status_code, response.content


@pytest.mark.parametrize("asked", ["/v1/things/a/status", "/v1/things/b%20ü:<c>\n/status", "/v1/things/ /other"])
def test_a_match_is_that_of_django_the_second_time_too(asked):
    straight = Straight()
    expected = get_resolver().resolve(asked)
    for path_ in ("/v1/things/x/status", "/v1/things/x/other", asked, asked):
        found = straight.match(path_)
    assert (found.func, found.args, found.kwargs, found.route) == (
        expected.func,
        expected.args,
        expected.kwargs,
        expected.route,
    )


ONE = UUID("0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("/plain", {}),
        ("/v1/things/7/count", {"number": 7}),
        ("/v1/things/a", {"name": "a"}),
        ("/a/first", {"name": "a"}),
        ("/free/a/", {"name": "a"}),
        (f"/v1/things/{ONE}/a/both", {"one": ONE, "name": "a"}),
        ("/v1/extra/a/extra", {"name": "a", "more": 1}),
    ],
)
def test_other_routes_are_djangos_to_find(asked, found):
    straight = Straight()
    assert [answer(straight, asked) for _ in range(2)] == [(200, repr(found).encode())] * 2


@pytest.mark.parametrize(
    "asked",
    ["/", "/v1/things//status", "/v1/things/a/none", "/v1/things/a/status/", "/things/a/status", "/v1/things/x/count"],
)
def test_a_path_without_a_route_has_none_beside_one_that_is_known(asked):
    straight = Straight()
    assert answer(straight, "/v1/things/a/status")[0] == 200
    for _ in range(2):
        with pytest.raises(Resolver404):
            straight.match(asked)


def test_errors_have_their_handlers_and_bugs_are_logged(caplog):
    straight = Straight()
    with caplog.at_level(logging.WARNING, "django.request"):
        assert answer(straight, "/none") == (404, b'{"error":"not found","code":404}\n')
        assert answer(straight, "/v1/things/a/crash") == (500, b'{"error":"internal server error","code":500}\n')
        assert answer(straight, "/v1/things/a/other") == (404, b"other a")
    assert [str(one.exc_info[1]) for one in caplog.records] == ["never shown"]  # a status is in the access log


def test_no_fixed_route_of_ours_stands_where_a_segment_is_free():
    """Or what was found for one value would hide it from the other."""
    routes = [str(one.pattern) for one in (*urls.operator_routes, *urls.tenant_routes[0].url_patterns)]
    parts = [route.split("/") for route in routes]
    free = [(one[:-2], one[-1]) for one in parts if len(one) > 1 and one[-2] == "<str:lease_uuid>"]
    fixed = [(one[:-2], one[-1]) for one in parts if len(one) > 1 and not one[-2].startswith("<")]
    assert len(free) == len(set(map(str, free))) == 9
    assert not [one for one in fixed if one in free]
