"""Logs and releases: parameters, bodies, what a backend's silence comes to."""

import pytest

from fred import breaker
from leases.models import Lease
from leases.status import LeaseState
from tenants_api import query
from tests.factories.placements import OperationFactory
from tests.tenants_api.calls import PROVIDER, envelope
from tests.tenants_api.placed import placed
from tests.tenants_api.vectors import ALICE, BOB, LEASE

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("unlimited")]
HEAD = {"lease_uuid": LEASE, "tenant": ALICE, "provider_uuid": str(PROVIDER)}
ROUTES = {"logs": f"/logs/{LEASE}?tail=100", "releases": f"/releases/{LEASE}"}
NO_INTEGER = envelope("tail must be a positive integer", 400)


@pytest.fixture
def get(client, chain, house):
    """`get("logs?tail=5")`: ask a route with a query."""
    from tests.tenants_api.calls import bearer

    def call(route, who="alice"):
        return client.get(f"/v1/leases/{LEASE}/{route}", headers=bearer(who))

    return call


@pytest.mark.parametrize(
    ("asked", "tail"),
    [
        ("", 100),
        ("?tail=", 100),
        ("?foo=bar", 100),
        ("?tail=50", 50),
        ("?tail=%2B50", 50),
        ("?tail=10000", 10_000),
        ("?tail=7&tail=8", 7),
        ("?tail=%zz", 100),
        ("?tail=5;x=1", 100),
    ],
)
def test_ta55_so_many_lines_are_asked_for(asked, tail, get, lease, backends):
    backends.one.says(f"/logs/{LEASE}?tail={tail}", {"web/0": "hello\n", "app/1": ""})
    found = get(f"logs{asked}")
    assert found.status_code == 200
    assert found.content.decode() == (
        f'{{"lease_uuid":"{LEASE}","tenant":"{ALICE}","provider_uuid":"{PROVIDER}",'
        '"logs":{"app/1":"","web/0":"hello\\n"}}\n'
    )
    assert backends.one.calls == [f"/logs/{LEASE}?tail={tail}"]


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        ("10001", envelope("tail must not exceed 10000", 400)),
        ("-1", NO_INTEGER),
        ("0", NO_INTEGER),
        ("abc", NO_INTEGER),
        ("1.5", NO_INTEGER),
        ("1" * 30, NO_INTEGER),
        ("9" * 5000, NO_INTEGER),
        ("9223372036854775808", NO_INTEGER),
        ("9223372036854775807", envelope("tail must not exceed 10000", 400)),
        ("1_0", NO_INTEGER),
        ("+5", NO_INTEGER),  # a plus sign is a blank
        ("%D9%A5", NO_INTEGER),  # an Arabic five
    ],
)
def test_ta55_what_is_no_number_of_lines(tail, expected, get, lease, backends):
    found = get(f"logs?tail={tail}")
    assert (found.status_code, found.json()) == (400, expected)
    assert backends.one.calls == []


def test_ta18_who_may_not_ask_learns_nothing_of_the_query(get, lease):
    Lease.objects.update(tenant=BOB)
    found = get("logs?tail=0")
    assert (found.status_code, found.json()) == (403, envelope("forbidden", 403))


def test_the_owner_comes_before_the_query(get, lease):
    placed(lease, "old-name")
    assert get("logs?tail=0").json() == envelope("service unavailable", 503)
    assert get("releases?limit=0").json() == envelope("service unavailable", 503)


@pytest.mark.parametrize(("route", "text"), [("logs", "logs not found"), ("releases", "lease not yet provisioned")])
def test_ta56_a_backend_that_does_not_have_it(route, text, get, lease):
    found = get(route)
    assert (found.status_code, found.json()) == (404, envelope(text, 404))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("answer", [(500, b"{}"), (200, b"no json"), (200, b"7"), (401, b"")], ids=str)
def test_a_backend_without_a_usable_answer_is_500(route, answer, get, lease, backends):
    backends.one.answers[ROUTES[route]] = answer
    found = get(route)
    assert (found.status_code, found.json()) == (500, envelope("internal server error", 500))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("state", [LeaseState.PENDING, LeaseState.ACTIVE, LeaseState.CLOSED, LeaseState.REJECTED])
def test_any_state_on_the_chain_will_do(route, state, get, lease, backends):
    Lease.objects.update(chain_state=state)
    backends.one.says(ROUTES[route], None)
    found = get(route)
    assert (found.status_code, found.json()[route]) == (200, {} if route == "logs" else [])


@pytest.mark.parametrize("route", ROUTES)
def test_a_lease_that_the_chain_does_not_know(route, get, watcher, backends):
    """Data that a backend retains opens neither route."""
    backends.one.holds(status="retained", tenant=ALICE)
    found = get(route)
    assert (found.status_code, found.json()) == (404, envelope("lease not found", 404))


@pytest.mark.parametrize("route", ROUTES)
def test_ta43_only_the_owner_is_asked(route, get, lease, backends):
    placed(lease, "docker-2")
    backends.two.says(ROUTES[route], None)
    assert get(route).status_code == 200
    assert backends.one.calls == []


