"""The OpenAPI document: exactly what the API promises, made from the code, served, and shown from local files."""

import ast
import re
from contextlib import closing
from pathlib import Path

import jsonschema
import orjson
import pytest
from django.core.management import call_command

from tenants_api import known_words, schema
from tests.tenants_api.calls import envelope
from tests.tenants_api.openapi import DOCUMENT, plain

LEASE = "/v1/leases/{lease_uuid}/"
TENANT = [{"tenantToken": []}]
READ = "400 401 403 404 410 429 500 503"
KEY = "header Idempotency-Key"
JSON = "application/json"

# Path, method, operation, tag, security, parameters, media type of the body, body, 2xx, refusals.
OPERATIONS = [
    (LEASE + "connection", "get", "getLeaseConnection", "leases", TENANT, [], None, "200 LeaseConnection", READ),
    (
        LEASE + "status",
        "get",
        "getLeaseStatus",
        "leases",
        TENANT,
        [],
        None,
        "200 LeaseStatus",
        READ.replace("410 ", ""),
    ),
    (LEASE + "provision", "get", "getLeaseProvision", "leases", TENANT, [], None, "200 LeaseProvision", READ),
    (LEASE + "logs", "get", "getLeaseLogs", "leases", TENANT, ["query tail"], None, "200 LeaseLogs", READ),
    (
        LEASE + "releases",
        "get",
        "listLeaseReleases",
        "leases",
        TENANT,
        ["query before", "query limit"],
        None,
        "200 LeaseReleases",
        READ,
    ),
    (
        LEASE + "events",
        "get",
        "streamLeaseEvents",
        "leases",
        [*TENANT, {"eventsToken": []}],
        ["header Last-Event-ID", "query since", "query token"],
        None,
        "101 LeaseStatusEvent, 200 text",
        "400 401 403 404 426 429 500 501 503",
    ),
    (
        LEASE + "data",
        "post",
        "uploadLeaseData",
        "leases",
        [{"payloadToken": []}],
        [KEY],
        "application/octet-stream binary",
        "202",
        "400 401 403 404 409 422 429 500 503 504",
    ),
    (
        LEASE + "restart",
        "post",
        "restartLease",
        "leases",
        TENANT,
        [KEY],
        None,
        "202 ActionAccepted",
        "400 401 403 404 409 410 422 429 500 503",
    ),
    (
        LEASE + "update",
        "post",
        "updateLease",
        "leases",
        TENANT,
        [KEY],
        f"{JSON} UpdateRequest",
        "202 ActionAccepted",
        "400 401 403 404 409 410 422 429 500 502 503",
    ),
    (
        LEASE + "restore",
        "post",
        "restoreLease",
        "leases",
        TENANT,
        [KEY],
        f"{JSON} RestoreRequest",
        "202 ActionAccepted",
        "400 401 403 404 409 410 422 429 500 502 503",
    ),
    (
        "/callbacks/provision",
        "post",
        "postProvisionCallback",
        "callbacks",
        [{"callbackSignature": []}],
        ["query lifecycle_id", "query operation_id"],
        f"{JSON} ProvisionCallback",
        "200",
        "400 401 429 500 503",
    ),
    (
        "/workloads",
        "get",
        "lookupWorkloads",
        "operations",
        [],
        ["query lease_uuid"],
        None,
        "200 WorkloadLookup",
        "400 429",
    ),
    ("/health", "get", "getHealth", "operations", [], [], None, "200 Health", ""),
    ("/readyz", "get", "getReadiness", "operations", [], [], None, "200 Health, 503 Health", "429"),
    ("/metrics", "get", "getMetrics", "operations", [], [], None, "200 text", "429"),
    ("/openapi.json", "get", "getOpenApi", "operations", [], [], None, "200 object", "429"),
]

