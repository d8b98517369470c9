"""Answers to odd but legal requests and to odd backends, as a running provider of the network gives them, row by row.

Each table was filled by sending its rows to the implementation that today's clients talk to.
"""

import base64
import json
import re
import time
from urllib.parse import quote

import pytest

from leases.models import Lease
from tests.factories.placements import OperationFactory
from tests.tenants_api.calls import PROVIDER, envelope, token
from tests.tenants_api.placed import placed
from tests.tenants_api.vectors import ALICE, LEASE

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("unlimited")]
HEAD = f'"lease_uuid":"{LEASE}","tenant":"{ALICE}","provider_uuid":"{PROVIDER}"'
UNAUTHORIZED = (401, b'{"error":"unauthorized","code":401}\n')


def changed(edit):
    """A valid token whose JSON text went through `edit`."""
    return base64.b64encode(edit(base64.b64decode(token()))).decode()


def appended(member):
    """The same with one more member at the end."""
    return changed(lambda text: text[:-1] + b"," + member + b"}")


def stamped(form):
    """The same with its timestamp written in another way."""
    return changed(lambda text: re.sub(rb'"timestamp":(\d+)', form, text))


GOOD_TOKENS = {
    "as it is": token,
    "an unknown member": lambda: appended(b'"z":{"a":[1]}'),
    "a number too large for a float": lambda: appended(b'"z":1e400'),
    "bytes that are no UTF-8 in an unknown member": lambda: appended(b'"z":"\xff"'),
    "half of a surrogate pair": lambda: appended(b'"z":"\\ud800"'),
    "200 lists in each other": lambda: appended(b'"z":' + b"[" * 200 + b"]" * 200),
    "a meta hash of another type": lambda: appended(b'"meta_hash":5'),
    "blanks after it": lambda: changed(lambda text: text + b" \n\t"),
    "a member twice, the last one right": lambda: changed(lambda text: b'{"tenant":"x",' + text[1:]),
    "an escaped letter": lambda: changed(lambda text: text.replace(b'"manifest1', b'"\\u006danifest1')),
    "names in upper case": lambda: changed(
        lambda text: json.dumps({name.upper(): value for name, value in json.loads(text).items()}).encode()
    ),
}
BAD_TOKENS = {
    "a member twice, the last one wrong": lambda: appended(b'"tenant":"x"'),
    "a control character": lambda: appended(b'"z":"\x01"'),
    "no JSON number": lambda: appended(b'"z":NaN'),
    "a comma too many": lambda: changed(lambda text: text[:-1] + b",}"),
    "a comment": lambda: changed(lambda text: b"/**/" + text),
    "a second value": lambda: changed(lambda text: text + b"{}"),
    "a list around it": lambda: changed(lambda text: b"[" + text + b"]"),
    "null": lambda: changed(lambda text: b"null"),
    "nothing": lambda: "",
    "a fraction of zero": lambda: stamped(rb'"timestamp":\1.0'),
    "an exponent": lambda: stamped(rb'"timestamp":\1e0'),
    "a leading zero": lambda: stamped(rb'"timestamp":0\1'),
    "a timestamp in quotes": lambda: stamped(rb'"timestamp":"\1"'),
    "true": lambda: stamped(rb'"timestamp":true'),
    "a null timestamp": lambda: stamped(rb'"timestamp":null'),
}


def test_ta1_which_json_is_a_token(ask, lease):
    for name, make in GOOD_TOKENS.items():
        found = ask("status", headers={"Authorization": f"Bearer {make()}"})
        assert found.status == 200, name
    for name, make in BAD_TOKENS.items():
        found = ask("status", headers={"Authorization": f"Bearer {make()}"})
        assert (found.status, found.raw) == UNAUTHORIZED, name


AUTHORIZATIONS = {
    "bearer {}": 200,
    "BEARER {}": 200,
    "Bearer  {}": 401,
    "Bearer\t{}": 401,
    "Bearer": 401,
    "Bearer ": 401,
    "Basic {}": 401,
    "Bearerx {}": 401,
    "{}": 401,
    "Bearer {}x": 401,
    'Bearer "{}"': 401,
    "Bearer {}, Bearer x": 401,
}


def test_ta2_which_headers_hold_a_token(ask, lease):
    for form, status in AUTHORIZATIONS.items():
        found = ask("status", headers={"Authorization": form.format(token())})
        assert found.status == status, form