@pytest.mark.parametrize("route", ROUTES)
def test_an_unsettled_owner_is_503(route, get, lease, backends):
    placed(lease, status="attempted")
    OperationFactory(lease=lease, state="in_doubt")
    found = get(route)
    assert (found.status_code, found.json()) == (503, envelope("service unavailable", 503))
    assert found.headers["Retry-After"] == "1"
    assert (backends.one.calls, backends.two.calls) == ([], [])


@pytest.mark.parametrize("route", ROUTES)
def test_a_backend_that_accepted_is_the_owner_before_it_reports(route, get, lease, backends):
    placed(lease, "docker-2", status="attempted")
    OperationFactory(lease=lease, state="accepted")
    backends.two.says(ROUTES[route], None)
    assert get(route).status_code == 200
    assert backends.one.calls == []


ROWS = [
    {
        "version": 1,
        "image": "nginx:1.27",
        "status": "superseded",
        "created_at": "2026-09-21T16:13:20.120000001+02:00",
        "manifest": "e30=",
        "error": "/var/lib/host",
    },
    {"version": 2, "image": "", "status": "failed", "created_at": "0001-01-01T00:00:00Z", "manifest": None},
    {"version": 3, "image": "x", "status": "failed", "reason": "UpdateFailed", "message": "update failed"},
    {"version": 4, "image": "x", "status": "rebuilding", "created_at": "2026-09-21T14:13:20Z", "manifest": ""},
]


def test_ta57_every_release_has_its_manifest_and_a_failed_one_its_reason(get, lease, backends):
    backends.one.says(ROUTES["releases"], ROWS)
    found = get("releases")
    assert list(found.json()) == [*HEAD, "releases"]
    assert found.json()["releases"] == [
        {
            "version": 1,
            "image": "nginx:1.27",
            "status": "superseded",
            "created_at": "2026-09-21T14:13:20.120000001Z",
            "manifest": "e30=",
        },
        {
            "version": 2,
            "image": "",
            "status": "failed",
            "created_at": "0001-01-01T00:00:00Z",
            "reason": "Unknown",
            "manifest": None,
        },
        {
            "version": 3,
            "image": "x",
            "status": "failed",
            "created_at": "0001-01-01T00:00:00Z",
            "reason": "UpdateFailed",
            "message": "update failed",
            "manifest": None,
        },
        {"version": 4, "image": "x", "status": "rebuilding", "created_at": "2026-09-21T14:13:20Z", "manifest": ""},
    ]
    assert list(found.json()["releases"][2])[-1] == "manifest"


def test_ta57_no_release_is_an_empty_list(get, lease, backends):
    for nothing in ([], None):
        backends.one.says(ROUTES["releases"], nothing)
        assert b'"releases":[]' in get("releases").content


@pytest.mark.parametrize(
    ("asked", "versions"),
    [
        ("", [1, 2, 3, 4]),
        ("?limit=", [1, 2, 3, 4]),
        ("?limit=2", [3, 4]),
        ("?limit=1000", [1, 2, 3, 4]),
        ("?before=3", [1, 2]),
        ("?before=1", []),
        ("?before=4&limit=1", [3]),
        ("?limit=1&before=99", [4]),
    ],
)
def test_a_long_history_is_read_in_parts(asked, versions, get, lease, backends):
    backends.one.says(ROUTES["releases"], ROWS)
    assert [one["version"] for one in get(f"releases{asked}").json()["releases"]] == versions


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ("limit=0", "limit must be an integer from 1 to 1000"),
        ("limit=1001", "limit must be an integer from 1 to 1000"),
        ("limit=x", "limit must be an integer from 1 to 1000"),
        ("before=0", "before must be a positive integer"),
        ("before=-1", "before must be a positive integer"),
        ("before=1e3", "before must be a positive integer"),
    ],
)
def test_a_part_must_be_named_by_numbers(asked, text, get, lease):
    assert get(f"releases?{asked}").json() == envelope(text, 400)


BUSY = (503, b'{"error":"busy","code":"insufficient_resources"}')


def test_ta133_a_busy_backend_is_no_broken_one(get, lease, backends, house):
    """Only backends of the current dialect have a word for it."""
    one = house.FRED.backends[0].model_copy(update={"contract": "current"})
    house.FRED = house.FRED.model_copy(update={"backends": (one, house.FRED.backends[1])})
    backends.one.answers[ROUTES["logs"]] = BUSY
    for _ in range(6):
        found = get("logs")
        assert found.status_code == 503
        assert found.content == b'{"error":"log response capacity exhausted","code":503}'
        assert found.headers["Retry-After"] == "1"
    assert breaker.of("docker-1").enter() is not None


def test_an_older_backends_503_is_a_failure(get, lease, backends):
    backends.one.answers[ROUTES["logs"]] = BUSY
    assert get("logs").json() == envelope("internal server error", 500)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1&a=2", ["1", "2"]),
        ("A=1&b=2", []),
        ("a", [""]),
        ("a=b=c", ["b=c"]),
        ("%61=x+y%20z", ["x y z"]),
        ("a=%ff", ["\N{REPLACEMENT CHARACTER}"]),
        ("a=1%&a=2", ["2"]),
        ("%=1&a=2", ["2"]),
        ("a=1;a=2&a=3", ["3"]),
        ("&&a=1&", ["1"]),
    ],
)
def test_a_query_is_read_as_the_peers_read_it(text, expected):
    assert query.values(text, "a") == expected
