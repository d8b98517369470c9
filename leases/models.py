"""What the chain says of our leases, what it is owed, and what subscribers are told."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from fred.due import Due


class Lease(Due):
    """One lease: the work item of the control plane. ``due_at`` means: decide again what it needs (a look).

    Chain facts are null until the first read (a *stub*: something named this lease, nobody has read it yet). They are
    written by ``leases.sql`` only; ``phase``, ``reason`` and ``due_at`` by wake and by a look's finish.
    """

    uuid = models.UUIDField(primary_key=True)

    tenant = models.TextField(null=True, blank=True)
    provider_uuid = models.UUIDField(null=True, blank=True)
    chain_state = models.SmallIntegerField(null=True, blank=True, help_text="LeaseState as read; null: never read.")
    chain_height = models.BigIntegerField(default=-1, help_text="Height of the newest read; -1: never read.")
    absent_height = models.BigIntegerField(
        null=True, blank=True, help_text="Height of an exact read that found no such lease."
    )
    items = models.JSONField(
        default=list, help_text="Items in chain order: sku, quantity, service_name, custom_domain."
    )
    meta_hash = models.BinaryField(default=b"")
    created_at = models.DateTimeField(null=True, blank=True, help_text="When it was created, as the chain says.")
    chain_reason = models.TextField(default="", blank=True, help_text="Rejection or closure reason on chain.")

    news_height = models.BigIntegerField(default=-1, help_text="A read below this height is too old to act on.")
    touched_at = models.DateTimeField(
        null=True, blank=True, help_text="Inventory walks begun before this prove nothing."
    )

    phase = models.TextField(default="observed", help_text="What the last look called it; nothing decides by it.")
    reason = models.TextField(default="", blank=True, help_text="Why it waits, if it waits.")
    phase_at = models.DateTimeField(db_default=Now())
    looked_at = models.DateTimeField(null=True, blank=True, help_text="End of the last finished look.")
    last_error = models.TextField(default="", blank=True, help_text="What the last failed look died of.")
    first_seen_at = models.DateTimeField(db_default=Now())

    class Meta(Due.Meta):
        abstract = False
        # A lease is updated a dozen times on its way to ACTIVE, and nearly each time writes into all of these.
        indexes = [
            models.Index(fields=["due_at"], name="lease_due", condition=Q(due_at__isnull=False)),
            models.Index(fields=["chain_state", "uuid"], name="lease_state"),
        ]

    def __str__(self) -> str:
        return str(self.uuid)


class Payload(models.Model):
    """Bytes that a tenant uploaded for a lease. The first upload wins; the hash is of exactly these bytes."""

    class State(models.TextChoices):
        CURRENT = "current"
        PROPOSED = "proposed"
        SUPERSEDED = "superseded"
        FAILED = "failed"

    lease = models.ForeignKey(Lease, models.PROTECT, db_column="lease_uuid")
    state = models.TextField(choices=State.choices, default=State.CURRENT)
    body = models.BinaryField()
    sha256 = models.BinaryField()
    corrupt = models.BooleanField(default=False)
    stored_at = models.DateTimeField(db_default=Now())
    delete_after = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["lease"], condition=Q(state="current"), name="payload_one_current"),
        ]
        indexes = [
            models.Index(fields=["delete_after"], name="payload_delete", condition=Q(delete_after__isnull=False))
        ]

    def __str__(self) -> str:
        return f"payload of {self.lease_id}"


class ChainEvent(models.Model):
    """One event of a lease of ours. Each type happens at most once in a lease's life: a replay finds its row."""

    chain_id = models.TextField()
    # The unique constraint below begins with the lease: an index of its own would only cost.
    lease = models.ForeignKey(Lease, models.CASCADE, db_column="lease_uuid", db_index=False)
    type = models.TextField()
    height = models.BigIntegerField()
    tx_hash = models.TextField(default="", blank=True)
    tenant = models.TextField(default="", blank=True)
    seen_at = models.DateTimeField(db_default=Now(), db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["lease", "chain_id", "type"], name="chain_event_once")]

    def __str__(self) -> str:
        return f"{self.type} {self.lease_id}"


class ChainCursor(models.Model):
    """How far a chain was read, how fresh its head is, and since when this database saw all of it.

    ``trusted_from``: leases created before it may have a past this database does not know.
    """

    chain_id = models.TextField(primary_key=True)
    last_height = models.BigIntegerField(help_text="Every block up to here was read and stored.")
    head_height = models.BigIntegerField(default=0)
    head_time = models.DateTimeField(null=True, blank=True)
    head_seen_at = models.DateTimeField(null=True, blank=True, help_text="When the watcher last saw a new head.")
    trusted_from_height = models.BigIntegerField(default=0)
    trusted_from_at = models.DateTimeField(db_default=Now(), help_text="By the clock of this database.")
    trusted_block_at = models.DateTimeField(
        null=True, blank=True, help_text="The same, by the clock of the chain's blocks."
    )
    known_height = models.BigIntegerField(null=True, blank=True, help_text="The newest block whose hash is known.")
    known_hash = models.TextField(db_default="", blank=True)
    suspect_reason = models.TextField(
        db_default="", blank=True, help_text="Why no look believes the chain: node_behind, other_history, other_chain."
    )
    suspect_detail = models.TextField(db_default="", blank=True)
    suspect_since = models.DateTimeField(null=True, blank=True)
    alive_at = models.DateTimeField(db_default=Now())
    system_identifier = models.TextField(default="", blank=True)
    timeline_id = models.IntegerField(default=0)

    def __str__(self) -> str:
        return self.chain_id


_NOTHING = models.Value([], models.JSONField())  # as the database's default: older code inserts without the column


