"""What tenants changed: one row for each of their requests that may change something, as it was answered."""

from __future__ import annotations

from uuid import UUID

import structlog
from django.db import Error as DatabaseFailure
from django.db import connection

log = structlog.get_logger(__name__)


def record(
    *, tenant: str, lease_uuid: UUID, route: str, status: int, request_id: str = "", operation_id: UUID | None = None
) -> None:
    """Store who asked for what and was told what. The answer stands already: a row that can't be written is logged."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                """
                INSERT INTO tenants_api_tenantrequest (request_id, tenant, lease_uuid, route, status, operation_id)
                VALUES (%s, %s, %s, %s, %s, %s)
                """,
                [request_id, tenant, lease_uuid, route, status, operation_id],
            )
    except DatabaseFailure as error:
        log.warning(
            "audit.not_stored",
            tenant=tenant,
            lease_uuid=str(lease_uuid),
            route=route,
            status=status,
            request_id=request_id,
            operation_id=str(operation_id or ""),
            error=type(error).__name__,
        )
