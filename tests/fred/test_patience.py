"""What a busy machine must not decide in a test, and what stays as it is in a house."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from fred import valkey as house_valkey
from fred.breaker import _process
from reconciliation import rotation
from tests.patient import ANSWER_S


def idle_limit():
    with connection.cursor() as cursor:
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        return cursor.fetchone()[0]


def on_a_thread(work):
    def worked():
        try:
            return work()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(worked).result()


@pytest.mark.django_db
def test_a_tests_own_transaction_may_be_idle():
    assert idle_limit() == "0"


@pytest.mark.django_db(transaction=True)
def test_threads_have_the_limit_of_a_house():
    assert on_a_thread(idle_limit) == "3s"


def test_valkey_has_its_time():
    clients = house_valkey.client(), _process.valkey(), rotation._client()
    assert [one.connection_pool.connection_kwargs["socket_timeout"] for one in clients] == [ANSWER_S] * 3