class Signer(Due):
    """A key that signs our transactions: one open transaction at a time. Free: ``due_at`` lies in the past.

    A sub-signer is usable while the chain shows its three grants and money for fees.
    """

    address = models.TextField(primary_key=True)
    role = models.TextField(default="provider")
    usable = models.BooleanField(default=True)
    index = models.IntegerField(null=True, blank=True, help_text="Of a sub-signer, from 0; null for the provider.")
    granted = models.JSONField(db_default=_NOTHING, blank=True, help_text="Message types granted to it, as last read.")
    demoted_at = models.DateTimeField(
        null=True, blank=True, help_text="The chain refused its transaction; checks begun before prove nothing."
    )
    retired_at = models.DateTimeField(null=True, blank=True, help_text="Removed, and its grants are revoked.")
    last_error = models.TextField(db_default="", blank=True, help_text="Why it is not usable.")
    errand_until = models.DateTimeField(
        null=True, blank=True, help_text="Until then lanes leave it to a grant, top-up or revocation that waits."
    )

    class Meta(Due.Meta):
        abstract = False

    def __str__(self) -> str:
        return self.address


class ChainTx(Due):
    """A signed transaction. The row appears with its bytes, before the broadcast; its hash decides its fate."""

    class State(models.TextChoices):
        SIGNED = "signed"
        BROADCAST = "broadcast"
        INCLUDED = "included"
        FAILED = "failed"
        DROPPED = "dropped"

    signer = models.ForeignKey(Signer, models.PROTECT, db_column="signer")
    sequence = models.BigIntegerField()
    kind = models.TextField()
    tx_bytes = models.BinaryField()
    tx_hash = models.TextField(unique=True)
    state = models.TextField(choices=State.choices, default=State.SIGNED)
    gas_limit = models.BigIntegerField(default=0)
    fee = models.TextField(default="", blank=True)
    timeout_height = models.BigIntegerField(default=0)
    height = models.BigIntegerField(null=True, blank=True)
    code = models.IntegerField(null=True, blank=True)
    codespace = models.TextField(default="", blank=True)
    log = models.TextField(default="", blank=True)
    missed_at = models.DateTimeField(null=True, blank=True, help_text="First not found past its timeout height.")
    about = models.JSONField(db_default=_NOTHING, blank=True, help_text="What it does where no lease wished for it.")
    looked_height = models.BigIntegerField(db_default=-1, help_text="The chain's height when it was last looked up.")
    height_since = models.DateTimeField(null=True, blank=True, help_text="Since when the chain stands there.")
    created_at = models.DateTimeField(db_default=Now())
    decided_at = models.DateTimeField(null=True, blank=True)

    class Meta(Due.Meta):
        abstract = False
        constraints = [
            models.UniqueConstraint(
                fields=["signer"], condition=Q(state__in=["signed", "broadcast"]), name="chain_tx_one_open"
            ),
        ]
        indexes = [models.Index(fields=["due_at"], name="chain_tx_due", condition=Q(due_at__isnull=False))]

    def __str__(self) -> str:
        return self.tx_hash


class ChainAction(Due):
    """What a look wants done on chain for a lease: acknowledge, reject or close. A lane sends it."""

    class Verb(models.TextChoices):
        ACK = "ack"
        REJECT = "reject"
        CLOSE = "close"

    class State(models.TextChoices):
        QUEUED = "queued"
        IN_TX = "in_tx"
        DONE = "done"
        MOOT = "moot"
        FAILED = "failed"

    # Two of the indexes below begin with the lease and with the transaction.
    lease = models.ForeignKey(Lease, models.PROTECT, db_column="lease_uuid", db_index=False)
    verb = models.TextField(choices=Verb.choices)
    reason = models.TextField(default="", blank=True, help_text="Written on chain; at most 256 bytes.")
    state = models.TextField(choices=State.choices, default=State.QUEUED)
    tx = models.ForeignKey(ChainTx, models.SET_NULL, null=True, blank=True, db_index=False)
    operation_id = models.UUIDField(null=True, blank=True)
    valid_until = models.DateTimeField(null=True, blank=True, help_text="Past it nobody signs a reject or close.")
    lease_epoch = models.BigIntegerField(
        null=True, blank=True, help_text="A reject or close falls if the lease moved on."
    )
    last_error = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(db_default=Now())
    decided_at = models.DateTimeField(null=True, blank=True)

    class Meta(Due.Meta):
        abstract = False
        constraints = [
            models.UniqueConstraint(fields=["lease", "verb"], name="chain_action_once"),
            models.UniqueConstraint(
                fields=["lease"],
                condition=Q(verb__in=["ack", "reject"]) & Q(state__in=["queued", "in_tx"]),
                name="chain_action_ack_xor_reject",
            ),
        ]
        indexes = [
            models.Index(fields=["due_at"], name="chain_action_due", condition=Q(due_at__isnull=False)),
            models.Index(fields=["tx"], name="chain_action_tx", condition=Q(tx__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.verb} {self.lease_id}"


class StatusEvent(models.Model):
    """One line of a lease's history as its subscribers see it, resumable by id."""

    # The index below begins with the lease: one of its own would only cost.
    lease = models.ForeignKey(Lease, models.CASCADE, db_column="lease_uuid", db_index=False)
    status = models.TextField()
    error = models.TextField(default="", blank=True)
    request_id = models.TextField(db_default="", blank=True, help_text="The request that caused it, if one did.")
    at = models.DateTimeField(db_default=Now(), db_index=True)

    class Meta:
        indexes = [models.Index(fields=["lease", "id"], name="status_event_lease")]

    def __str__(self) -> str:
        return f"{self.status} {self.lease_id}"
