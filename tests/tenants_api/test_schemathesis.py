"""Requests made from the OpenAPI document, good and bad ones, against the real server: no answer surprises."""

import hashlib
import json
import random
import time
from collections import defaultdict
from datetime import timedelta
from urllib.parse import unquote, urlsplit
from uuid import UUID

import pytest
import requests  # noqa: TID251 - the library sends with it
import schemathesis
from django.db import connections
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as examples
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from fred import signing
from fred.conf import BackendConfig
from fred.upgrade import is_events_target
from leases.status import LeaseState
from tests.fred.served import served
from tests.scripted_backend import ScriptedBackend
from tests.tenants_api.calls import PROVIDER, SKU, bearer
from tests.tenants_api.commands.fresh import Fresh
from tests.tenants_api.openapi import DOCUMENT
from tests.tenants_api.vectors import ALICE

SECRET = "the key of docker-1 in these tests, long enough"
EACH = 80
"""Leases of each kind: running ones, waiting ones, ended ones."""
RUNNING = [UUID(int=(0x0190 << 112) | 0x7000_8000_0000_0000_0000 + number) for number in range(EACH)]
WAITING = [UUID(int=(0x0191 << 112) | 0x7000_8000_0000_0000_0000 + number) for number in range(EACH)]
ENDED = [UUID(int=(0x0192 << 112) | 0x7000_8000_0000_0000_0000 + number) for number in range(EACH)]
ITEMS = [{"sku": str(SKU), "quantity": 1, "service_name": "web"}]
CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
LEFT_OUT = {"streamLeaseEvents"}
TAKES_NOTHING = {"getHealth", "getReadiness", "getMetrics", "getOpenApi"}
"""Nothing about such a request can be wrong."""
NOT_READY_HERE = {"getReadiness"}
"""Its 503 is a verdict: this house has no watcher and no worker."""


class EveryLease(ScriptedBackend):
    """A backend that has whatever it is asked for, and takes every order."""

    def _pick(self, seen):
        kind = seen.route.partition("/")[0]
        release = {"version": 1, "status": "active", "image": "x", "created_at": "2026-01-01T00:00:00Z"}
        said = {
            "read": {"lease_uuid": seen.lease, "status": "ready", "created_at": "2026-01-01T00:00:00Z"},
            "info": {"host": "h", "ports": {"80/tcp": {"host_ip": "::", "host_port": "8080"}}},
            "logs": {"web/0": "x"},
            "releases": [{**release, "manifest": "e30="}],
            "provisions": {"provisions": []},
        }
        return (200, json.dumps(said[kind]).encode()) if kind in said else (202, b'{"status":"begun"}')


class Credentials(requests.auth.AuthBase):
    """What each request needs to be let in, made once all of it is known."""

    def __init__(self, choose):
        self.fresh, self.choose = Fresh(), choose

    def __call__(self, request):
        parts = urlsplit(request.path_url)
        segments = [unquote(one) for one in parts.path.split("/")]
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        if self.choose.random() < 0.05:
            pass  # whatever was made up
        elif parts.path == "/callbacks/provision":
            made = signing.sign(SECRET, timestamp=int(time.time()), method="POST", target=request.path_url, body=body)
            request.headers[signing.HEADER] = made
        elif segments[1:3] == ["v1", "leases"] and len(segments) == 5:
            request.headers.update(self._token(segments[3], segments[4], body))
        return request

    def _token(self, lease, route, body):
        if route != "data":
            return self.fresh("alice", lease)
        from leases.models import Lease

        digest = hashlib.sha256(body).digest()
        if lease in map(str, WAITING):
            Lease.objects.filter(pk=lease).update(meta_hash=digest)
        return bearer("alice", lease, meta_hash=digest.hex())


