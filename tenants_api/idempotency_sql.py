"""Statements over the keys that tenants name their requests by. Each commits by itself, unless its caller has begun."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db import connection

CLAIM_FOR: Final = timedelta(seconds=120)
"""How long a claim holds without being renewed: a killed process blocks nobody for longer."""
KEPT_FOR: Final = timedelta(hours=24)
"""How long an answer is kept, and a claim that nobody ended after its end."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What a key is unique in. ``path`` has the lease in canonical form."""

    tenant: str
    method: str
    path: str
    key: str


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to run a request. ``attempt`` is the fence: another's claim ends it."""

    id: int
    attempt: int
    operation_id: UUID


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """How a key stands for somebody who did not get it."""

    request_sha256: bytes
    is_done: bool
    is_stale: bool
    """Whether its claim ended before its run did."""
    is_gone: bool
    """Whether it is kept no longer."""
    status: int
    content_type: str
    body: bytes


_CLAIM: Final = """
    INSERT INTO tenants_api_idempotencykey AS k
           (tenant, method, path, key, request_sha256, operation_id, attempt, request_id, state, claimed_at,
            claim_expires_at, content_type, body, expires_at)
    VALUES (%s, %s, %s, %s, %s, %s, 1, %s, 'in_progress', now(), now() + %s, '', '', now() + %s)
        ON CONFLICT (tenant, path, key, method) DO UPDATE
           SET attempt = k.attempt + 1, request_sha256 = excluded.request_sha256, request_id = excluded.request_id,
               operation_id = CASE WHEN k.expires_at <= now() THEN excluded.operation_id ELSE k.operation_id END,
               state = 'in_progress', claimed_at = now(), claim_expires_at = excluded.claim_expires_at,
               expires_at = excluded.expires_at, status = NULL, content_type = '', body = ''
         WHERE k.expires_at <= now()
            OR (k.state = 'in_progress' AND k.claim_expires_at <= now() AND k.request_sha256 = excluded.request_sha256)
 RETURNING k.id, k.attempt, k.operation_id
"""


def claim(scope: Scope, *, sha256: bytes, operation_id: UUID, request_id: str) -> Claim | None:
    """Take the key if it is new, too old, or its holder's claim is stale and the request is the same; else None.

    The operation id is the one given, except after a take-over.
    """
    found = _rows(
        _CLAIM,
        scope.tenant,
        scope.method,
        scope.path,
        scope.key,
        sha256,
        operation_id,
        request_id,
        CLAIM_FOR,
        CLAIM_FOR + KEPT_FOR,
    )
    return Claim(*found[0]) if found else None


def kept_answer(scope: Scope) -> KeptAnswer | None:
    """How the key stands now; None when there is no row of it."""
    found = _rows(
        """
        SELECT request_sha256, state = 'done', state = 'in_progress' AND claim_expires_at <= now(),
               expires_at <= now(), COALESCE(status, 0), content_type, body
          FROM tenants_api_idempotencykey WHERE tenant = %s AND path = %s AND key = %s AND method = %s
        """,
        scope.tenant,
        scope.path,
        scope.key,
        scope.method,
    )
    if not found:
        return None
    sha256, is_done, is_stale, is_gone, status, content_type, body = found[0]
    return KeptAnswer(bytes(sha256), is_done, is_stale, is_gone, status, content_type, bytes(body))


def finish(held: Claim, *, status: int, content_type: str, body: bytes) -> bool:
    """Store the answer, if the claim still holds; return whether it did."""
    return bool(
        _rows(
            """
            UPDATE tenants_api_idempotencykey
               SET state = 'done', status = %s, content_type = %s, body = %s, expires_at = now() + %s
             WHERE id = %s AND attempt = %s AND state = 'in_progress' RETURNING id
            """,
            status,
            content_type,
            body,
            KEPT_FOR,
            held.id,
            held.attempt,
        )
    )


def release(held: Claim) -> None:
    """Forget the key, if the claim still holds: the next request with it runs anew."""
    _rows(
        "DELETE FROM tenants_api_idempotencykey WHERE id = %s AND attempt = %s AND state = 'in_progress' RETURNING id",
        held.id,
        held.attempt,
    )


def renew(held: list[Claim]) -> None:
    """Prolong the claims that still hold."""
    _rows(
        """
        UPDATE tenants_api_idempotencykey AS k
           SET claim_expires_at = now() + %s, expires_at = now() + %s
          FROM unnest(%s::bigint[], %s::int[]) AS h(id, attempt)
         WHERE k.id = h.id AND k.attempt = h.attempt AND k.state = 'in_progress' RETURNING k.id
        """,
        CLAIM_FOR,
        CLAIM_FOR + KEPT_FOR,
        [one.id for one in held],
        [one.attempt for one in held],
    )


def _rows(sql: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows
