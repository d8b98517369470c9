"""What a refusal looks like, plain and with problem details."""

import orjson
import pytest
from django.test import RequestFactory

from tenants_api.errors import ApiError, wants_problem
from tests.tenants_api.calls import bearer, envelope
from tests.tenants_api.vectors import LEASE

PROBLEM = "application/problem+json"


def test_the_envelope_is_two_members_and_a_line_feed():
    found = ApiError(404, "lease not found").rendered()
    assert found.body == b'{"error":"lease not found","code":404}\n'
    assert (found.status, found.headers) == (404, {"Content-Type": "application/json"})


def test_a_reason_stands_after_the_code():
    found = ApiError(410, "gone", reason="backend_storage_lost").rendered()
    assert found.body == b'{"error":"gone","code":410,"reason":"backend_storage_lost"}\n'


def test_a_503_of_ours_says_when_to_come_back_and_a_backends_does_not():
    assert ApiError(503, "x").rendered().headers["Retry-After"] == "1"
    assert ApiError(503, "x", headers={"Retry-After": "7"}).rendered().headers["Retry-After"] == "7"
    assert "Retry-After" not in ApiError(503, "x", relayed=True).rendered().headers
    assert "Retry-After" not in ApiError(500, "x").rendered().headers


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, False),
        ("", False),
        ("*/*", False),
        ("application/*", False),
        ("application/json", False),
        (PROBLEM, True),
        ("Application/Problem+JSON", True),
        (f"text/html, {PROBLEM};q=0.1", True),
        (f"{PROBLEM}; charset=utf-8; q=1", True),
        (f"{PROBLEM};q=0", False),
        (f"{PROBLEM};q=0.000", False),
        (f"{PROBLEM};q=much", False),
        (f"{PROBLEM}x", False),
    ],
)
def test_ta111_who_asks_for_problem_details(accept, expected):
    assert wants_problem(accept) is expected


def test_ta111_problem_details_stand_beside_the_two_members():
    error = ApiError(409, "no", reason="target_busy")
    found = error.rendered(accept=PROBLEM, request_id="0190a1b2")
    assert found.headers["Content-Type"] == PROBLEM
    assert orjson.loads(found.body) == {
        "error": "no",
        "code": 409,
        "reason": "target_busy",
        "type": "about:blank",
        "title": "Conflict",
        "status": 409,
        "detail": "no",
        "instance": "urn:uuid:0190a1b2",
        "request_id": "0190a1b2",
        "error_code": "target_busy",
    }


def test_the_request_id_is_the_edges():
    request = RequestFactory().get("/", HTTP_ACCEPT=PROBLEM)
    request.scope = {"fred.request_id": "abc"}
    assert orjson.loads(ApiError(404, "no").response(request).content)["request_id"] == "abc"


@pytest.mark.django_db
def test_ta111_on_a_route(ask, watcher):
    found = ask("status", headers={**bearer(), "Accept": PROBLEM})
    assert found.headers["Content-Type"] == PROBLEM
    assert {name: found.body[name] for name in ("error", "code", "status", "detail", "error_code")} == {
        **envelope("lease not found", 404),
        "status": 404,
        "detail": "lease not found",
        "error_code": "lease_not_found",
    }
    plain = ask("status", path=LEASE)
    assert plain.body == envelope("lease not found", 404)
    assert plain.headers["Content-Type"] == "application/json"
