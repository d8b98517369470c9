"""The callback route with the database: what a 200 has changed."""

import asyncio
import json
import uuid

import pytest
from django.db import connection

from fred import loop_database
from leases.models import Lease
from placements import callbacks
from placements.callbacks_asgi import CallbackEndpoint
from placements.models import Callback, Operation
from placements.status import OperationState
from tests.factories.placements import OperationFactory
from tests.placements.callback_posts import NOW, config, post, run


@pytest.mark.django_db(transaction=True)
def test_lc59_ta96_five_deliveries_through_three_processes_are_one_effect():
    operation = OperationFactory()
    body = json.dumps({"lease_uuid": str(operation.lease_id), "status": "success"}).encode()

    async def main():
        endpoints = [CallbackEndpoint(config(), clock=lambda: NOW) for _ in range(3)]
        query = f"operation_id={operation.pk}"
        answers = await asyncio.gather(*(post(endpoints[n % 3], body, query=query) for n in range(5)))
        for endpoint in endpoints:
            await endpoint.close()
        return [answer.status for answer in answers]

    assert asyncio.run(main()) == [200] * 5
    assert Callback.objects.count() == 1
    assert Lease.objects.get().epoch == 1
    assert Operation.objects.get().state == OperationState.SUCCEEDED


@pytest.mark.django_db(transaction=True)
def test_lc62_a_lost_connection_is_503_and_the_next_callback_is_stored():
    operation = OperationFactory()
    body = json.dumps({"lease_uuid": str(operation.lease_id), "status": "success"}).encode()
    kills = iter([True, False])

    def apply(batch):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            pid = cursor.fetchone()[0]
        if next(kills):
            killer = connection.copy()
            with killer.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
            killer.close()
        return callbacks.apply(batch)

    async def work(endpoint):
        query = f"operation_id={operation.pk}"
        return [(await post(endpoint, body, query=query)).status for _ in range(2)]

    assert run(work, apply=apply)[0] == [503, 200]
    assert Operation.objects.get().state == OperationState.SUCCEEDED


async def end_session(pid):
    other = await loop_database.connect()
    try:
        found = await other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
        assert await found.fetchone() == (True,)
    finally:
        await other.close()


def session():
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]


@pytest.mark.django_db(transaction=True)
def test_a_callback_after_the_database_ended_the_idle_connection_is_stored_at_once():
    operation = OperationFactory()
    body = json.dumps({"lease_uuid": str(operation.lease_id), "status": "success"}).encode()

    async def work(endpoint):
        await end_session(await endpoint.batcher.call(session))
        return (await post(endpoint, body, query=f"operation_id={operation.pk}")).status

    assert run(work, apply=callbacks.apply)[0] == 200
    assert Operation.objects.get().state == OperationState.SUCCEEDED


@pytest.mark.django_db(transaction=True)
def test_what_is_read_for_callbacks_is_read_after_the_database_ended_the_idle_connection():
    async def work(endpoint):
        before = await endpoint.batcher.call(session)
        await end_session(before)
        return before, await endpoint.batcher.call(session)

    before, after = run(work)[0]
    assert before != after


@pytest.mark.django_db(transaction=True)
def test_ta93_ta95_a_callback_of_an_unknown_lease_needs_neither_chain_nor_backend():
    body = json.dumps({"lease_uuid": str(uuid.uuid4()), "status": "success"}).encode()
    answer, _ = run(lambda endpoint: post(endpoint, body), apply=callbacks.apply)
    assert answer.status == 200
    assert Lease.objects.get().due_at is not None


@pytest.mark.django_db(transaction=True)
def test_many_callbacks_of_many_leases_land_in_few_transactions():
    operations = OperationFactory.create_batch(300)
    batches = []

    def apply(batch):
        batches.append(len(batch))
        return callbacks.apply(batch)

    async def work(endpoint):
        def one(operation):
            body = json.dumps({"lease_uuid": str(operation.lease_id), "status": "success"}).encode()
            return post(endpoint, body, query=f"operation_id={operation.pk}")

        answers = await asyncio.gather(*(one(operation) for operation in operations))
        return {answer.status for answer in answers}

    statuses, _ = run(work, apply=apply)
    assert statuses == {200}
    assert sum(batches) == 300
    assert len(batches) < 10
    assert Operation.objects.filter(state=OperationState.SUCCEEDED).count() == 300
