"""What must stay inside: ids of callback URLs are in no log, addresses of backends' rows in nothing that leaves."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from uuid import UUID, uuid4

import pytest
from django.conf import settings

from fred import logs, signing, views
from fred.asgi import application
from placements.callbacks_asgi import PATH, CallbackEndpoint
from placements.models import Operation, Placement
from tests.asgi import request
from tests.reconciliation.story import ROWS
from tests.scripted_backend import Broken, Reset

pytestmark = ROWS
STRANGER = "manifest1strangersaddressofabackendsrow"


@pytest.fixture
def logged(capsys):
    """All that is logged from here on, at every level."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    logs.set_up(level="debug", output="json", process="web")
    yield lambda: capsys.readouterr().out
    root.handlers[:] = handlers
    root.setLevel(level)


def knock(body: bytes, query: str, *, method: str = "POST", key: str = "") -> int:
    """A callback comes to the door, signed with the provider's key or another one; the status it gets."""
    target = f"{PATH}?{query}"
    secret = key or settings.FRED.callback_secret.get_secret_value()
    header = signing.sign(secret, timestamp=int(time.time()), method=method, target=target, body=body)

    async def come():
        endpoint = CallbackEndpoint(settings.FRED)
        try:
            return await request(endpoint, method, PATH, body=body, headers={signing.HEADER: header}, query=query)
        finally:
            await endpoint.close()

    return asyncio.run(come()).status


@pytest.mark.parametrize(
    "answer",
    [Reset, Broken, (500, b"x"), (400, b"<html>no</html>")],
    ids=["reset", "broken off", "500", "html 400"],
)
def test_p38_no_id_of_a_callback_url_is_logged(story, logged, answer):
    uuid = story.create()
    story.backends["b1"].script["provision", str(uuid)].append(answer)
    story.look()
    story.push()
    operation = story.operation(uuid)
    mark = f"operation_id={operation.pk}"
    assert mark in operation.callback_url
    body = json.dumps({"lease_uuid": str(uuid), "status": "failed", "error": "out of luck"}).encode()
    assert knock(body, mark, key="k" * 40) == 401
    assert knock(b"{", mark) == 400
    assert knock(body, f"{mark}&lifecycle_id={operation.pk}") == 400
    assert knock(body, mark, method="PUT") == 405
    stale = uuid4()
    assert knock(body, f"operation_id={stale}") == 200
    assert knock(body, mark) == 200
    story.settle()
    assert ("failed", "out of luck") in story.events(uuid)
    ids = {str(stale), *map(str, Operation.objects.values_list("pk", flat=True))}
    ids |= {str(one) for one in Placement.objects.values_list("lifecycle_id", flat=True) if one}
    text = logged()
    assert str(uuid) in text
    assert [one for one in ids if one in text or UUID(one).hex in text] == []


def test_p37_the_tenant_of_a_backends_row_leaves_with_nothing(story, logged):
    uuid = story.activated()
    unknown = uuid4()
    story.lists(
        "b1",
        {"lease_uuid": uuid, "tenant": STRANGER, "status": "failed", "message": "it died", "fail_count": 1},
        {"lease_uuid": unknown, "tenant": STRANGER, "status": "ready"},
    )
    story.lists("b2")
    story.sweep()
    story.settle()
    views._prober.cache_clear()
    public = [asyncio.run(request(application, "GET", path)) for path in ("/health", "/readyz", "/metrics")]
    views._prober.cache_clear()
    assert public[2].status == 200
    assert STRANGER not in "".join(one.body.decode() for one in public)
    assert STRANGER not in "".join(f"{status} {error}" for status, error in story.events(uuid))
    assert STRANGER not in logged()
