"""The body of `connection`, and whom it asks."""

import uuid

import pytest

from leases.models import Lease
from tenants_api import answers
from tests.tenants_api.calls import PROVIDER, SKU, envelope
from tests.tenants_api.placed import placed
from tests.tenants_api.vectors import ALICE, LEASE

pytestmark = pytest.mark.django_db
INFO = {
    "host": "node7.example.net",
    "instances": [
        {
            "instance_index": 0,
            "container_id": "9f3",
            "image": "nginx:1.27",
            "status": "running",
            "fqdn": "w0.example.net",
            "ports": {"80/tcp": {"host_ip": "0.0.0.0", "host_port": "32768"}},
        },
        {"instance_index": 1, "fqdn": "w1.example.net"},
    ],
    "metadata": {"token": "t", "backend": "docker-1", "tenant": ALICE},
    "unknown_field": 1,
}


def test_ta38_the_whole_body(ask, lease, backends):
    backends.one.says(f"/info/{LEASE}", INFO)
    found = ask("connection")
    assert found.raw.decode() == (
        f'{{"lease_uuid":"{LEASE}","tenant":"{ALICE}","provider_uuid":"{PROVIDER}","connection":'
        '{"host":"node7.example.net","fqdn":"w0.example.net","instances":['
        '{"instance_index":0,"container_id":"9f3","image":"nginx:1.27","status":"running","fqdn":"w0.example.net",'
        '"ports":{"80/tcp":{"host_ip":"0.0.0.0","host_port":32768}}},'
        '{"instance_index":1,"fqdn":"w1.example.net"}],'
        f'"metadata":{{"backend":"docker-1","tenant":"{ALICE}","token":"t"}}}}}}\n'
    )


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", 0),
        ("abc", 0),
        ("80/tcp", 0),
        ("32768", 32768),
        ("+80", 80),
        ("-1", 0),
        ("65536", 0),
        ("8 0", 0),
        ("٨", 0),
        ("1" * 5000, 0),
    ],
)
def test_ta39_ports_become_numbers(text, number):
    assert answers.port_number(text) == number


def test_ta40_names_come_from_the_first_instance_at_need(ask, lease, backends):
    services = {
        "b": {"fqdn": "own.example", "instances": [{"instance_index": 0, "fqdn": "other.example"}]},
        "a": {"instances": [{"instance_index": 0, "fqdn": "a0.example"}, {"instance_index": 1, "fqdn": "a1.example"}]},
        "c": {},
    }
    backends.one.says(f"/info/{LEASE}", {"host": "h", "services": services})
    found = ask("connection").body["connection"]
    assert "fqdn" not in found
    assert list(found["services"]) == ["a", "b", "c"]
    assert [found["services"][name].get("fqdn") for name in "abc"] == ["a0.example", "own.example", None]
    assert found["services"]["c"] == {"instances": []}


def test_ta40_an_own_name_beats_that_of_an_instance(ask, lease, backends):
    backends.one.says(f"/info/{LEASE}", {**INFO, "fqdn": "own.example"})
    assert ask("connection").body["connection"]["fqdn"] == "own.example"


@pytest.mark.parametrize("info", [{}, None])
def test_ta41_an_empty_info(info, ask, lease, backends):
    backends.one.says(f"/info/{LEASE}", info)
    assert ask("connection").body["connection"] == {"host": ""}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((404, b"{}"), (404, "lease not yet provisioned")),
        ((500, b'{"error":"host /var/x"}'), (500, "internal server error")),
        ((200, b"{"), (500, "internal server error")),
        ((200, b'{"host":"' + b"x" * 2**20 + b'"}'), (500, "internal server error")),
    ],
    ids=["404", "500", "bad JSON", "too long"],
)
def test_ta42_a_backend_that_has_no_answer(answer, expected, ask, lease, backends):
    backends.one.answers[f"/info/{LEASE}"] = answer
    found = ask("connection")
    assert (found.status, found.body) == (expected[0], envelope(expected[1], expected[0]))


@pytest.mark.parametrize(
    ("placement", "sku", "asked"),
    [
        ("docker-2", None, "two"),
        ("docker-1", SKU, "one"),
        (None, SKU, "two"),
        (None, uuid.UUID(int=1), "one"),
        (None, None, "one"),
    ],
)
def test_ta43_whom_a_connection_asks(placement, sku, asked, ask, lease, backends):
    if sku:
        Lease.objects.update(items=[{"sku": str(sku), "quantity": 1}])
    if placement:
        placed(lease, placement)
    for one in backends.all:
        one.says(f"/info/{LEASE}", {"host": one.name})
    assert ask("connection").body["connection"]["host"] == getattr(backends, asked).name
    assert sum(len(one.calls) for one in backends.all) == 1


def test_ta43_an_owner_that_is_not_configured_is_not_replaced(ask, lease, backends):
    placed(lease, "old-name")
    found = ask("connection")
    assert (found.status, found.body) == (503, envelope("service unavailable", 503))
    assert [one.calls for one in backends.all] == [[], []]


@pytest.mark.parametrize("status", ["conflict", "quarantined"])
def test_a_lease_without_one_settled_owner_has_no_connection(status, ask, lease, backends):
    placed(lease, status=status)
    assert ask("connection").body == envelope("service unavailable", 503)
