"""Requests and point reads: signed, capped, and silence is never absence."""

import json
from datetime import UTC, datetime

import pytest

from backends.client import BackendClient, deprovision_request, provision_request
from backends.contract import Absent, BackendUnavailable, Dialect, LeaseItem, LoadStats, ProvisionStatus, Unknown
from backends.releases import ReleaseInfo
from backends.requests import stats_request
from fred import signing
from fred.http import Response
from tests.backends.client_reads import Listening, read, row
from tests.backends.servers import LEASE, SECRET, peer, says, spec, target


def test_requests_are_signed_over_the_whole_target():
    """P1"""
    with peer(says(200, {"provisions": []})) as server:
        BackendClient(target(server.url + "/prefix/")).provisions()
        got = server.got[0]
    assert got.target == "/prefix/provisions?limit=1000"
    timestamp, _ = signing.parse(got.headers["x-fred-signature"])
    verdict = signing.verify(
        got.headers["x-fred-signature"], keys=[SECRET], now=timestamp, method="GET", target=got.target
    )
    assert verdict.ok


@pytest.mark.parametrize(
    ("url", "sent_to", "signed"),
    [
        ("http://h:1", "http://h:1/stats", "/stats"),
        ("https://h/", "https://h/stats", "/stats"),
        ("http://h/a/b//", "http://h/a/b/stats", "/a/b/stats"),
        ("http://h/a?b=c", "http://h/a?b=c/stats", "/a?b=c/stats"),
        ("http://[::1]:9/é", "http://[::1]:9/é/stats", "/é/stats"),
    ],
)
def test_what_stands_before_a_path_is_signed_from_the_host_on(url, sent_to, signed):
    made = stats_request(target(url))
    header = dict(made.headers)[signing.HEADER]
    timestamp, _ = signing.parse(header)
    assert made.url == sent_to
    assert signing.verify(header, keys=[SECRET], now=timestamp, method="GET", target=signed).ok


@pytest.mark.parametrize(("limit", "seconds"), [(None, 5.0), (0.5, 0.5), (60.0, 5.0)])
def test_a_read_takes_no_longer_than_its_backend_and_its_caller_allow(limit, seconds):
    asked = []

    def note(request):
        asked.append(request.timeout)
        return Response(request.tag, 404, b"", None, 0.0)

    client = BackendClient(target("http://h"), limit=limit, fetch=note)
    client.info(LEASE)
    client.provision_info(LEASE)
    client.logs(LEASE)
    client.releases(LEASE)
    client.lookup([LEASE])
    assert asked == [seconds] * 5
    client.stats(timeout=6.0)
    assert asked[5:] == [6.0 if limit is None else min(limit, 6.0)], "a time of its own may be longer than the usual"


def test_without_a_key_nothing_is_signed():
    """P2"""
    _, got = read(says(200, {"provisions": []}), "provisions", secret="")
    assert "x-fred-signature" not in got[0].headers


def test_a_targets_repr_hides_its_key():
    assert SECRET not in repr(target("http://h"))


def test_provision_request_holds_what_the_contract_names():
    made = provision_request(target("http://h:1/x"), spec(payload=b"\x00\xff", payload_hash="ab"), tag=3)
    assert (made.url, made.tag, made.timeout) == ("http://h:1/x/provision", 3, 5.0)
    assert json.loads(made.body) == {
        "lease_uuid": str(LEASE),
        "tenant": "manifest1tenant",
        "provider_uuid": "01987000-aaaa-7bbb-8ccc-ddddeeeeffff",
        "items": [{"sku": "sku-1", "quantity": 2}],
        "callback_url": "http://127.0.0.1:9/callbacks/provision",
        "payload": "AP8=",
        "payload_hash": "ab",
    }


def test_optional_fields_are_left_out():
    made = provision_request(target("http://h"), spec(items=(LeaseItem("s", 1, "web", "a.example"),)))
    assert json.loads(made.body)["items"] == [
        {"sku": "s", "quantity": 1, "service_name": "web", "custom_domain": "a.example"}
    ]
    assert "payload" not in json.loads(made.body)


def test_a_teardown_gets_the_time_an_older_backend_needs():
    assert deprovision_request(target("http://h"), LEASE).timeout == 90
    assert deprovision_request(target("http://h", dialect=Dialect.CURRENT), LEASE).timeout == 5


def test_info_reads_what_it_knows_and_drops_the_rest():
    body = {
        "host": "h",
        "services": {"web": {"instances": [{"instance_index": 0, "ports": {"80/tcp": {"host_port": "31000"}}}]}},
        "metadata": {"k": "v"},
        "new": [1],
        "instances": None,
    }
    info, got = read(says(200, body), "info", LEASE)
    assert got[0].target == f"/info/{LEASE}"
    assert (info.host, info.metadata, info.instances) == ("h", {"k": "v"}, ())
    assert info.services["web"].instances[0].ports["80/tcp"].host_port == "31000"


@pytest.mark.parametrize("method", ["info", "provision_info", "logs"])
def test_only_an_exact_404_is_absence(method):
    assert read(says(404, {"error": "not provisioned"}), method, LEASE)[0] == Absent()


@pytest.mark.parametrize("method", ["info", "provision_info", "logs"])
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(says(500, {"error": "x"}), id="500"),
        pytest.param(says(503, b""), id="503"),
        pytest.param(says(410, b""), id="410"),
        pytest.param(says(204, b""), id="204"),
        pytest.param(says(200, b""), id="empty"),
        pytest.param(says(200, b"<html>"), id="html"),
        pytest.param(says(200, b"[]"), id="list"),
        pytest.param(says(200, {"lease_uuid": 5, "host": 5, "web/0": 5}), id="wrong types"),
        pytest.param(says(302, headers="Location: /\r\n"), id="redirect"),
        pytest.param(lambda _got: None, id="cut"),
    ],
)
def test_every_other_answer_is_unknown(method, script):
    assert isinstance(read(script, method, LEASE)[0], Unknown)