# Property: type; a star means required.
SCHEMAS = {
    "Error": "error* code*:integer reason",
    "Problem": "error* code*:integer reason type title status:integer detail instance request_id error_code",
    "PortMapping": "host_ip* host_port*:integer",
    "Instance": "instance_index*:integer container_id image status fqdn ports:{PortMapping}",
    "Service": "fqdn instances*:[Instance]",
    "ConnectionDetails": "host* fqdn ports:{PortMapping} instances:[Instance] services:{Service} protocol metadata:{}",
    "LeaseConnection": "lease_uuid* tenant* provider_uuid* connection*:ConnectionDetails",
    "TerminalBudget": "verdict* consecutive_failures*:integer",
    "LeaseItem": "sku* quantity*:integer service_name custom_domain",
    "LeaseStatus": "lease_uuid* tenant* provider_uuid* state* requires_payload*:boolean payload_received*:boolean "
    "provisioning_started*:boolean meta_hash_hex provision_status reason message retained_until:date-time restore_hint "
    "partition fail_count:integer terminal_budget:TerminalBudget items:[LeaseItem]",
    "LeaseProvision": "lease_uuid* tenant* provider_uuid* status* fail_count*:integer terminal_budget:TerminalBudget "
    "reason message retained_until:date-time restore_hint partition items:[LeaseItem]",
    "LeaseLogs": "lease_uuid* tenant* provider_uuid* logs*:{}",
    "Release": "version*:integer image* status* created_at*:date-time manifest*:byte? reason message",
    "LeaseReleases": "lease_uuid* tenant* provider_uuid* releases*:[Release]",
    "LeaseStatusEvent": "lease_uuid* status* timestamp*:date-time error id gap:boolean",
    "ActionAccepted": "status*",
    "UpdateRequest": "payload*:byte",
    "RestoreRequest": "from_lease_uuid*",
    "ProvisionCallback": "lease_uuid* status* error backend maintenance_id maintenance_admitted_at backend_storage_id "
    "retained:boolean",
    "AccessToken": "tenant* lease_uuid* timestamp*:integer pub_key*:byte signature*:byte",
    "PayloadToken": "tenant* lease_uuid* timestamp*:integer pub_key*:byte signature*:byte meta_hash*",
    "HealthCheck": "status* message",
    "HealthStats": "in_flight_provisions*:integer",
    "Health": "status* provider_uuid* checks*:{HealthCheck} stats:HealthStats",
    "WorkloadItem": "sku* count*:integer service_name image",
    "Workload": "status* backend_name* created_at*:date-time items*:[WorkloadItem]",
    "WorkloadLookup": "workloads*:{Workload} warnings*:[]",
}


def described(schema):
    """A property's schema in the words of the table."""
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if schema["type"] == "array":
        return f"[{described(schema['items'])}]"
    if schema["type"] == "object":
        return f"{{{described(schema['additionalProperties'])}}}"
    word = schema.get("format", schema["type"])
    return ("" if word == "string" else word) + ("?" if schema.get("nullable") else "")


def test_ta114_the_document_is_what_the_code_makes(tmp_path):
    made = tmp_path / "openapi.json"
    call_command(
        "spectacular",
        urlconf="tenants_api.schema_urls",
        format="openapi-json",
        file=str(made),
        validate=True,
        fail_on_warn=True,
    )
    assert made.read_bytes() == schema.FILE.read_bytes(), (
        "write it anew: .venv/bin/python manage.py spectacular --urlconf tenants_api.schema_urls "
        "--format openapi-json --file tenants_api/openapi.json"
    )


def test_ta114_it_has_exactly_these_operations():
    assert DOCUMENT["openapi"] == "3.0.3"
    assert {(path, method) for path, methods in DOCUMENT["paths"].items() for method in methods} == {
        (path, method) for path, method, *_ in OPERATIONS
    }


def bodies(response):
    """What a response may be: components, text or object."""
    return {
        (described(media["schema"]) if media["schema"].get("type") != "object" else "object")
        if "json" in kind
        else kind.partition("/")[0]
        for kind, media in response.get("content", {}).items()
    }


@pytest.mark.parametrize("row", OPERATIONS, ids=lambda row: row[2])
def test_ta114_an_operation_is_as_promised(row):
    path, method, name, tag, security, parameters, body, good, bad = row
    operation = DOCUMENT["paths"][path][method]
    assert (operation["operationId"], operation["tags"], operation.get("security", [])) == (name, [tag], security)
    assert operation["summary"]
    assert operation["description"]
    found = sorted(f"{one['in']} {one['name']}" for one in operation.get("parameters", []))
    assert found == sorted([*(["path lease_uuid"] if "{" in path else []), *parameters])
    taken = operation.get("requestBody")
    if body is None:
        assert taken is None
    else:
        kind, _, type_ = body.partition(" ")
        assert (list(taken["content"]), taken["required"]) == ([kind], True)
        assert described(taken["content"][kind]["schema"]) == type_
    expected = {status: {"Error", "Problem"} for status in bad.split()}
    for one in good.split(", "):
        status, _, type_ = one.partition(" ")
        expected[status] = {type_} if type_ else set()
    if name == "streamLeaseEvents":  # faults of the upgrade are found by the server
        expected["400"] = expected["426"] = {"Error", "Problem", "text"}
    assert {status: bodies(response) for status, response in operation["responses"].items()} == expected


def test_ta114_headers_of_answers():
    for path, method, *_ in OPERATIONS:
        for status, response in DOCUMENT["paths"][path][method]["responses"].items():
            headers = response["headers"]
            assert headers["X-Request-ID"]["schema"] == {"type": "string"}
            assert ("Retry-After" in headers) == (status in {"429", "503"}), (path, status)
            replayed = path.endswith(("/restart", "/update", "/restore", "/data")) and status == "202"
            assert "Idempotency-Replayed" in headers or not replayed


