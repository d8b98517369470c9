"""Which backends there are, and which of them serve a SKU."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from uuid import UUID

import pytest
from django.utils import timezone

from backends import targets
from backends.models import Backend
from fred.conf import BackendConfig

pytestmark = pytest.mark.django_db
A, B = UUID(int=10), UUID(int=11)


@pytest.fixture
def configure(settings):
    def apply(**skus):
        config = tuple(BackendConfig(name=name, url="http://h", skus=listed) for name, listed in skus.items())
        settings.FRED = settings.FRED.model_copy(update={"backends": config})

    targets.forget()
    yield apply
    targets.forget()


def test_a_sku_is_served_by_all_that_list_it_in_their_order(configure):
    configure(b2=[str(A), str(B)], b1=[str(A).upper(), str(A)], b3=[])
    assert [list(targets.serving(sku)) for sku in (str(A), str(B), "", str(UUID(int=12)))] == [
        ["b2", "b1"],
        ["b2"],
        [],
        [],
    ]


def test_other_settings_count_at_once(configure):
    configure(b1=[str(A)])
    assert list(targets.serving(str(A))) == list(targets.configured()) == ["b1"]
    configure(b2=[str(B)])
    assert not targets.serving(str(A))
    assert list(targets.serving(str(B))) == list(targets.configured()) == ["b2"]


def test_a_retired_backend_still_lists_its_skus_but_is_no_target(configure):
    configure(b1=[str(A)], b2=[])
    Backend.objects.create(name="b1", retired_at=timezone.now())
    assert list(targets.configured()) == ["b2"]
    assert list(targets.serving(str(A))) == ["b1"]
    assert targets.target("b1") is None


def test_while_one_reads_the_rows_anew_others_go_by_what_is_known(configure, monkeypatch):
    configure(b1=[])
    known = targets.configured()
    now = SimpleNamespace(at=time.monotonic() + targets.FRESH_S + 0.1)
    began, may_end = threading.Event(), threading.Event()

    def rows():
        began.set()
        assert may_end.wait(10)
        return [Backend(name="b1", fenced=True)]

    monkeypatch.setattr(targets, "time", SimpleNamespace(monotonic=lambda: now.at))
    monkeypatch.setattr(targets, "Backend", SimpleNamespace(objects=SimpleNamespace(all=rows)))
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(targets.configured)
        assert began.wait(10)
        assert [targets.configured() for _ in range(3)] == [known] * 3
        now.at += targets.SPARE_S
        second = threads.submit(targets.configured)  # what is known is too old by now, for everybody
        may_end.set()
        assert [one.result(10)["b1"].fenced for one in (first, second)] == [True, True]


def test_a_fence_is_seen_everywhere_within_five_seconds_with_a_second_to_spare():
    assert targets.FRESH_S + targets.SPARE_S <= 4.0
