"""The OpenAPI document: generated from the code, checked in beside this file, and served from there."""

from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import orjson
from django.http import HttpRequest, HttpResponse

from tenants_api.lease_route import open_route

FILE: Final = Path(__file__).with_name("openapi.json")


@open_route("GET")
def openapi(_: HttpRequest) -> HttpResponse:
    """The document as it is checked in, without its blanks."""
    return HttpResponse(_stored(), headers={"Content-Type": "application/json"})


def complete(result: dict[str, Any], generator: Any, **_: Any) -> dict[str, Any]:
    """Add what no operation refers to, security schemes and the tokens' own JSON; no body is optional. A hook."""
    from tenants_api import schema_parts, serializers  # noqa: PLC0415 - heavy, and only the generator needs them

    for operation in (one for methods in result["paths"].values() for one in methods.values()):
        if "requestBody" in operation:
            operation["requestBody"]["required"] = True
    components = result["components"]
    components["securitySchemes"] = schema_parts.SECURITY_SCHEMES
    *_, method, callback = generator.endpoints[0]
    mapper = generator.create_view(callback, method).schema
    mapper.registry, mapper.method = generator.registry, method
    for kind in (serializers.AccessTokenSerializer, serializers.PayloadTokenSerializer):
        name = kind.__name__.removesuffix("Serializer")
        components["schemas"][name] = mapper._map_serializer(kind(), "response")  # noqa: SLF001 - there is no other way
    components["schemas"] = dict(sorted(components["schemas"].items()))
    return result


@lru_cache(maxsize=1)
def _stored() -> bytes:
    return orjson.dumps(orjson.loads(FILE.read_bytes()), option=orjson.OPT_APPEND_NEWLINE)