SPELLINGS = {
    LEASE.upper(): 200,
    f"urn:uuid:{LEASE}": 200,
    f"URN:UUID:{LEASE.upper()}": 200,
    f"{{{LEASE}}}": 200,
    f"({LEASE})": 200,
    f"x{LEASE}y": 200,
    f" {LEASE} ": 200,
    LEASE.replace("-", ""): 200,
    "00000000-0000-0000-0000-000000000000": 404,
    "ffffffff-ffff-ffff-ffff-ffffffffffff": 404,
    LEASE[:-1]: 400,
    f"{LEASE}0": 400,
    f"{LEASE[:-1]}g": 400,
    f"{LEASE[:-1]}\u0661": 400,
    f"urn:guid:{LEASE}": 400,
    f"{LEASE[:7]}-{LEASE[7]}{LEASE[9:]}": 400,
    f"{LEASE.replace('-', '')[:-1]}-": 400,
}


def test_ta11_ta14_which_texts_name_a_lease(ask, client, lease):
    for text, status in SPELLINGS.items():
        headers = {"Authorization": f"Bearer {token(lease=text)}"}
        found = client.get(f"/v1/leases/{quote(text, safe='')}/status", headers=headers)
        assert found.status_code == status, text
        if status == 200:
            assert found.json()["lease_uuid"] == text
        elif status == 400:
            assert found.json() == envelope("invalid lease UUID format", 400)
        other = ask("status", headers={"Authorization": f"Bearer {token(lease=text)}"})
        assert (other.status, other.raw) == UNAUTHORIZED, text


TAILS = {
    "?tail": 100,
    "?Tail=0": 100,
    "?tail=007": 7,
    "?tail=5&%zz=1": 5,
    "?tail=5&tail=0": 5,
    "?tail=0&tail=5": None,
    "?%zz&tail=0": None,
    "?;&tail=0": None,
    "?tail=-0": None,
    "?tail=%205": None,
    "?tail=5%20": None,
    "?tail=0x10": None,
    "?tail=1e3": None,
    "?tail=-9999999999999999999999": None,
}


def test_ta55_how_many_lines_a_query_asks_for(client, chain, lease, backends):
    for query, tail in TAILS.items():
        backends.one.calls.clear()
        client.get(f"/v1/leases/{LEASE}/logs{query}", headers={"Authorization": f"Bearer {token()}"})
        assert backends.one.calls == ([] if tail is None else [f"/logs/{LEASE}?tail={tail}"]), query


LOOK_UPS = {
    "?": "lease_uuid query parameter required",
    "?lease_uuid=%zz": "lease_uuid query parameter required",
    f"?lease_uuid[]={LEASE}": "lease_uuid query parameter required",
    f"?lease_uuid={LEASE};lease_uuid={LEASE}": "lease_uuid query parameter required",
    f"?lease_uuid={LEASE},{LEASE}": "invalid lease_uuid",
    f"?lease_uuid={LEASE}&lease_uuid=": "invalid lease_uuid",
    f"?lease_uuid=%20{LEASE}": "invalid lease_uuid",
    "?" + "&".join(["lease_uuid=x"] * 101): "too many lease_uuid values (max 100)",
}


def test_ta101_which_queries_look_nothing_up(client, house, backends):
    for query, text in LOOK_UPS.items():
        found = client.get(f"/workloads{query}")
        assert (found.status_code, found.json()) == (400, envelope(text, 400)), query
    found = client.get(f"/workloads?limit=1&lease_uuid={LEASE}&%zz")
    assert found.content == b'{"workloads":{},"warnings":[]}\n'
    assert [one.calls for one in backends.all] == [[f"/provisions?lease_uuid={LEASE}"]] * 2


INFOS = {
    b"{}": '{"host":""}',
    b'{"host":"h","fqdn":"","protocol":"","ports":{},"instances":[],"services":{},"metadata":{}}': '{"host":"h"}',
    b'{"host":"h","ports":null,"instances":null,"services":null,"metadata":null}': '{"host":"h"}',
    b'{"host":null}': '{"host":""}',
    b'{"host":"a","host":"b"}': '{"host":"b"}',
    b'{"host":"h","instances":[{}]}': '{"host":"h","instances":[{"instance_index":0}]}',
    b'{"host":"h","instances":[{"instance_index":0},{"instance_index":1,"fqdn":"second"}]}': (
        '{"host":"h","instances":[{"instance_index":0},{"instance_index":1,"fqdn":"second"}]}'
    ),
    b'{"host":"h","ports":{"9/udp":{"host_port":"0080"},"10/tcp":{"host_ip":"1.2.3.4"}}}': (
        '{"host":"h","ports":{"10/tcp":{"host_ip":"1.2.3.4","host_port":0},"9/udp":{"host_ip":"","host_port":80}}}'
    ),
    b'{"host":"h","protocol":"https","secret":"x"}': '{"host":"h","protocol":"https"}',
}
NO_INFOS = [b"", b"[]", b'"x"', b"{", b'{"host":5}', b'{"host":"h"} x', b'{"host":"h"}{}', b"\xef\xbb\xbf{}", b"<html>"]


