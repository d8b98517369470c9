"""What runs for some leases, told to everybody: whom it asks, what it merges, and what must never be in it."""

import json
import threading
import uuid

import pytest

from tenants_api import workloads
from tests.factories.leases import LeaseFactory
from tests.factories.placements import OperationFactory
from tests.tenants_api.calls import PROVIDER, envelope
from tests.tenants_api.placed import placed
from tests.tenants_api.vectors import ALICE, LEASE

pytestmark = pytest.mark.django_db
OTHER = "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5c"


def path(*leases):
    return "/provisions?" + "&".join(f"lease_uuid={one}" for one in sorted(leases))


def row(lease=LEASE, **fields):
    return {"lease_uuid": lease, "status": "ready", "created_at": "2026-09-21T14:13:20.5Z", **fields}


@pytest.fixture
def look_up(client, house):
    def call(*leases, raw=None):
        query = "&".join(f"lease_uuid={one}" for one in leases) if raw is None else raw
        return client.get(f"/workloads?{query}")

    return call


@pytest.mark.parametrize("raw", ["", "limit=1", "LEASE_UUID=x", "lease_uuid=a;b"])
def test_ta101_without_a_lease(raw, look_up):
    found = look_up(raw=raw)
    assert (found.status_code, found.json()) == (400, envelope("lease_uuid query parameter required", 400))


def test_ta101_more_than_a_hundred_duplicates_counted(look_up, backends):
    found = look_up(*[LEASE] * 101)
    assert (found.status_code, found.json()) == (400, envelope("too many lease_uuid values (max 100)", 400))
    assert look_up(*[LEASE] * 100).status_code == 200
    assert backends.one.calls == [path(LEASE)]


@pytest.mark.parametrize("text", ["", "x", "0190a1b2"])
def test_ta101_what_is_no_uuid(text, look_up, backends):
    found = look_up(LEASE, text)
    assert (found.status_code, found.json()) == (400, envelope("invalid lease_uuid", 400))
    assert backends.one.calls == []


def test_too_many_come_before_a_bad_one(look_up):
    assert look_up(*["x"] * 101).json() == envelope("too many lease_uuid values (max 100)", 400)


def test_ta22_only_get(client, house):
    found = client.post(f"/workloads?lease_uuid={LEASE}")
    assert (found.status_code, found.headers["Allow"]) == (405, "GET, HEAD")


def test_ta101_nothing_found_is_empty_not_null(look_up):
    assert look_up(LEASE).content == b'{"workloads":{},"warnings":[]}\n'


def test_ta101_the_same_lease_three_times_is_asked_once(look_up, backends):
    look_up(LEASE, LEASE.upper(), LEASE.replace("-", ""))
    assert backends.one.calls == [path(LEASE)]


def test_the_whole_answer(look_up, backends):
    items = [
        {"sku": "s1", "quantity": 2, "service_name": "web"},
        {"sku": "s2", "quantity": 1, "service_name": "db"},
    ]
    backends.one.says(
        path(LEASE, OTHER),
        {
            "provisions": [
                row(
                    OTHER,
                    items=items,
                    service_images={"web": "nginx:1.25@sha256:ab", "x": "y"},
                    image="ignored",
                    tenant=ALICE,
                    partition="blue",
                    message="/var/lib/secret",
                    provider_uuid=str(PROVIDER),
                ),
                row(status="hibernating", created_at=None, sku="s3", image="registry.local:5000/a/b:v1", quantity=3),
            ]
        },
    )
    assert look_up(OTHER, LEASE).content.decode() == (
        '{"workloads":{'
        f'"{LEASE}":{{"status":"hibernating","created_at":"0001-01-01T00:00:00Z","backend_name":"docker-1",'
        '"items":[{"sku":"s3","image":"registry.local:5000/a/b","count":3}]},'
        f'"{OTHER}":{{"status":"ready","created_at":"2026-09-21T14:13:20.5Z","backend_name":"docker-1",'
        '"items":[{"service_name":"web","sku":"s1","image":"nginx","count":2},'
        '{"service_name":"db","sku":"s2","count":1}]}},'
        '"warnings":[]}\n'
    )


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("nginx:1.25@sha256:ab", "nginx"),
        ("registry.local:5000/org/repo", "registry.local:5000/org/repo"),
        ("registry.local:5000/org/repo:v1@sha256:ab", "registry.local:5000/org/repo"),
        ("[::1]:5000/foo:v1", "[::1]:5000/foo"),
        ("GHCR.IO/Org/Repo:v1", "GHCR.IO/Org/Repo"),
        ("nginx:", "nginx"),
        ("nginx@", "nginx"),
        ("foo:1.25/bar", "foo:1.25/bar"),
        ("@sha256:ab", ""),
        ("", ""),
    ],
)
def test_ta101_an_image_without_its_version(image, expected):
    assert workloads.repository(image) == expected


