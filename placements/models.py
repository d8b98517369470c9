"""Which backend serves which lease: the wish, the attempt, what was heard, and what was seen."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from backends.models import Backend
from fred.due import Due
from leases.models import Lease
from placements.command_status import CommandKind, CommandState
from placements.status import OperationState


class Placement(models.Model):
    """The backend that a lease belongs to. Written with the operation, before any call; stays until pruned."""

    class Status(models.TextChoices):
        ATTEMPTED = "attempted"
        CONFIRMED = "confirmed"
        CONFLICT = "conflict"
        QUARANTINED = "quarantined"
        LOST = "lost"

    lease = models.OneToOneField(Lease, models.PROTECT, primary_key=True, db_column="lease_uuid")
    status = models.TextField(choices=Status.choices, default=Status.ATTEMPTED)
    # A backend's row is never deleted, and who asks for all of one backend reads many: an index would only cost.
    backend = models.ForeignKey(Backend, models.PROTECT, null=True, blank=True, db_column="backend", db_index=False)
    storage_id = models.UUIDField(null=True, blank=True)
    candidates = ArrayField(models.TextField(), default=list, blank=True)
    lifecycle_id = models.UUIDField(
        null=True, blank=True, help_text="Operation whose callback URL the backend goes on using."
    )
    lifecycle_retired_at = models.DateTimeField(null=True, blank=True)
    set_at = models.DateTimeField(db_default=Now())
    revision = models.BigIntegerField(default=1)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=~Q(status__in=["attempted", "confirmed"]) | Q(backend__isnull=False),
                name="placement_names_owner",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.lease_id} on {self.backend_id}"


class Operation(Due):
    """One attempt to have a lease's workload made at one backend. ``due_at`` means: push it to that backend.

    Its id is on the wire and never changes; at most one operation of a lease is open (``settled_at`` null).
    """

    class Kind(models.TextChoices):
        PROVISION = "provision"
        RESTORE = "restore"

    # Nearly every update writes into all indexes of a row: a foreign key has none where another one does its work.
    id = models.UUIDField(primary_key=True)
    lease = models.ForeignKey(Lease, models.PROTECT, db_column="lease_uuid", db_index=False)
    kind = models.TextField(choices=Kind.choices, default=Kind.PROVISION)
    source_lease = models.ForeignKey(
        Lease,
        models.PROTECT,
        null=True,
        blank=True,
        db_column="source_lease_uuid",
        db_index=False,
        related_name="restores",
    )
    backend = models.ForeignKey(Backend, models.PROTECT, db_column="backend", db_index=False)
    storage_id = models.UUIDField(null=True, blank=True)
    tenant = models.TextField()
    provider_uuid = models.UUIDField()
    items = models.JSONField(help_text="Items as they were when the operation was made; a repeat sends the same.")
    payload_sha256 = models.BinaryField(null=True, blank=True)
    callback_url = models.TextField()
    lifecycle_url = models.TextField(default="", blank=True)

    state = models.TextField(
        choices=[(state.value, state.value) for state in OperationState], default=OperationState.RESERVED
    )
    refusal = models.TextField(default="", blank=True, help_text="Code of the refusal, or not_sent, callback_timeout.")
    error = models.TextField(default="", blank=True, help_text="The backend's words.")
    dispatch_count = models.IntegerField(default=0)
    first_dispatched_at = models.DateTimeField(null=True, blank=True)
    last_dispatched_at = models.DateTimeField(null=True, blank=True)
    on_wire_until = models.DateTimeField(
        null=True, blank=True, help_text="Latest end of the call that may be under way."
    )
    valid_until = models.DateTimeField(null=True, blank=True, help_text="Past it nobody pushes: look again first.")
    request_id = models.TextField(db_default="", blank=True, help_text="The request that asked for it, if one did.")
    created_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True, blank=True)
    settled_at = models.DateTimeField(null=True, blank=True)

    class Meta(Due.Meta):
        abstract = False
        constraints = [
            models.CheckConstraint(
                condition=Q(kind="restore", source_lease__isnull=False)
                | Q(kind="provision", source_lease__isnull=True),
                name="operation_restore_has_source",
            ),
            models.CheckConstraint(
                condition=Q(source_lease__isnull=True) | ~Q(source_lease=F("lease")), name="operation_source_differs"
            ),
            models.UniqueConstraint(fields=["lease"], condition=Q(settled_at__isnull=True), name="operation_one_open"),
            models.UniqueConstraint(
                fields=["source_lease"],
                condition=Q(settled_at__isnull=True, kind="restore"),
                name="operation_one_restore_per_source",
            ),
        ]
        indexes = [
            # Claims go backend by backend, oldest first. With all that a claim asks for in the condition this is the
            # narrowest index also to a planner without statistics, which else reads and sorts the whole backlog.
            models.Index(
                fields=["backend", "due_at"],
                name="operation_due_open",
                condition=Q(due_at__isnull=False, settled_at__isnull=True),
            ),
            models.Index(fields=["source_lease"], name="operation_source", condition=Q(source_lease__isnull=False)),
            models.Index(fields=["lease", "settled_at"], name="operation_lease"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


class MaintenanceCommand(Due):
    """A restart or update that a tenant asked for. ``due_at`` means: send it to the backend, for the first time.

    Recorded before anything is sent; the same ``maintenance_id`` of a lease never runs twice. An older backend runs it
    again each time it hears of it, so what may have arrived is not sent again: the look finds out what became of it.
    At most one command of a lease is open (``settled_at`` null); its row is the stored answer for repeats.
    """

    id = models.UUIDField(primary_key=True)
    lease = models.ForeignKey(Lease, models.PROTECT, db_column="lease_uuid")
    kind = models.TextField(choices=[(kind.value, kind.value) for kind in CommandKind])
    maintenance_id = models.UUIDField(help_text="The tenant's command key, or what stands for it.")
    keyed = models.BooleanField(help_text="The tenant sent a command key, so that answers follow the newer table.")
    tenant = models.TextField()
    backend = models.ForeignKey(Backend, models.PROTECT, db_column="backend")
    callback_url = models.TextField()
    admitted_at = models.DateTimeField(help_text="Strictly increasing for the commands of a lease.")
    payload_id = models.BigIntegerField(null=True, blank=True, help_text="The proposed version that an update sends.")
    payload_sha256 = models.BinaryField(default=b"", blank=True)
    size_bytes = models.IntegerField(default=0, help_text="Of the payload; counts against the shared budget.")

    state = models.TextField(
        choices=[(state.value, state.value) for state in CommandState], default=CommandState.RESERVED
    )
    refusal = models.TextField(default="", blank=True, help_text="Code of the refusal, or why it is still open.")
    error = models.TextField(default="", blank=True, help_text="The backend's words, at most 4 KiB.")
    first_dispatched_at = models.DateTimeField(null=True, blank=True)
    on_wire_until = models.DateTimeField(
        null=True, blank=True, help_text="Latest end of the call that may be under way."
    )
    valid_until = models.DateTimeField(null=True, blank=True, help_text="Past it nobody sends: look again first.")
    request_id = models.TextField(default="", blank=True, help_text="The request that brought it.")
    settled_at = models.DateTimeField(null=True, blank=True, help_text="Since when its answer is decided.")
    finished_at = models.DateTimeField(null=True, blank=True, help_text="Since when it is known how it went.")

    class Meta(Due.Meta):
        abstract = False
        constraints = [
            models.UniqueConstraint(fields=["lease", "maintenance_id"], name="command_once"),
            models.UniqueConstraint(fields=["lease", "admitted_at"], name="command_stamp"),
            models.UniqueConstraint(fields=["lease"], condition=Q(settled_at__isnull=True), name="command_one_open"),
        ]
        indexes = [
            models.Index(fields=["backend", "due_at"], name="command_due", condition=Q(due_at__isnull=False)),
            models.Index(fields=["tenant"], name="command_open_tenant", condition=Q(settled_at__isnull=True)),
            models.Index(fields=["lease"], name="command_unfinished", condition=Q(finished_at__isnull=True)),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.lease_id}"


class Callback(models.Model):
    """What a backend reported, committed before it was answered 200. ``applied_at`` null: a look has yet to use it."""

    class Selector(models.TextChoices):
        OPERATION = "operation"
        LIFECYCLE = "lifecycle"
        TOKENLESS = "tokenless"

    lease = models.ForeignKey(Lease, models.PROTECT, db_column="lease_uuid")
    selector = models.TextField(choices=Selector.choices)
    selector_id = models.UUIDField(null=True, blank=True)
    status = models.TextField()
    error = models.TextField(default="", blank=True)
    retained = models.BooleanField(default=False)
    storage_id = models.UUIDField(null=True, blank=True)
    backend_label = models.TextField(default="", blank=True)
    maintenance_id = models.UUIDField(null=True, blank=True)
    maintenance_admitted_at = models.DateTimeField(null=True, blank=True)
    body_sha256 = models.BinaryField()
    received_at = models.DateTimeField(db_default=Now(), db_index=True)
    applied_at = models.DateTimeField(null=True, blank=True)
    verdict = models.TextField(default="", blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["selector_id", "status"], condition=Q(selector="operation"), name="callback_once_operation"
            ),
            models.UniqueConstraint(
                fields=["selector_id", "maintenance_id", "status", "maintenance_admitted_at"],
                condition=Q(maintenance_id__isnull=False),
                nulls_distinct=False,
                name="callback_once_maintenance",
            ),
        ]
        indexes = [
            models.Index(fields=["lease", "id"], name="callback_unapplied", condition=Q(applied_at__isnull=True))
        ]

    def __str__(self) -> str:
        return f"{self.status} for {self.lease_id}"


class Teardown(Due):
    """One backend that must be told to remove what it holds of a lease. ``due_at`` means: tell it (again)."""

    class State(models.TextChoices):
        OPEN = "open"
        PARKED = "parked"
        DONE = "done"

    lease = models.ForeignKey(Lease, models.PROTECT, db_column="lease_uuid")
    backend = models.ForeignKey(Backend, models.PROTECT, db_column="backend")
    cause = models.TextField(default="", blank=True)
    state = models.TextField(choices=State.choices, default=State.OPEN)
    last_error = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(db_default=Now())
    sent_at = models.DateTimeField(null=True, blank=True)
    done_at = models.DateTimeField(null=True, blank=True)

    class Meta(Due.Meta):
        abstract = False
        constraints = [models.UniqueConstraint(fields=["lease", "backend"], name="teardown_once")]
        indexes = [
            models.Index(fields=["due_at"], name="teardown_due", condition=Q(due_at__isnull=False)),
            models.Index(fields=["lease"], name="teardown_open", condition=~Q(state="done")),
        ]

    def __str__(self) -> str:
        return f"teardown of {self.lease_id} at {self.backend_id}"


class Observed(models.Model):
    """A row of a backend's inventory as last listed. ``walk_started_at`` says how old the evidence is at most."""

    backend = models.ForeignKey(Backend, models.PROTECT, db_column="backend")
    lease_uuid = models.UUIDField(db_index=True)
    provider_uuid = models.UUIDField(null=True, blank=True)
    tenant = models.TextField(default="", blank=True)
    status = models.TextField(default="", blank=True)
    walk_id = models.BigIntegerField()
    walk_started_at = models.DateTimeField()

    class Meta:
        abstract = True


class Provision(Observed):
    """A workload that a backend listed."""

    fail_count = models.IntegerField(default=0)

    class Meta(Observed.Meta):
        abstract = False
        constraints = [models.UniqueConstraint(fields=["backend", "lease_uuid"], name="provision_once")]

    def __str__(self) -> str:
        return f"{self.lease_uuid} at {self.backend_id}"


class Retention(Observed):
    """Data of an ended lease that a backend still keeps."""

    class Meta(Observed.Meta):
        abstract = False
        constraints = [models.UniqueConstraint(fields=["backend", "lease_uuid"], name="retention_once")]

    def __str__(self) -> str:
        return f"{self.lease_uuid} kept at {self.backend_id}"
