"""Ids of a request of ours go on to the backends that are asked for it."""

import contextvars

from backends.client import BackendClient
from fred import request_ids, signing
from tests.backends.servers import LEASE, SECRET, answer, peer, target

IDS = {request_ids.REQUEST_ID: "abc", request_ids.TRACEPARENT: request_ids.traceparent(())}


def test_a_backend_is_told_which_request_it_is_asked_for():
    with peer(lambda _: answer(404)) as backend:
        client = BackendClient(target(backend.url))

        def ask():
            request_ids.adopt(IDS)
            client.info(LEASE)

        contextvars.Context().run(ask)
        client.info(LEASE)
        asked, later = backend.got
    assert (asked.headers["x-request-id"], asked.headers["traceparent"]) == ("abc", IDS[request_ids.TRACEPARENT])
    assert not {"x-request-id", "traceparent"} & set(later.headers)
    timestamp, _ = signing.parse(asked.headers["x-fred-signature"])
    assert asked.headers["x-fred-signature"] == signing.sign(
        SECRET, timestamp=timestamp, method="GET", target=asked.target
    )