def test_ta101_an_unknown_image_has_no_key(look_up, backends):
    backends.one.says(path(LEASE), {"provisions": [row(sku="s", quantity=1, image="@sha256:ab")]})
    assert look_up(LEASE).json()["workloads"][LEASE]["items"] == [{"sku": "s", "count": 1}]


@pytest.mark.parametrize("answer", [(500, b"{}"), (200, b"?"), (503, b"")], ids=str)
def test_ta101_a_failing_backend_is_a_warning(answer, look_up, backends):
    backends.one.answers[path(LEASE)] = answer
    backends.two.says(path(LEASE), {"provisions": [row()]})
    found = look_up(LEASE)
    assert found.status_code == 200
    assert found.json()["warnings"] == ['backend "docker-1" unavailable']
    assert found.json()["workloads"][LEASE]["backend_name"] == "docker-2"


def test_ta101_all_failing_is_still_an_answer(look_up, backends):
    for one in backends.all:
        one.close()
    assert look_up(LEASE).json() == {
        "workloads": {},
        "warnings": ['backend "docker-1" unavailable', 'backend "docker-2" unavailable'],
    }


def test_backends_are_asked_at_once(look_up, backends):
    both = threading.Barrier(2, timeout=10)

    def answer():
        both.wait()
        return 404, b"{}"

    for one in backends.all:
        one.answers[path(LEASE)] = answer
    assert look_up(LEASE).json() == {"workloads": {}, "warnings": []}


def test_a_silent_backend_costs_no_more_than_the_deadline(look_up, backends, monkeypatch):
    from tenants_api import backend_reads

    client = backend_reads.client
    monkeypatch.setattr(backend_reads, "client", lambda target: client(target, 0.1))
    held = threading.Event()
    backends.one.answers[path(LEASE)] = lambda: held.wait(30) and (404, b"{}")
    assert look_up(LEASE).json()["warnings"] == ['backend "docker-1" unavailable']
    held.set()


def test_of_two_reports_of_a_backend_the_first_is_kept(look_up, backends):
    backends.two.says(path(LEASE), {"provisions": [row(status="ready"), row(status="failed")]})
    assert look_up(LEASE).json()["workloads"][LEASE]["status"] == "ready"


def test_of_two_backends_the_first_of_the_configuration_is_kept_however_slow_it_is(look_up, backends):
    second = threading.Event()

    def slow():
        second.wait(10)
        return 200, json.dumps({"provisions": [row()]}).encode()

    def fast():
        second.set()
        return slow()

    backends.one.answers[path(LEASE)], backends.two.answers[path(LEASE)] = slow, fast
    assert look_up(LEASE).json()["workloads"][LEASE]["backend_name"] == "docker-1"


def test_ta136_a_settled_lease_is_asked_only_at_its_owner(look_up, backends, lease):
    placed(lease)
    look_up(LEASE, OTHER)
    assert backends.one.calls == [path(LEASE, OTHER)]
    assert backends.two.calls == [path(OTHER)]


def test_ta136_an_open_attempt_unsettles_it(look_up, backends, lease):
    placed(lease)
    OperationFactory(lease=lease)
    look_up(LEASE)
    assert backends.one.calls == backends.two.calls == [path(LEASE)]


def test_ta136_an_owner_that_is_not_configured_is_one_warning_for_all_its_leases(look_up, backends, lease):
    placed(lease, "gone-1")
    placed(LeaseFactory(uuid=uuid.UUID(OTHER)), "gone-1")
    assert look_up(LEASE, OTHER).json() == {"workloads": {}, "warnings": ['backend "gone-1" unavailable']}
    assert (backends.one.calls, backends.two.calls) == ([], [])


def test_ta136_an_answer_with_a_lease_nobody_asked_for_is_dropped_whole(look_up, backends):
    backends.one.says(path(LEASE), {"provisions": [row(), row(OTHER)]})
    assert look_up(LEASE).json() == {"workloads": {}, "warnings": ['backend "docker-1" unavailable']}