@pytest.fixture
def server(transactional_db, settings, valkey, chain, monkeypatch):
    """The whole application over 240 leases of alice's at one backend; nobody is limited."""
    from django.utils import timezone

    from backends import targets
    from fred import breaker
    from fred.web import compose
    from placements import dispatch
    from placements.models import Teardown
    from tests.factories.backends import BackendFactory
    from tests.factories.leases import ChainCursorFactory, LeaseFactory
    from tests.factories.placements import PlacementFactory

    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)
    ChainCursorFactory(head_seen_at=timezone.now() + timedelta(hours=1))  # the watcher stays up to date
    with EveryLease() as backend:
        one = BackendConfig(name="docker-1", url=backend.url, default=True, timeout="30s", hmac_secret=SECRET)
        settings.FRED = settings.FRED.model_copy(
            update={
                "provider_uuid": PROVIDER,
                "backends": (one,),
                "rate_limit_rps": 1e6,
                "rate_limit_burst": 10**6,
                "tenant_rate_limit_rps": 1e6,
                "tenant_rate_limit_burst": 10**6,
            }
        )
        settings.MIDDLEWARE = []
        owner = BackendFactory(name="docker-1", url=backend.url)
        for uuids, state in ((RUNNING, LeaseState.ACTIVE), (WAITING, LeaseState.PENDING), (ENDED, LeaseState.CLOSED)):
            for uuid in uuids:
                lease = LeaseFactory(uuid=uuid, tenant=ALICE, provider_uuid=PROVIDER, chain_state=state, items=ITEMS)
                chain.add(uuid, tenant=ALICE, state=state)  # restarts and updates read it anew
                if state != LeaseState.PENDING:
                    PlacementFactory(lease=lease, backend=owner, lifecycle_id=uuid)
                if state == LeaseState.CLOSED:
                    Teardown.objects.create(lease=lease, backend=owner, state="done", done_at=timezone.now())
        for module in (breaker, targets):
            module.forget()
        dispatch.drain(deadline=0.2)
        with served(compose(), opens_socket=is_events_target) as serving:
            yield f"http://127.0.0.1:{serving.port}"
        dispatch.drain(deadline=0.2)
        dispatch._pulls = True
    for module in (breaker, targets):
        module.forget()


def fit(case, choose):
    """Most requests are about leases that there are; a restore mostly names one that can be restored."""
    name = case.operation.definition.raw["operationId"]
    if case.path_parameters and choose.random() < 0.9:
        fitting = WAITING if name in {"uploadLeaseData", "restoreLease"} else RUNNING
        case.path_parameters["lease_uuid"] = str(choose.choice(fitting if choose.random() < 0.9 else ENDED))
    if name == "restoreLease" and isinstance(case.body, dict) and choose.random() < 0.8:
        case.body["from_lease_uuid"] = str(choose.choice(ENDED))
    if name == "lookupWorkloads" and choose.random() < 0.5:
        case.query["lease_uuid"] = [str(one) for one in choose.sample(RUNNING, 3)]
    if name == "postProvisionCallback" and isinstance(case.body, dict) and choose.random() < 0.8:
        case.body |= {"lease_uuid": str(choose.choice(RUNNING)), "status": "success"}
    return name


@pytest.mark.slow
@pytest.mark.parametrize("mode", [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE], ids=str)
def test_requests_made_from_the_document_meet_no_surprise(mode, server):
    """No 5xx, no undeclared status, media type or body; every lease route does what it is for at least once."""
    document = schemathesis.openapi.from_dict(DOCUMENT)
    choose, session, statuses = random.Random(7), requests.Session(), defaultdict(set)
    credentials = Credentials(choose)

    def ask(case):
        name = fit(case, choose)
        response = case.call(base_url=server, session=session, auth=credentials)
        statuses[name].add(response.status_code)
        server_errors = [] if name in NOT_READY_HERE and response.status_code == 503 else [not_a_server_error]
        case.validate_response(response, checks=[*server_errors, *CHECKS])

    left_out = LEFT_OUT if mode is schemathesis.GenerationMode.POSITIVE else LEFT_OUT | TAKES_NOTHING
    asked = 0
    for found in document.get_all_operations():
        operation = found.ok()
        if operation.definition.raw["operationId"] in left_out:
            continue
        strategy = operation.as_strategy(generation_mode=mode)
        run = given(strategy)(ask)
        examples(
            max_examples=40,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )(run)()
        asked += 1
    assert asked == 16 - len(left_out)
    session.close()
    if mode is schemathesis.GenerationMode.POSITIVE:
        lacking = {name for name, seen in statuses.items() if not any(200 <= one < 300 for one in seen)}
        assert lacking == NOT_READY_HERE
