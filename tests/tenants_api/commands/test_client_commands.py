"""Restart and update as the network's TypeScript client sends them, and the bytes on which it branches.

docs/tenant-clients.md lists the branches.
"""

import re
from base64 import b64encode

from fred import breaker
from tests.scripted_backend import Reset
from tests.tenants_api.calls import bearer

BUSY = re.compile(r'"code"\s*:\s*409')
INVALID = re.compile(r"invalid state", re.IGNORECASE)
"""What the client's own tests look for in the text of a conflict before they try again."""
SHOWN_CHARACTERS = 4096
MANIFEST = b'{"image":"nginx:1.28"}'

UPDATES = [
    ((202, b"{}"), 202, True),
    ((400, b'{"error":"bad port"}'), 400, False),
    ((404, b""), 404, False),
    ((409, b""), 409, False),
    ((400, b"<html>"), 502, False),
    ((500, b'{"error":"boom"}'), 500, True),
    (Reset, 500, True),
]
"""An answer of the backend, the status of ours, and whether the new manifest may be in force."""


def test_what_the_client_sends_is_accepted_with_a_body_of_json(client, chain, another, backend):
    """A restart has neither body nor content type, an update base64 in JSON."""
    one, two = another(), another()
    restarted = client.generic("POST", f"/v1/leases/{one}/restart", content_type="", headers=bearer(lease=one))
    body = b'{"payload":"' + b64encode(MANIFEST) + b'"}'
    updated = client.generic("POST", f"/v1/leases/{two}/update", body, "application/json", headers=bearer(lease=two))
    for response, status in ((restarted, b"restarting"), (updated, b"updating")):
        assert (response.status_code, response.content) == (202, b'{"status":"%b"}\n' % status)
        assert response.headers["Content-Type"] == "application/json"
    assert (backend.routes(one), backend.routes(two)) == (["restart"], ["update"])


def test_a_conflict_can_be_told_by_its_text(ask, another, backend):
    """The workload is as it was; the client does not call the app failed."""
    for route in ("restart", "update"):
        lease = another()
        backend.script[route].append((409, b'{"error":"busy"}'))
        found = ask(route, path=lease, payload=MANIFEST)
        assert found.status == 409
        assert BUSY.search(found.raw.decode())
        assert INVALID.search(found.raw.decode())


def test_an_update_is_refused_below_500_only_where_nothing_was_applied(ask, another, backend, versions):
    """From 500 on the client says that it may have happened, and that the app must not be closed for it."""
    for answer, status, may_be_in_force in UPDATES:
        breaker.forget()
        lease = another()
        backend.script["update"].append(answer)
        assert ask("update", path=lease, payload=MANIFEST).status == status, answer
        assert any(body == MANIFEST for state, body in versions(lease) if state != "failed") == may_be_in_force, answer
        assert may_be_in_force <= (status == 202 or status >= 500), answer


def test_the_longest_text_of_a_backend_fits_into_what_the_client_shows(ask, lease, backend):
    backend.script["update"].append((400, b'{"error":"' + b"\\u00e9" * 600 + b'"}'))
    found = ask("update", payload=MANIFEST)
    assert (found.status, found.body["error"][-1]) == (400, "\N{HORIZONTAL ELLIPSIS}")
    assert len(found.raw.decode()) < SHOWN_CHARACTERS
