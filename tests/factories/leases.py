"""Leases as a read of the chain leaves them."""

import hashlib
import uuid

import factory
from django.conf import settings

from leases.models import ChainCursor, Lease, Payload
from leases.status import LeaseState


class LeaseFactory(factory.django.DjangoModelFactory):
    """A PENDING lease of ours, read at height 10, at rest."""

    class Meta:
        model = Lease

    uuid = factory.LazyFunction(uuid.uuid4)
    tenant = "manifest1lqurt6ul2zm6x7yu670yty8w3uhg5hs5m6wd8d"
    provider_uuid = factory.LazyFunction(lambda: settings.FRED.provider_uuid)
    chain_state = LeaseState.PENDING
    chain_height = 10
    items = factory.LazyFunction(lambda: [{"sku": str(uuid.uuid4()), "quantity": 1}])


class PayloadFactory(factory.django.DjangoModelFactory):
    """The payload in force of a lease."""

    class Meta:
        model = Payload

    lease = factory.SubFactory(LeaseFactory)
    body = b"payload"
    sha256 = factory.LazyAttribute(lambda payload: hashlib.sha256(payload.body).digest())


class ChainCursorFactory(factory.django.DjangoModelFactory):
    """A watcher that is up to date."""

    class Meta:
        model = ChainCursor

    chain_id = factory.LazyFunction(lambda: settings.FRED.chain_id)
    last_height = 10
    head_height = 10
