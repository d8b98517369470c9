"""The bodies of the API as types: what the OpenAPI document says of them, and what answers are tested against.

The routes themselves write their answers field by field, in the order that clients know. A field that is left out when
it is empty is not required; none but a release's manifest may be null.
"""

from typing import Any, Final

from drf_spectacular.extensions import OpenApiSerializerFieldExtension
from rest_framework import serializers
from rest_framework.serializers import BooleanField, CharField, DateTimeField, DictField, IntegerField, ListField

from tenants_api import known_words

LEASE: Final = "The lease as it is written in the path."


class OpenWord(CharField):
    """A text of an open set: these values are known today, clients take any other too."""

    def __init__(self, *, known: tuple[str, ...], **options: Any) -> None:
        super().__init__(**options)
        self.known = known


class Base64(CharField):
    """Bytes in the standard alphabet with padding."""


class OpenWordSchema(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]
    """Known values stand beside the type, never as an enumeration."""

    target_class = OpenWord

    def map_serializer_field(self, auto_schema: Any, direction: str) -> dict[str, Any]:  # noqa: ARG002
        """A text with its known values."""
        return {"type": "string", "x-known-values": list(self.target.known)}


class Base64Schema(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]
    """The format of bytes."""

    target_class = Base64

    def map_serializer_field(self, auto_schema: Any, direction: str) -> dict[str, Any]:  # noqa: ARG002
        """A text of bytes."""
        return {"type": "string", "format": "byte"}


class ErrorSerializer(serializers.Serializer[Any]):
    """What every refusal looks like."""

    error = CharField(help_text="A text for people.")
    code = IntegerField(help_text="The HTTP status.")
    reason = OpenWord(known=known_words.REASONS, required=False, help_text="Only where the status is not enough.")


class ProblemSerializer(ErrorSerializer):
    """The same for who accepts problem details (RFC 9457)."""

    type = CharField(required=False)
    title = CharField(required=False)
    status = IntegerField(required=False)
    detail = CharField(required=False)
    instance = CharField(required=False)
    request_id = CharField(required=False)
    error_code = OpenWord(known=known_words.ERROR_CODES, required=False, help_text="A stable name of the refusal.")


class PortMappingSerializer(serializers.Serializer[Any]):
    """Where a port of a container is reached."""

    host_ip = CharField()
    host_port = IntegerField(help_text="0 when the backend named none that can be used.")


class InstanceSerializer(serializers.Serializer[Any]):
    """One running container."""

    instance_index = IntegerField()
    container_id = CharField(required=False)
    image = CharField(required=False)
    status = CharField(required=False)
    fqdn = CharField(required=False)
    ports = DictField(child=PortMappingSerializer(), required=False, help_text="By the container's own port.")


class ServiceSerializer(serializers.Serializer[Any]):
    """One service of a stack."""

    fqdn = CharField(required=False)
    instances = ListField(child=InstanceSerializer())


class ConnectionDetailsSerializer(serializers.Serializer[Any]):
    """How a lease is reached, as its backend tells it."""

    host = CharField()
    fqdn = CharField(required=False)
    ports = DictField(child=PortMappingSerializer(), required=False)
    instances = ListField(child=InstanceSerializer(), required=False)
    services = DictField(child=ServiceSerializer(), required=False)
    protocol = CharField(required=False)
    metadata = DictField(child=CharField(), required=False, help_text="The backend's own words, passed on unchanged.")


class LeaseHead(serializers.Serializer[Any]):
    """What every answer about a lease begins with."""

    lease_uuid = CharField(help_text=LEASE)
    tenant = CharField(help_text="The caller's address.")
    provider_uuid = CharField()


class LeaseConnectionSerializer(LeaseHead):
    """How a running lease is reached."""

    connection = ConnectionDetailsSerializer()


class TerminalBudgetSerializer(serializers.Serializer[Any]):
    """How many failures in a row the backend has counted, and what it makes of them."""

    verdict = OpenWord(known=("retry", "exhausted"))
    consecutive_failures = IntegerField()


class LeaseItemSerializer(serializers.Serializer[Any]):
    """One line of a lease."""

    sku = CharField()
    quantity = IntegerField()
    service_name = CharField(required=False)
    custom_domain = CharField(required=False)


class Diagnosis(serializers.Serializer[Any]):
    """What a backend says of a provision beside its state."""

    terminal_budget = TerminalBudgetSerializer(required=False)
    reason = OpenWord(known=known_words.FAILURES, required=False)
    message = CharField(required=False, help_text="The backend's curated text.")
    retained_until = DateTimeField(required=False, help_text="Only of retained data, like all that follows.")
    items = ListField(child=LeaseItemSerializer(), required=False, help_text="What a lease to restore into must have.")
    restore_hint = CharField(required=False, help_text="For people.")
    partition = CharField(required=False)


