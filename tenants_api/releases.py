"""The versions of a lease's workload, as its backend keeps them."""

from base64 import b64encode
from typing import Any, Final

from django.http import HttpResponse

from backends import wire
from backends.contract import Absent, Unknown
from backends.releases import ReleaseInfo
from tenants_api import answers, backend_reads, query
from tenants_api.errors import ApiError, answer, internal
from tenants_api.lease_route import Call, lease_route

MAX_LIMIT: Final = 1000


@lease_route("GET")
def releases(call: Call) -> HttpResponse:
    """All releases, oldest first; with `limit` and `before` the newest so many that are older than a version."""
    facts = call.known_lease()
    target = backend_reads.owner(facts)
    limit, before = _limit(call), _before(call)
    match backend_reads.releases(target, call.lease_uuid):
        case Absent():
            raise ApiError(404, "lease not yet provisioned", error_code="not_provisioned")
        case Unknown():
            raise internal()
        case found:
            chosen = [one for one in found if before is None or one.version < before]
            if limit is not None:
                chosen = sorted(chosen, key=lambda one: one.version)[-limit:]
            return answer({**call.head, "releases": [_release(one) for one in chosen]})


def _limit(call: Call) -> int | None:
    try:
        limit = query.integer(call.request, "limit")
    except ValueError:
        limit = 0
    if limit is not None and not 1 <= limit <= MAX_LIMIT:
        raise query.refuse(f"limit must be an integer from 1 to {MAX_LIMIT}")
    return limit


def _before(call: Call) -> int | None:
    try:
        before = query.integer(call.request, "before")
    except ValueError:
        before = 0
    if before is not None and before < 1:
        raise query.refuse("before must be a positive integer")
    return before


def _release(one: ReleaseInfo) -> dict[str, Any]:
    return {
        "version": one.version,
        "image": one.image,
        "status": one.status,
        "created_at": wire.utc_text(one.created_text),
        **answers.present({"reason": one.reason, "message": one.message}),
        "manifest": None if one.manifest is None else b64encode(one.manifest).decode("ascii"),
    }
