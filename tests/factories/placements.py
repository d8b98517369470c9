"""Placements and operations."""

import hashlib
import uuid

import factory
from django.utils import timezone

from placements.command_status import CommandState
from placements.models import MaintenanceCommand, Operation, Placement
from placements.status import OperationState
from tests.factories.backends import BackendFactory
from tests.factories.leases import LeaseFactory


class OperationFactory(factory.django.DjangoModelFactory):
    """An open operation that its backend accepted."""

    class Meta:
        model = Operation

    id = factory.LazyFunction(uuid.uuid4)
    lease = factory.SubFactory(LeaseFactory)
    backend = factory.SubFactory(BackendFactory)
    tenant = factory.SelfAttribute("lease.tenant")
    provider_uuid = factory.SelfAttribute("lease.provider_uuid")
    items = factory.SelfAttribute("lease.items")
    callback_url = factory.LazyAttribute(lambda op: f"http://fred.test/callbacks/provision?operation_id={op.id}")
    state = OperationState.ACCEPTED


class PlacementFactory(factory.django.DjangoModelFactory):
    """A lease's confirmed owner."""

    class Meta:
        model = Placement

    lease = factory.SubFactory(LeaseFactory)
    backend = factory.SubFactory(BackendFactory)
    status = Placement.Status.CONFIRMED


class CommandFactory(factory.django.DjangoModelFactory):
    """A restart that a tenant asked for with a key, not sent yet."""

    class Meta:
        model = MaintenanceCommand

    id = factory.LazyFunction(uuid.uuid4)
    lease = factory.SubFactory(LeaseFactory)
    kind = "restart"
    maintenance_id = factory.LazyFunction(uuid.uuid4)
    keyed = True
    tenant = factory.SelfAttribute("lease.tenant")
    backend = factory.SubFactory(BackendFactory)
    callback_url = factory.LazyAttribute(lambda c: f"http://fred.test/callbacks/provision?lifecycle_id={c.id}")
    admitted_at = factory.LazyFunction(timezone.now)
    payload_sha256 = hashlib.sha256(b"").digest()
    state = CommandState.RESERVED
