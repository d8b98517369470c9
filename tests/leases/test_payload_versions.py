"""Versions of a payload: what an update proposes, puts in force, and takes back."""

from datetime import timedelta

import pytest
from django.utils import timezone

from leases import payload_versions
from leases.models import Payload
from reconciliation import cleaning
from tests.factories.leases import LeaseFactory, PayloadFactory

pytestmark = pytest.mark.django_db


def states(lease):
    return [(one.state, bytes(one.body)) for one in Payload.objects.filter(lease=lease).order_by("id")]


def test_a_version_stays_until_the_next_one_is_known_to_run():
    lease = PayloadFactory(body=b"0").lease
    one = payload_versions.propose(lease.pk, b"1")
    payload_versions.promote([one])
    Payload.objects.filter(delete_after__isnull=False).update(delete_after=timezone.now() - timedelta(days=1))
    cleaning.old_rows()
    assert states(lease) == [("superseded", b"0"), ("current", b"1")]
    payload_versions.confirm([one])
    Payload.objects.filter(delete_after__isnull=False).update(delete_after=timezone.now() - timedelta(seconds=1))
    cleaning.old_rows()
    assert states(lease) == [("current", b"1")]


def test_versions_go_back_one_at_a_time_and_only_what_was_in_force_comes_back():
    lease = PayloadFactory(body=b"0").lease
    one, two, three = (payload_versions.propose(lease.pk, body) for body in (b"1", b"2", b"3"))
    payload_versions.promote([one])
    payload_versions.promote([two])
    payload_versions.take_back([one])  # the older of two that are awaited failed: the newer is in force
    assert states(lease) == [("superseded", b"0"), ("failed", b"1"), ("current", b"2"), ("proposed", b"3")]
    payload_versions.take_back([two])
    assert states(lease)[0] == ("current", b"0")
    payload_versions.take_back([three])
    assert [state for state, _ in states(lease)] == ["current", "failed", "failed", "failed"]
    payload_versions.promote([three])
    assert states(lease)[0] == ("current", b"0")


def test_a_lease_that_had_no_payload_has_none_again():
    lease = LeaseFactory()
    only = payload_versions.propose(lease.pk, b"1")
    payload_versions.promote([only])
    payload_versions.take_back([only])
    assert states(lease) == [("failed", b"1")]


def test_a_version_whose_bytes_changed_is_not_sent():
    lease = LeaseFactory()
    sound, changed = (payload_versions.propose(lease.pk, body) for body in (b"1", b"2"))
    Payload.objects.filter(pk=changed).update(body=b"3")
    assert payload_versions.bodies([sound, changed]) == {sound: b"1"}
    payload_versions.discard([sound, changed])
    assert states(lease) == []
