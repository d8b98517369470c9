"""Backends of the configuration as rows."""

from io import StringIO

import pytest
from celery import signals
from django.conf import settings
from django.core.management import call_command
from django.db import OperationalError

from backends.models import Backend
from backends.sync import sync_backends
from backends.tasks import sync_at_start
from fred import signing
from fred.conf import BackendConfig
from tests.backends.servers import SECRET

pytestmark = pytest.mark.django_db

SKU = "01987111-0000-7000-8000-000000000001"


@pytest.fixture
def configure(monkeypatch):
    """Make these the configured backends."""

    def use(*entries):
        made = tuple(BackendConfig(**{"url": "http://127.0.0.1:9/", **entry}) for entry in entries)
        tree = settings.FRED.model_copy(update={"backends": made})
        monkeypatch.setattr(settings, "FRED", tree)

    return use


def test_a_new_backend_becomes_a_row(configure):
    configure({"name": "b1", "skus": [SKU.upper()], "timeout": "5s"}, {"name": "b2", "hmac_secret": SECRET})
    assert sync_backends().added == ("b1", "b2")
    first, second = Backend.objects.order_by("position")
    assert (first.name, first.url, first.skus, first.timeout_ms) == ("b1", "http://127.0.0.1:9", [SKU], 5000)
    assert (first.is_default, second.is_default) == (True, False)
    assert (first.contract, second.key_id) == ("auto", signing.key_id(SECRET))
    assert sync_backends() == type(sync_backends())()


def test_the_marked_default_wins(configure):
    configure({"name": "b1"}, {"name": "b2", "default": True})
    sync_backends()
    assert Backend.objects.get(is_default=True).name == "b2"


def test_changes_are_taken_over_and_what_is_gone_stays_unconfigured(configure):
    configure({"name": "b1"}, {"name": "b2"})
    sync_backends()
    configure({"name": "b2", "url": "https://b2.example"})
    done = sync_backends()
    assert (done.added, done.changed, done.unconfigured) == ((), ("b2",), ("b1",))
    assert Backend.objects.get(name="b2").url == "https://b2.example"
    assert not Backend.objects.get(name="b1").configured
    assert sync_backends().unconfigured == ()
    configure({"name": "b1"}, {"name": "b2"})
    sync_backends()
    assert Backend.objects.get(name="b1").configured


def test_the_stricter_fence_wins(configure):
    configure({"name": "b1", "hmac_secret": SECRET})
    sync_backends()
    Backend.objects.update(fenced=True)
    sync_backends()
    assert Backend.objects.get().fenced
    Backend.objects.update(fenced=False)
    configure({"name": "b1", "hmac_secret": SECRET, "fenced": True})
    sync_backends()
    assert Backend.objects.get().fenced


def test_the_command_says_what_it_did_and_lists(configure):
    configure({"name": "b1"}, {"name": "b2"})
    said = StringIO()
    call_command("backends", "sync", stdout=said)
    call_command("backends", "sync", stdout=said)
    assert said.getvalue().splitlines() == ["added: b1", "added: b2", "nothing to do"]
    listed = StringIO()
    call_command("backends", "list", stdout=listed)
    lines = listed.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["NAME", "b1", "b2"]
    assert SECRET not in listed.getvalue()
    assert "default" in lines[1]


def test_a_worker_syncs_when_it_starts(configure, monkeypatch):
    monkeypatch.setattr("backends.tasks.connections.close_all", lambda: None)  # the test's transaction lives in it
    configure({"name": "b7"})
    signals.worker_init.send(sender=None)
    assert Backend.objects.filter(name="b7").exists()


def test_a_worker_starts_although_the_database_is_away(configure, monkeypatch):
    def away():
        raise OperationalError("connection refused")

    monkeypatch.setattr("backends.tasks.connections.close_all", lambda: None)
    monkeypatch.setattr("backends.sync.sync_backends", away)
    sync_at_start()