def test_ta114_parameters_have_their_limits():
    def parameter(path, name, method="get"):
        listed = DOCUMENT["paths"][path][method]["parameters"]
        return next(one for one in listed if one["name"] == name)

    assert parameter(LEASE + "logs", "tail")["schema"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 10_000,
        "default": 100,
    }
    assert parameter(LEASE + "releases", "limit")["schema"] == {"type": "integer", "minimum": 1, "maximum": 1000}
    assert parameter(LEASE + "releases", "before")["schema"] == {"type": "integer", "minimum": 1}
    key = parameter(LEASE + "restart", "Idempotency-Key", "post")["schema"]
    assert (key["minLength"], key["maxLength"]) == (1, 255)
    leases = parameter("/workloads", "lease_uuid")
    assert (leases["explode"], leases["schema"]["minItems"], leases["schema"]["maxItems"]) == (True, 1, 100)
    pattern = parameter(LEASE + "status", "lease_uuid")["schema"]["pattern"]
    assert re.fullmatch(pattern.strip("^$"), "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b")


@pytest.mark.parametrize("name", SCHEMAS)
def test_ta114_a_type_is_as_promised(name):
    found = DOCUMENT["components"]["schemas"][name]
    expected = dict(one.partition(":")[::2] for one in SCHEMAS[name].split())
    assert {key: described(value) for key, value in found["properties"].items()} == {
        key.rstrip("*"): type_ for key, type_ in expected.items()
    }
    assert sorted(found["required"]) == sorted(key.rstrip("*") for key in expected if key.endswith("*"))
    assert "additionalProperties" not in found


def test_ta114_there_are_no_other_types_no_enumerations_and_these_schemes():
    components = DOCUMENT["components"]
    assert components["schemas"].keys() == SCHEMAS.keys()
    assert '"enum"' not in orjson.dumps(components["schemas"]).decode()
    assert components["schemas"]["LeaseStatus"]["properties"]["state"]["x-known-values"][1] == "LEASE_STATE_PENDING"
    assert {
        name: {key: value for key, value in one.items() if key != "description"}
        for name, one in components["securitySchemes"].items()
    } == {
        "tenantToken": {"type": "http", "scheme": "bearer", "bearerFormat": "ADR-036 access token"},
        "payloadToken": {"type": "http", "scheme": "bearer", "bearerFormat": "ADR-036 payload token"},
        "eventsToken": {"type": "apiKey", "in": "query", "name": "token"},
        "callbackSignature": {"type": "apiKey", "in": "header", "name": "X-Fred-Signature"},
    }


def test_the_caution_about_a_running_restore_is_there():
    assert "idempotency_in_progress" in DOCUMENT["paths"][LEASE + "restore"]["post"]["description"]


def test_every_example_is_of_its_type():
    checked = 0
    for operations in DOCUMENT["paths"].values():
        for operation in operations.values():
            holders = [operation.get("requestBody", {}), *operation["responses"].values()]
            for media in (media for one in holders for media in one.get("content", {}).values()):
                for example in media.get("examples", {}).values():
                    jsonschema.validate(example["value"], plain(media["schema"], closed=True))
                    checked += 1
    assert checked > 200


def test_every_stable_name_that_is_given_is_known():
    given = set()
    for source in Path(schema.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(source.read_text("utf-8"))):
            if isinstance(node, ast.keyword) and node.arg in {"error_code", "reason"}:
                given |= {one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant)}
    words = {one for one in given if isinstance(one, str) and re.fullmatch(r"[a-z]+(_[a-z]+)+", one)}
    assert len(words) > 20
    assert words <= {*known_words.ERROR_CODES, *known_words.REASONS}


def test_it_is_served(client, house):
    found = client.get("/openapi.json")
    assert (found.status_code, found.headers["Content-Type"]) == (200, JSON)
    assert found.json() == DOCUMENT
    refused = client.post("/openapi.json")
    assert (refused.status_code, refused.json()) == (405, envelope("method not allowed", 405))


@pytest.mark.urls("tests.fred.admin_urls")
@pytest.mark.parametrize("page", ["/api/docs/", "/api/redoc/"])
def test_the_admin_server_shows_it_from_local_files(page, client, settings):
    settings.STORAGES = {"staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}
    found = client.get(page)
    assert found.status_code == 200
    text = found.content.decode()
    sources = re.findall(r"(?:src|href)=\"([^\"]+)\"", text)
    assert len(sources) >= 1
    assert all(source.startswith("/static/drf_spectacular_sidecar/") for source in sources)
    assert "/api/openapi.json" in text
    for source in sources:
        with closing(client.get(source)) as file:
            assert file.status_code == 200
    assert client.get("/api/openapi.json").json() == DOCUMENT
