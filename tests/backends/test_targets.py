"""Which backends there are, and which of them serve a SKU."""

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