class LeaseStatusSerializer(Diagnosis, LeaseHead):
    """A lease on the chain, what was done for it, and what its backend says."""

    state = OpenWord(known=known_words.LEASE_STATES)
    requires_payload = BooleanField()
    meta_hash_hex = CharField(required=False, help_text="The hash that the chain has, in lower-case hex.")
    payload_received = BooleanField()
    provisioning_started = BooleanField(help_text="A provision or a restore is under way.")
    provision_status = OpenWord(
        known=known_words.PROVISION_STATES, required=False, help_text="Missing when no backend can be asked."
    )
    fail_count = IntegerField(required=False)


class LeaseProvisionSerializer(Diagnosis, LeaseHead):
    """What a backend says of a lease."""

    status = OpenWord(known=known_words.PROVISION_STATES)
    fail_count = IntegerField(help_text="Always there, also 0.")


class LeaseLogsSerializer(LeaseHead):
    """The last lines of each instance."""

    logs = DictField(child=CharField(), help_text="By the backend's name of the instance.")


class ReleaseSerializer(serializers.Serializer[Any]):
    """One version of a lease's workload."""

    version = IntegerField()
    image = CharField()
    status = OpenWord(known=known_words.RELEASE_STATES)
    created_at = DateTimeField()
    reason = OpenWord(known=known_words.FAILURES, required=False)
    message = CharField(required=False)
    manifest = Base64(allow_null=True, help_text="The bytes that were deployed.")


class LeaseReleasesSerializer(LeaseHead):
    """The versions of a lease's workload, oldest first."""

    releases = ListField(child=ReleaseSerializer())


class LeaseStatusEventSerializer(serializers.Serializer[Any]):
    """One event of the stream."""

    lease_uuid = CharField()
    status = OpenWord(known=known_words.PROVISION_STATES)
    error = CharField(required=False)
    timestamp = DateTimeField()
    id = CharField(required=False, help_text="Only for who asked with a cursor: where to go on.")
    gap = BooleanField(required=False, help_text="True: events before this one are not kept any more.")


class ActionAcceptedSerializer(serializers.Serializer[Any]):
    """Something was begun."""

    status = OpenWord(known=("restarting", "updating", "provisioning"))


class UpdateRequestSerializer(serializers.Serializer[Any]):
    """The manifest to run from now on."""

    payload = Base64()


class RestoreRequestSerializer(serializers.Serializer[Any]):
    """The ended lease whose retained data the new one takes over."""

    from_lease_uuid = CharField()


class ProvisionCallbackSerializer(serializers.Serializer[Any]):
    """What a backend reports of a lease."""

    lease_uuid = CharField()
    status = OpenWord(known=("success", "failed", "deprovisioned"))
    error = CharField(required=False)
    backend = CharField(required=False)
    maintenance_id = CharField(required=False)
    maintenance_admitted_at = CharField(required=False)
    backend_storage_id = CharField(required=False)
    retained = BooleanField(required=False)


class AccessTokenSerializer(serializers.Serializer[Any]):
    """The JSON inside an access token. It signs `<tenant>:<lease_uuid>:<timestamp>` as ADR-036 says."""

    tenant = CharField(help_text="Bech32 address.")
    lease_uuid = CharField(help_text="Exactly as in the path.")
    timestamp = IntegerField(help_text="Unix seconds; good for 30 s.")
    pub_key = Base64(help_text="33 bytes, compressed secp256k1.")
    signature = Base64(help_text="64 bytes, r and s.")


class PayloadTokenSerializer(AccessTokenSerializer):
    """The JSON inside a payload token. It signs `manifest lease data <lease_uuid> <meta_hash> <timestamp>`."""

    meta_hash = CharField(help_text="SHA-256 of the payload, 64 hexadecimal digits.")


class HealthCheckSerializer(serializers.Serializer[Any]):
    """One check."""

    status = OpenWord(known=("healthy", "unhealthy"))
    message = CharField(required=False)


class HealthStatsSerializer(serializers.Serializer[Any]):
    """Figures."""

    in_flight_provisions = IntegerField()


class HealthSerializer(serializers.Serializer[Any]):
    """The verdict and the checks that it comes from."""

    status = OpenWord(known=("healthy", "degraded", "unhealthy"))
    provider_uuid = CharField()
    checks = DictField(child=HealthCheckSerializer())
    stats = HealthStatsSerializer(required=False)


class WorkloadItemSerializer(serializers.Serializer[Any]):
    """One service of a workload."""

    service_name = CharField(required=False)
    sku = CharField()
    image = CharField(required=False, help_text="Without tag and digest.")
    count = IntegerField()


class WorkloadSerializer(serializers.Serializer[Any]):
    """What runs for a lease."""

    status = OpenWord(known=known_words.PROVISION_STATES)
    created_at = DateTimeField()
    backend_name = CharField()
    items = ListField(child=WorkloadItemSerializer())


class WorkloadLookupSerializer(serializers.Serializer[Any]):
    """What runs for the leases that were asked about."""

    workloads = DictField(child=WorkloadSerializer(), help_text="By the lease's UUID.")
    warnings = ListField(child=CharField(), help_text="Backends that could not be asked.")
