"""The callback route through the real server: targets as they were signed, sizes, who is refused for rate."""

from __future__ import annotations

import json
import uuid
from contextlib import contextmanager, suppress

import pytest

from fred import signing
from fred.address_limit import AddressLimit
from fred.edge import Edge
from placements.callback_batches import Batcher
from placements.callbacks_asgi import PATH, CallbackEndpoint
from tests.fred.served import live, served
from tests.placements.callback_posts import LEASE, NOW, OTHER, OWN, SAID, SECRET, Kept, config, keyed


@contextmanager
def serving(*, burst=100_000, **changes):
    """A server of the route behind the edge, and what it stored."""
    kept = Kept()
    endpoint = CallbackEndpoint(config(**changes), Batcher(kept), clock=lambda: NOW + 2)
    edge = Edge(endpoint, cors_origins=["*"], limit=AddressLimit(rate=0.01, burst=burst))

    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            await live(receive, send, endpoint.close, edge.close)
        else:
            await edge(scope, receive, send)

    with served(app) as server:
        server.kept = kept
        yield server


def post(target, *, signed_target=None, body=SAID, secret=SECRET, header=None):
    signature = signing.sign(secret, timestamp=NOW, method="POST", target=signed_target or target, body=body)
    head = f"POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    if header is None:
        head += f"{signing.HEADER}: {signature}\r\n"
    return head.encode() + b"\r\n" + body


@pytest.fixture(scope="module")
def server():
    with serving() as one:
        yield one


IDENTIFIED = f"{PATH}?trace=%2Fx&lifecycle_id={uuid.uuid4()}"


@pytest.mark.parametrize(
    ("target", "signed_target", "status"),
    [
        pytest.param(PATH, PATH, 200, id="plain"),
        pytest.param(f"{PATH}?", f"{PATH}?", 200, id="bare ?"),
        pytest.param(f"{PATH}?", PATH, 401, id="bare ? that was not signed"),
        pytest.param(PATH, f"{PATH}?", 401, id="bare ? that was lost"),
        pytest.param(IDENTIFIED, IDENTIFIED, 200, id="TA-135 other parameters"),
        pytest.param(IDENTIFIED, IDENTIFIED.replace("%2F", "/"), 401, id="decoded"),
        pytest.param("/callbacks/provis%69on", "/callbacks/provis%69on", 200, id="an escape in the path"),
        pytest.param("/callbacks/provis%69on", PATH, 401, id="an escape that was decoded"),
    ],
)
def test_ta91_the_target_counts_as_it_was_sent(server, target, signed_target, status):
    assert server.ask(post(target, signed_target=signed_target)).status == status


def test_ta98_the_prefix_that_a_proxy_took_off_is_part_of_what_was_signed():
    with serving(callback_canonical_path_prefix="/api/fred") as server:
        assert server.ask(post(PATH, signed_target=f"/api/fred{PATH}")).status == 200
        assert server.ask(post(f"{PATH}?", signed_target=f"/api/fred{PATH}?")).status == 200
        assert server.ask(post(PATH)).status == 401


def test_ta96_the_same_delivery_again_is_answered_and_known_as_a_repeat(server):
    request = post(f"{PATH}?lifecycle_id={uuid.uuid4()}")
    before = len(server.kept.batches)
    answers = [server.ask(request) for _ in range(2)]
    assert [(one.status, one.body, one.headers["content-length"]) for one in answers] == [(200, b"", "0")] * 2
    assert [one.repeated for batch in server.kept.batches[before:] for one in batch] == [False, True]


def test_ta29_a_body_over_the_cap_is_401_and_ends_the_connection(server):
    with server.connect() as line:
        with suppress(OSError):
            line.send(post(PATH, body=b"x" * 1_048_577))
        answer = line.answer()
        assert (answer.status, json.loads(answer.body)) == (401, {"error": "unauthorized", "code": 401})
        assert answer.headers["connection"] == "close"
        assert line.rest() == b""


def test_ta134_only_who_does_not_sign_is_told_to_wait(valkey):
    named = json.dumps({"lease_uuid": LEASE, "status": "success", "backend": "mock-1"}).encode()
    with serving(burst=5, backends=(keyed("mock-1", OWN), keyed("mock-2", OTHER))) as server, server.connect() as line:

        def ask(request):
            line.send(request)
            return line.answer()

        gets = [ask(f"GET {PATH} HTTP/1.1\r\nHost: x\r\n\r\n".encode()).status for _ in range(7)]
        assert gets == [405] * 5 + [429] * 2
        assert ask(post(PATH, secret=OWN)).status == 200
        line.send(post(PATH, header=False) * 400)
        unsigned = [line.answer() for _ in range(400)]
        assert [one.status for one in unsigned[:200]] == [401] * 200
        refused = [one for one in unsigned if one.status == 429]
        assert refused
        assert json.loads(refused[0].body) == {"error": "callback rate limit exceeded", "code": 429}
        assert int(refused[0].headers["retry-after"]) >= 1
        assert ask(post(PATH, body=named, secret=OWN)).status == 200
        line.send(post(PATH, body=named, secret="somebody else's key, of over 32 bytes") * 300)
        assert {line.answer().status for _ in range(300)} <= {401, 429}
        assert ask(post(f"{PATH}?", body=named, secret=OWN)).status == 200


def test_ta95_ta134_no_number_of_signed_callbacks_is_refused(valkey):
    with serving(burst=1) as server, server.connect() as line:
        for number in range(300):
            line.send(post(f"{PATH}?trace={number}"))
            assert line.answer().status == 200


def test_callbacks_wait_for_nobody_else(server):
    """One event loop serves them all: a slow body holds up its own connection only."""
    with server.connect() as slow:
        slow.send(post(PATH)[:-5])
        assert server.ask(post(f"{PATH}?trace=quick")).status == 200
