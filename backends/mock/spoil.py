"""The bodies of injected faults: error bodies of every shape, and lists, logs and loads that are wrong."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import orjson

from backends.mock.faults import Body, Listing, Status

_OVER_A_PAGE = 9 * 1024 * 1024
_OVER_LOGS = 17 * 1024 * 1024
_FOREIGN = "01987000-0000-7000-8000-0000000f0e1a"


_SHAPES: Mapping[str, bytes] = {
    "empty": b"",
    "redirect": b"",
    "blank": b" \n\t ",
    "html": b"<html><body><h1>502 Bad Gateway</h1></body></html>",
    "truncated": b'{"error":"abc',
    "null": b"null",
    "object": b"{}",
    "foreign": b'{"message":"problem"}',
    "long": b'{"error":"%b"}' % (b"x" * (4097 - len('{"error":""}'))),
    "duplicate_keys": b'{"error":"e","error":"f"}',
    "wrong_case": b'{"Error":"e"}',
}
_BODIES: Mapping[str, Callable[[], bytes]] = {
    "oversize": lambda: orjson.dumps({"app/0": "x" * _OVER_LOGS}),
    "many": lambda: orjson.dumps({f"app/{number}": "" for number in range(6000)}),
    "not_utf8": lambda: b'{"app/0":"\xff\xfe"}',
    "null": lambda: b"null",
    "zeros": lambda: b'{"total_cpu_cores":0,"allocated_cpu_cores":0,"active_containers":0}',
    "nan": lambda: b'{"total_cpu_cores":"NaN","allocated_cpu_cores":NaN}',
    "negative": lambda: b'{"total_cpu_cores":8,"allocated_cpu_cores":-2,"active_containers":1}',
}


def error_body(rule: Status) -> bytes:
    """The body of an injected answer."""
    known = _SHAPES.get(rule.shape)
    if known is not None:
        return known
    code = "brand_new" if rule.shape == "unknown_code" else rule.code
    return orjson.dumps({"error": rule.error, **({"code": code} if code else {})})


def listing(rule: Listing, noun: str, page: dict[str, Any], *, after: str = "") -> tuple[int, bytes]:
    """Status and body of a spoiled page of `provisions` or `retentions`, asked for after this token."""
    rows: list[Any] = list(page.get(noun) or [])
    match rule.kind:
        case "omit":
            rows = rows[1:]
        case "duplicate":
            rows = rows + rows[:1]
        case "foreign":
            rows.append({**(rows[0] if rows else {"status": "ready", "quantity": 1}), "lease_uuid": _FOREIGN})
        case "not_canonical":
            rows = [{**row, "lease_uuid": str(row["lease_uuid"]).upper()} for row in rows]
        case "null":
            return 200, orjson.dumps({noun: None})
        case "stuck_token":
            return 200, orjson.dumps({noun: rows, "continue": str(UUID(int=1))})
        case "endless":
            last = UUID(rows[-1]["lease_uuid"]) if rows else UUID(after or str(UUID(int=0)))
            return 200, orjson.dumps({noun: rows, "continue": str(UUID(int=last.int + 1))})
        case "oversize":
            return 200, orjson.dumps({**page, "padding": "x" * _OVER_A_PAGE})
        case "not_found":
            return 404, orjson.dumps({"error": "not found"})
    return 200, orjson.dumps({**page, noun: rows})


def body(rule: Body, said: bytes) -> bytes:
    """A spoiled body of `/logs` or `/stats`."""
    if rule.kind == "withheld":
        return orjson.dumps({**orjson.loads(said), "disk_withheld": True})
    return _BODIES[rule.kind]()
