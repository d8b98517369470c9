"""The agent over real HTTP: authentication, texts and statuses of the contract."""

import json
import time

import pytest

from backends.client import BackendClient
from backends.contract import Absent
from fred import signing
from fred.http import Request, fetch
from tests.backends.servers import LEASE, SECRET, mock_agent, peer, served, target, uuid_number
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def url():
    with served(mock_agent()) as address:
        yield address


@pytest.fixture(scope="module")
def listener():
    with peer() as server:
        yield server


def call(url, path, body=None, *, key=SECRET, at=None, method=None, signed_target=None, signed_body=None, header=None):
    raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    if header is None:
        header = signing.sign(
            key,
            timestamp=int(time.time()) if at is None else at,
            method=method or ("GET" if raw is None else "POST"),
            target=signed_target or path,
            body=(raw or b"") if signed_body is None else signed_body,
        )
    headers = (("X-Fred-Signature", header),) if header else ()
    response = fetch(Request(url + path, headers, raw, timeout=10, max_body=10**8))
    assert response.error is None, response.error
    return response.status, json.loads(response.body) if response.body else None


def provision(number=1, **changes):
    body = {
        "lease_uuid": str(uuid_number(number)),
        "items": [{"sku": "s", "quantity": 1}],
        "callback_url": "http://127.0.0.1:9/callbacks/provision",
        **changes,
    }
    return {name: value for name, value in body.items() if value is not None}


ROUTES = [
    ("/provision", {}),
    ("/deprovision", {}),
    (f"/info/{LEASE}", None),
    (f"/provisions/{LEASE}", None),
    ("/provisions", None),
    ("/retentions", None),
    (f"/logs/{LEASE}", None),
]


@pytest.mark.parametrize(("path", "body"), ROUTES)
def test_c1_c2_every_contract_route_wants_a_signature(url, path, body):
    assert call(url, path, body, header="") == (401, {"error": "missing signature"})
    assert call(url, path, body, key="x" * 32) == (401, {"error": "invalid signature"})


@pytest.mark.parametrize(("shift", "refused"), [(-301, True), (-298, False), (63, True), (58, False)])
def test_c3_c4_freshness(url, shift, refused):
    status, _ = call(url, "/provisions", at=int(time.time()) + shift)
    assert (status == 401) is refused


def test_bc6_a_signature_is_bound_to_path_method_query_and_body(url):
    gone = (401, {"error": "invalid signature"})
    assert call(url, "/deprovision", {}, signed_target="/provision") == gone
    assert call(url, f"/info/{LEASE}", signed_target=f"/info/{uuid_number(1)}") == gone
    assert call(url, "/provision", {}, method="GET") == gone
    assert call(url, "/provision", {}, method="post") == gone
    assert call(url, "/provisions?limit=2", signed_target="/provisions?limit=1") == gone
    assert call(url, "/provision", {}, signed_body=b"{ }") == gone


def test_c6_to_c8_forms_of_the_header(url):
    good = signing.sign(SECRET, timestamp=int(time.time()), method="GET", target="/provisions")
    head, tail = good.split(",")
    assert call(url, "/provisions", header=good.replace(tail, "sha256=" + tail[7:].upper()))[0] == 200
    assert call(url, "/provisions", header=f" {head} ,  {tail} ")[0] == 200
    for broken in (f"{good},x=1", f"{tail},{head}", f"t=abc,{tail}", "junk"):
        assert call(url, "/provisions", header=broken)[0] == 401


def test_bc10_the_body_cap_comes_after_the_header_and_before_the_signature():
    agent = mock_agent()
    agent.max_body = 100
    with served(agent) as address:
        assert call(address, "/provision", b"x" * 100, header="junk")[0] == 401
        assert call(address, "/provision", b"x" * 101, header="junk") == (413, {"error": "request body too large"})
        assert call(address, "/provision", b"x" * 200, header="")[0] == 401


def test_c10_health_and_stats_are_open(url):
    assert call(url, "/health", header="") == (200, {"status": "healthy"})
    assert call(url, "/stats", header="")[0] == 200


def test_authentication_can_be_switched_off():
    agent = mock_agent()
    agent.require_hmac = False
    with served(agent) as address:
        assert call(address, "/provisions", header="") == (200, {"provisions": []})


def test_bc9_both_keys_of_a_rotation_are_accepted():
    agent = mock_agent()
    agent.secrets = (SECRET, "n" * 32)
    with served(agent) as address:
        assert [call(address, "/provisions", key=key)[0] for key in (SECRET, "n" * 32, "m" * 32)] == [200, 200, 401]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "invalid request body"),
        (b"[]", "invalid request body"),
        (b"", "invalid request body"),
        (b'{"lease_uuid":5}', "invalid request body"),
        (provision(lease_uuid=None), "lease_uuid is required"),
        (provision(lease_uuid="x"), "lease_uuid must be a valid UUID"),
        (provision(callback_url=None), "callback_url is required"),
        (provision(callback_url="ftp://h/x"), "invalid callback_url: scheme must be http or https"),
        (provision(callback_url="http:///x"), "invalid callback_url: host is required"),
        (
            provision(callback_url="http://169.254.169.254/x"),
            "invalid callback_url: link-local addresses are not allowed",
        ),
        (provision(items=None), "items is required"),
        (provision(items=[]), "items is required"),
        (provision(items=None, callback_url=None), "callback_url is required"),
        (
            provision(items=[{"sku": "s", "quantity": 1025}]),
            'item 0 (SKU "s", service "") quantity 1025 out of range [0, 1024]',
        ),
    ],
)
def test_c20_bad_provisions(url, body, text):
    assert call(url, "/provision", body) == (400, {"error": text})


