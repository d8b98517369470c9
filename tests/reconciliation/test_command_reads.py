"""What a backend shows of restarts and updates, read for a look."""

import json
import uuid

import pytest

from backends.client import BackendClient
from backends.requests import BackendTarget
from fred.http import ErrorKind, HttpError, Response
from reconciliation import command_reads
from reconciliation.command_facts import MaintenanceFact
from reconciliation.facts_types import Absent, Unknown
from reconciliation.sources import Sources

LEASE = uuid.UUID("0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b")


def said(status, body=b"", error=None):
    """An answer."""
    return Response(tag=None, status=status, body=body, error=error, elapsed=0.0)


def row(status):
    """A point read that finds the lease in this state."""
    return said(200, json.dumps({"lease_uuid": str(LEASE), "status": status}).encode())


SILENT = said(0, error=HttpError(ErrorKind.TIMEOUT, "no answer"))
MISSING, BROKEN = said(404), said(500)
RELEASES = said(200, b'[{"version":1,"status":"failed","manifest":"aGk=","message":"no"}]')


def client(point, releases):
    """A client of a backend that says these."""
    target = BackendTarget(name="b1", url="http://127.0.0.1:9")
    return BackendClient(target, fetch=lambda request: releases if "/releases/" in request.url else point)


@pytest.mark.parametrize(
    ("point", "releases", "shown"),
    [
        (SILENT, RELEASES, Unknown("backend_silent")),
        (BROKEN, RELEASES, Unknown("backend_silent")),
        (MISSING, RELEASES, Absent()),
        (row("ready"), SILENT, Unknown("backend_silent", is_own=True)),
        (row("ready"), BROKEN, Unknown("backend_silent", is_own=True)),
        (row("restarting"), BROKEN, MaintenanceFact("restarting")),
        (row("ready"), MISSING, MaintenanceFact("ready")),
    ],
)
def test_what_is_read(point, releases, shown):
    assert command_reads.read(LEASE, client(point, releases)) == shown


def test_a_release_is_told_by_the_digest_of_its_manifest():
    (release,) = command_reads.read(LEASE, client(row("ready"), RELEASES)).releases
    assert (release.version, release.status, release.message) == (1, "failed", "no")
    assert release.sha256.hex().startswith("8f434346648f6b96df89dda901c5176b")


@pytest.mark.parametrize(("point", "is_silent"), [(SILENT, True), (row("ready"), False)])
def test_releases_that_can_not_be_read_make_no_backend_silent(point, is_silent, monkeypatch):
    sources = Sources()
    monkeypatch.setattr(Sources, "backend", lambda *_: client(point, BROKEN))
    assert sources.maintenance_reads({LEASE: "b1"})[LEASE].reason == "backend_silent"
    assert sources.answers("b1") is not is_silent