def test_ta38_ta42_what_a_backend_may_say_of_a_connection(ask, lease, backends):
    placed(lease)
    tokens = (token(timestamp=stamp) for stamp in _stamps())
    for said, connection in INFOS.items():
        backends.one.says(f"/info/{LEASE}", said)
        found = ask("connection", headers={"Authorization": f"Bearer {next(tokens)}"})
        assert found.raw.decode() == f'{{{HEAD},"connection":{connection}}}\n', said
    for said in NO_INFOS:
        backends.one.says(f"/info/{LEASE}", said)
        found = ask("connection", headers={"Authorization": f"Bearer {next(tokens)}"})
        assert (found.status, found.body) == (500, envelope("internal server error", 500)), said
        backends.one.says(f"/info/{LEASE}", {})  # a good answer between bad ones keeps the breaker closed
        assert ask("connection", headers={"Authorization": f"Bearer {next(tokens)}"}).status == 200


def _stamps():
    """Times of tokens that are all good now and never the same."""
    now = int(time.time())
    return (now + shift for shift in range(8, -28, -1))


RELEASES = {
    b"[]": "[]",
    b'[{"version":2,"image":"<&>","status":"zz","created_at":"2026-09-21T14:13:20.1000Z","manifest":"aGk="},'
    b'{"version":1,"image":"i","status":"failed","created_at":"2026-09-21T14:13:20Z","manifest":"","error":"/host"}]': (
        '[{"version":2,"image":"<&>","status":"zz","created_at":"2026-09-21T14:13:20.1Z","manifest":"aGk="},'
        '{"version":1,"image":"i","status":"failed","created_at":"2026-09-21T14:13:20Z","reason":"Unknown","manifest":""}]'
    ),
    b'[{"version":1,"image":"i","status":"active","reason":"R","message":"m","created_at":"0001-01-01T00:00:00Z"}]': (
        '[{"version":1,"image":"i","status":"active","created_at":"0001-01-01T00:00:00Z","reason":"R","message":"m",'
        '"manifest":null}]'
    ),
}


def test_ta57_what_a_backend_may_say_of_releases(ask, lease, backends):
    placed(lease)
    for said, releases in RELEASES.items():
        backends.one.says(f"/releases/{LEASE}", said)
        assert ask("releases").raw.decode() == f'{{{HEAD},"releases":{releases}}}\n', said
    for said in (b"{}", b"[", b'{"releases":[]}', b'[{"version":"1"}]', b'[{"version":1,"manifest":"!!"}]'):
        backends.one.says(f"/releases/{LEASE}", said)
        assert (ask("releases").status, ask("releases").body) == (500, envelope("internal server error", 500)), said
        backends.one.says(f"/releases/{LEASE}", [])
        assert ask("releases").status == 200


IN_FLIGHT = {
    "status": f'{{{HEAD},"state":"LEASE_STATE_PENDING","requires_payload":false,"payload_received":false,'
    '"provisioning_started":true,"provision_status":"provisioning"}\n',
    "provision": f'{{{HEAD},"status":"provisioning","fail_count":0}}\n',
    "connection": '{"error":"lease not found or not active","code":404}\n',
    "logs": f'{{{HEAD},"logs":{{"0":""}}}}\n',
    "releases": f'{{{HEAD},"releases":[]}}\n',
    "data": '{"error":"unauthorized","code":401}\n',
    "restart": '{"error":"lease not found or not active","code":404}\n',
    "update": '{"error":"lease not found or not active","code":404}\n',
}


def test_each_route_of_a_lease_whose_provision_runs(ask, lease, backends):
    Lease.objects.update(chain_state=1)
    placed(lease, status="attempted")
    OperationFactory(lease=lease, state="accepted")
    backends.one.holds(status="provisioning")
    backends.one.says(f"/logs/{LEASE}?tail=100", {"0": ""})
    backends.one.says(f"/releases/{LEASE}", None)
    tokens = (token(timestamp=stamp) for stamp in _stamps())
    for route, body in IN_FLIGHT.items():
        posted = b"" if route in {"data", "restart", "update"} else None
        found = ask(route, headers={"Authorization": f"Bearer {next(tokens)}"}, body=posted)
        assert found.raw.decode() == body, route