def test_c24_bad_names_are_an_invalid_manifest(url):
    status, body = call(url, "/provision", provision(items=[{"sku": "s", "quantity": 1}] * 2))
    assert (status, body["validation_code"]) == (400, "invalid_manifest")


def test_c21_unknown_fields_are_ignored(url):
    assert call(url, "/provision", provision(21, future={"x": 1}))[0] == 202


@pytest.mark.parametrize(("body", "text"), [(b"{", "invalid request body"), ({}, "lease_uuid is required")])
def test_bad_deprovisions(url, body, text):
    assert call(url, "/deprovision", body) == (400, {"error": text})


def test_bc116_an_unknown_lease_is_deprovisioned_at_once(url):
    assert call(url, "/deprovision", {"lease_uuid": str(uuid_number(999))}) == (200, {"status": "ok"})


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("/nowhere", None, 404, "not found"),
        ("/", None, 404, "not found"),
        ("/info/", None, 404, "not found"),
        (f"/info/{LEASE}/x", None, 404, "not found"),
        ("/provision", None, 405, "method not allowed"),
        ("/health", {}, 405, "method not allowed"),
        (f"/info/{LEASE}", None, 404, "not provisioned"),
        ("/info/x", None, 404, "not provisioned"),
        (f"/provisions/{LEASE}", None, 404, "not provisioned"),
        (f"/logs/{LEASE}", None, 404, "not provisioned"),
        ("/provisions?limit=abc", None, 400, 'invalid limit "abc": must be a non-negative integer'),
        ("/retentions?limit=-1", None, 400, 'invalid limit "-1": must be a non-negative integer'),
        ("/provisions?continue=x", None, 400, 'invalid continue token "x": must be a UUID'),
        ("/provisions?lease_uuid=", None, 400, "invalid lease_uuid"),
        (f"/provisions?lease_uuid={LEASE}&lease_uuid=x", None, 400, "invalid lease_uuid"),
        (
            "/provisions?" + "&".join(f"lease_uuid={uuid_number(n)}" for n in range(101)),
            None,
            400,
            "lease_uuid count must be between 1 and 100",
        ),
        (f"/logs/{LEASE}?tail=0", None, 400, "tail must be a positive integer"),
        (f"/logs/{LEASE}?tail=-1", None, 400, "tail must be a positive integer"),
        (f"/logs/{LEASE}?tail=x", None, 400, "tail must be a positive integer"),
        (f"/logs/{LEASE}?tail=10001", None, 400, "tail must not exceed 10000"),
    ],
)
def test_texts_of_refusals(url, path, body, status, text):
    assert call(url, path, body) == (status, {"error": text})


def test_c40_lookup_leaves_out_what_is_not_there(url):
    call(url, "/provision", provision(40))
    asked = "&".join(f"lease_uuid={uuid_number(n)}" for n in (41, 40, 40))
    status, body = call(url, f"/provisions?{asked}")
    assert (status, [row["lease_uuid"] for row in body["provisions"]]) == (200, [str(uuid_number(40))])
    assert call(url, f"/provisions?lease_uuid={uuid_number(41)}") == (200, {"provisions": []})


def test_c44_no_retentions_is_an_empty_list(url):
    assert call(url, "/retentions") == (200, {"retentions": []})


class Broken:
    """A driver whose every call fails in a way nobody foresaw."""

    def __getattr__(self, name):
        async def fails(*_arguments, **_named):
            if name not in ("start", "stop"):
                raise RuntimeError("/var/lib/secret/path is broken")

        return fails


def test_a_fault_says_nothing_about_itself():
    agent = mock_agent()
    agent.backend = Broken()
    with served(agent) as address:
        for path, body in [*ROUTES[2:], ("/provision", provision()), ("/deprovision", {"lease_uuid": str(LEASE)})]:
            assert call(address, path, body) == (500, {"error": "internal server error"})


def test_c41_our_client_walks_our_agent():
    agent = mock_agent()
    with served(agent) as address:
        numbers = [5, 1, 4, 2, 3, 6]
        for number in numbers:
            assert call(address, "/provision", provision(number))[0] == 202
        client = BackendClient(target(address, page_size=2))
        assert [row.lease_uuid for row in client.provisions().items] == [uuid_number(n) for n in sorted(numbers)]
        call(address, "/deprovision", {"lease_uuid": str(uuid_number(4))})
        assert len(client.provisions().items) == 5
        wait_until(lambda: client.provision_info(uuid_number(1)).status == "ready")
        assert client.provision_info(uuid_number(4)) == Absent()
        assert client.info(uuid_number(1)).metadata["backend"] == "mock-backend"
        assert client.logs(uuid_number(1)) == {"app/0": "mock log output\n"}
        assert client.health().healthy
        assert client.stats().cpu_ratio is None
