"""What a transaction counts is counted with its commit: never twice, and not at all when it is rolled back."""

import pytest
from django.db import OperationalError, transaction
from prometheus_client import CollectorRegistry, Counter, Histogram

from fred import counting, due

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def counter(request):
    """A counter of this test's own: values of one name are one value in a process."""
    return Counter(request.node.name, "", registry=CollectorRegistry())


@pytest.fixture
def histogram(request):
    return Histogram(f"{request.node.name}_seconds", "", registry=CollectorRegistry())


class DeadlockError(Exception):
    sqlstate = "40P01"


def test_a_transaction_that_is_run_again_counts_once(counter, histogram):
    tries = []

    def work():
        counting.count(counter, 3)
        counting.observe(histogram, 0.5)
        tries.append(counter._value.get())
        if len(tries) < 3:
            raise OperationalError from DeadlockError()

    due.in_transaction(work)
    assert tries == [0, 0, 0], "nothing is counted before the commit"
    assert (counter._value.get(), histogram._sum.get()) == (3, 0.5)


def test_what_is_rolled_back_is_not_counted(counter):
    def work():
        with transaction.atomic():
            counting.count(counter)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        work()
    assert counter._value.get() == 0


def test_a_savepoint_that_is_rolled_back_takes_its_own_counts_along(counter):
    with transaction.atomic():
        counting.count(counter, 10)
        try:
            with transaction.atomic():
                counting.count(counter, 5)
                raise RuntimeError
        except RuntimeError:
            pass
    assert counter._value.get() == 10


def test_without_a_transaction_it_is_counted_at_once(counter):
    counting.count(counter)
    counting.count(counter, 0)
    assert counter._value.get() == 1
