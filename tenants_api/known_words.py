"""Words of open sets that the API is known to say. Clients take any other word too."""

from typing import Final

from backends.contract import ProvisionStatus, Reason
from leases.status import LeaseState

PROVISION_STATES: Final = tuple(state.value for state in ProvisionStatus)
LEASE_STATES: Final = tuple(f"LEASE_STATE_{state.name}" for state in LeaseState)
RELEASE_STATES: Final = ("deploying", "active", "superseded", "failed")
FAILURES: Final = (*(reason.value for reason in Reason), "VolumeDeletePending", "VolumeDeletionInProgress")
REASONS: Final = (
    "source_busy",
    "target_busy",
    "target_not_pending",
    "backend_storage_lost",
    "maintenance_expired",
    "maintenance_capacity_reserved",
    "capacity_refused",
)
ERROR_CODES: Final = (
    "unauthorized",
    "forbidden",
    "not_found",
    "method_not_allowed",
    "lease_not_found",
    "lease_not_active",
    "lease_not_pending",
    "invalid_lease_uuid",
    "rate_limited_ip",
    "rate_limited_tenant",
    "not_provisioned",
    "invalid_state",
    "already_in_flight",
    "already_provisioned",
    "no_retained_data",
    "demote_exceeds_tier",
    "insufficient_resources",
    "payload_required",
    "payload_empty",
    "payload_hash_mismatch",
    "payload_exists",
    "payload_not_expected",
    "invalid_body",
    "invalid_parameter",
    "backend_storage_lost",
    "maintenance_expired",
    "maintenance_capacity_reserved",
    "lifecycle_busy",
    "source_busy",
    "target_busy",
    "target_not_pending",
    "backend_rejected",
    "backend_malformed",
    "backend_unresolvable",
    "not_configured",
    "store_unavailable",
    "timeout",
    "too_many_connections",
    "internal",
    "idempotency_key_invalid",
    "idempotency_key_mismatch",
    "idempotency_in_progress",
)
