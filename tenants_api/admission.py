"""Who is let in to a lease route, and to which lease. On plain values: for Django's views and for the stream of events.

The order of the checks is part of the API: method, token, the tenant's bucket, form of the path, that token and path
name the same lease, and that the token was not used before. Then, when the route asks for it, the lease and its owner.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from uuid import UUID

from django.conf import settings

from fred.buckets import Draw
from fred.decoding import DecodeError, decode_uuid
from leases.status import LeaseState
from tenants_api import auth, lease_reads, throttles
from tenants_api.errors import ApiError, forbidden, lease_inactive, lease_not_found, unauthorized
from tenants_api.lease_reads import LeaseFacts
from tenants_api.tokens import TenantToken

ALLOW: Final = {"GET": "GET, HEAD", "POST": "POST"}
Kind = Literal["access", "payload"]


@dataclass(frozen=True, slots=True)
class Admitted:
    """A caller whose token is right for the lease of the path. ``path`` is the lease as the caller wrote it.

    ``draw`` is how the tenant's bucket stands, if tenants are limited.
    """

    token: TenantToken
    path: str
    lease_uuid: UUID
    draw: Draw | None = field(default=None, kw_only=True)

    @property
    def head(self) -> dict[str, Any]:
        """The fields that every answer begins with."""
        return {
            "lease_uuid": self.path,
            "tenant": self.token.tenant,
            "provider_uuid": str(settings.FRED.provider_uuid),
        }

    def lease(self) -> LeaseFacts | None:
        """The lease as it is now, None if the chain has none; 500 when that can't be known, 403 if it is another's."""
        facts = lease_reads.current(self.lease_uuid)
        if facts is not None:
            self._check_owner(facts)
        return facts

    def known_lease(self) -> LeaseFacts:
        """The same; 404 if the chain has none."""
        facts = self.lease()
        if facts is None:
            raise lease_not_found()
        return facts

    def active_lease(self, *, anew: bool = False) -> LeaseFacts:
        """The lease, if it is ACTIVE; who asks about an inactive one learns no more than that. See `current`."""
        facts = lease_reads.current(self.lease_uuid, anew=anew)
        if facts is None or facts.state != LeaseState.ACTIVE:
            raise lease_inactive()
        self._check_owner(facts)
        return facts

    def _check_owner(self, facts: LeaseFacts) -> None:
        if facts.tenant != self.token.tenant or facts.provider_uuid != settings.FRED.provider_uuid:
            raise forbidden()


def admit(
    *,
    method: str,
    authorization: str | None,
    path: str,
    kind: Kind = "access",
    once: bool = False,
    expects: str = "GET",
    early: Callable[[], None] | None = None,
) -> Admitted:
    """Let a request in. ``path`` is the decoded segment of the lease; ``once`` uses the token up.

    ``early`` is a check of the route's own that stands after the tenant's bucket and before the path, and costs no
    token. With the tenant limiter switched off, it and the form of the path come before the token. Raises ApiError.
    """
    check_method(method, expects)
    limited = throttles.is_on()
    if not limited:
        if early:
            early()
        _path_uuid(path)
    token = auth.authenticate(authorization, kind=kind)
    draw = None
    if limited:
        draw = throttles.charge(token.tenant)
        if early:
            early()
    uuid = _path_uuid(path)
    if token.lease_uuid != path:
        raise unauthorized()
    if once:
        auth.spend(token)
    return Admitted(token, path, uuid, draw=draw)


def check_method(method: str, expected: str) -> None:
    """Raise the router's 405 for another method than the expected; whoever may GET may HEAD."""
    if method != expected and (method, expected) != ("HEAD", "GET"):
        raise ApiError(405, "method not allowed", headers={"Allow": ALLOW[expected]})


def _path_uuid(text: str) -> UUID:
    try:
        return decode_uuid(text)
    except DecodeError:
        raise ApiError(400, "invalid lease UUID format", error_code="invalid_lease_uuid") from None