def test_a_point_read_about_another_lease_is_no_answer():
    assert isinstance(read(says(200, row(1)), "provision_info", LEASE)[0], Unknown)


def test_bc35_odd_values_of_a_row_are_read_as_the_contract_says():
    """P36"""
    body = {
        "lease_uuid": str(LEASE).upper(),
        "status": "melting",
        "created_at": "2026-03-02T10:15:00.123456789+01:00",
        "retained_until": "0001-01-01T00:00:00Z",
        "provider_uuid": "",
        "reason": "Foo",
        "message": "a\0b",
        "items": None,
        "service_images": None,
        "lifecycle_generation": {"kind": "typed"},
        "unheard_of": {},
    }
    info, _ = read(says(200, body), "provision_info", LEASE)
    assert (info.status, info.reason, info.retained_until) == (ProvisionStatus.UNKNOWN, "Foo", None)
    assert info.created_at == datetime(2026, 3, 2, 9, 15, 0, 123456, tzinfo=UTC)
    assert (info.provider_uuid, info.message, info.items) == (None, "ab", ())


def test_a_failed_row_without_a_reason_says_unknown():
    info, _ = read(says(200, {"lease_uuid": str(LEASE), "status": "failed"}), "provision_info", LEASE)
    assert info.reason == "Unknown"


def test_bc34_releases_are_read_as_the_contract_says():
    rows = [
        {
            "version": 1,
            "image": "stack",
            "status": "superseded",
            "created_at": "2026-01-01T00:00:00Z",
            "manifest": "e30=",
        },
        {"version": 2, "image": "", "status": "failed", "created_at": "0001-01-01T00:00:00Z", "manifest": None, "x": 1},
    ]
    with peer(says(200, rows)) as server:
        first, second = BackendClient(target(server.url)).releases(LEASE)
    assert (first.version, first.image, first.manifest) == (1, "stack", b"{}")
    assert first.created_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert (second.reason, second.created_at, second.manifest) == ("Unknown", None, None)
    for body, expected in ((b"null", ()), (b"[]", ()), (b'[{"version":3}]', (ReleaseInfo(3),))):
        with peer(says(200, body)) as server:
            assert BackendClient(target(server.url)).releases(LEASE) == expected
    for body in (b"{}", b'[{"version":"1"}]', b'[{"version":1,"status":"x","manifest":"?"}]'):
        with peer(says(200, body)) as server:
            assert isinstance(BackendClient(target(server.url)).releases(LEASE), Unknown)


SIZES = {
    "info": (1024, "info", b'{"host":"%s"}'),
    "provision": (1024, "provision_info", b'{"lease_uuid":"' + str(LEASE).encode() + b'","message":"%s"}'),
    "page": (8 * 1024, "provisions", b'{"provisions":[],"x":"%s"}'),
    "lookup": (8 * 1024, "lookup", b'{"provisions":[],"x":"%s"}'),
    "logs": (16 * 1024, "logs", b'{"web/0":"%s"}'),
    "releases": (8 * 1024, "releases", b'[{"version":1,"status":"active","message":"%s"}]'),
    "stats": (1024, "stats", b'{"x":"%s"}'),
    "retentions": (1024, "retentions", b'{"retentions":[],"x":"%s"}'),
}


@pytest.mark.parametrize("name", SIZES)
def test_p3_bc31_an_answer_of_exactly_its_cap_passes_and_one_byte_more_does_not(name):
    kibibytes, method, frame = SIZES[name]
    cap, gate = kibibytes * 1024, Listening()
    arguments = {
        "lookup": ([LEASE],),
        "info": (LEASE,),
        "provision_info": (LEASE,),
        "logs": (LEASE,),
        "releases": (LEASE,),
    }
    for more, fits in ((0, True), (1, False)):
        body = frame % (b"a" * (cap + more - len(frame) + 2))
        assert len(body) == cap + more
        with peer(says(200, body)) as server:
            client = BackendClient(target(server.url, timeout=20.0), gate)
            try:
                found = getattr(client, method)(*arguments.get(method, ()))
            except BackendUnavailable as error:
                found = Unknown(str(error))
        assert isinstance(found, Unknown) is not fits
        if not fits:
            assert f"response body too large: {cap + 1} bytes exceeds {cap} byte limit" in found.reason
    walks = method in {"provisions", "retentions"}
    assert gate.pulses == ([] if walks else ["success", "failure"])


def test_bc33_logs_may_be_null():
    assert read(says(200, b"null"), "logs", LEASE)[0] == {}
    found, got = read(says(200, {"web/0": "x"}), "logs", LEASE)
    assert (found, got[0].target) == ({"web/0": "x"}, f"/logs/{LEASE}?tail=100")


@pytest.mark.parametrize("body", [{}, {"total_cpu_cores": 0}])
def test_bc36_stats_without_a_total_are_no_signal(body):
    found, _ = read(says(200, body), "stats")
    assert found.cpu_ratio is None


def test_stats_that_are_not_served_are_unknown():
    assert isinstance(read(says(404, b""), "stats")[0], Unknown)
    assert isinstance(read(says(200, b'{"total_cpu_cores":NaN}'), "stats")[0], Unknown)
    assert read(says(200, {"total_cpu_cores": 4, "allocated_cpu_cores": 1}), "stats")[0] == LoadStats(4, 1)
