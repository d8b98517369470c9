"""Real answers against the checked-in OpenAPI document."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import orjson

DOCUMENT: dict[str, Any] = orjson.loads((Path(__file__).parents[2] / "tenants_api" / "openapi.json").read_bytes())
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
_BYTES = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_FORMATS = jsonschema.FormatChecker(formats=())
_FORMATS.checks("date-time")(lambda value: not isinstance(value, str) or bool(_TIME.fullmatch(value)))
_FORMATS.checks("byte")(lambda value: not isinstance(value, str) or bool(_BYTES.fullmatch(value)))
_PATHS = {
    re.compile(re.sub(r"\\{[a-z_]+\\}", "[^/]+", re.escape(path))): operations
    for path, operations in DOCUMENT["paths"].items()
}


def plain(schema: Any, *, closed: bool = False) -> Any:
    """A schema of the document as JSON Schema: references resolved, null as a type.

    `closed`: an answer may have no member that the document does not name.
    """
    if isinstance(schema, list):
        return [plain(item, closed=closed) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/components/schemas/")
        return plain(DOCUMENT["components"]["schemas"][name], closed=closed)
    made = {key: plain(value, closed=closed) for key, value in schema.items() if key != "properties"}
    if "properties" in schema:
        made["properties"] = {key: plain(value, closed=closed) for key, value in schema["properties"].items()}
        if closed:
            made["additionalProperties"] = False
    if made.pop("nullable", False):
        made["type"] = [made["type"], "null"]
    return made


@cache
def _validator(path: str, method: str, status: str, kind: str) -> jsonschema.Draft202012Validator:
    media = DOCUMENT["paths"][path][method]["responses"][status]["content"][kind]
    return jsonschema.Draft202012Validator(plain(media["schema"], closed=True), format_checker=_FORMATS)


def operation_of(method: str, path: str) -> tuple[str, dict[str, Any]] | None:
    """The documented path and operation that serve a request; None where the document has none."""
    for template, (pattern, operations) in zip(DOCUMENT["paths"], _PATHS.items(), strict=True):
        if pattern.fullmatch(path) and method.lower() in operations:
            return template, operations[method.lower()]
    return None


def check(method: str, path: str, answer: Any) -> None:
    """Fail unless the document has this answer of a test client to this request."""
    if path.startswith("/v1/") or operation_of(method, path):
        check_answer(method, path, answer.status_code, answer.headers, answer.content)


def check_answer(method: str, path: str, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """The same for any other answer: status, media type, body and `Retry-After`."""
    if method == "HEAD":
        method, body = "GET", b""
    path = path.partition("?")[0]
    found = operation_of(method, path)
    if found is None:
        assert status in {404, 405}, f"{method} {path} is in no document, and answers {status}"
        return
    template, operation = found
    assert str(status) in operation["responses"], f"{method} {template} answers {status}: {body!r}"
    content = operation["responses"][str(status)].get("content")
    if content is None:
        assert body == b""
        return
    kind = headers["Content-Type"].partition(";")[0]
    assert kind in content, f"{method} {template} answers {status} as {kind}"
    if status in {429, 503} and "Health" not in str(content):
        assert int(headers["Retry-After"]) >= 1
    if body and kind.endswith("json"):
        _validator(template, method.lower(), str(status), kind).validate(orjson.loads(body))
