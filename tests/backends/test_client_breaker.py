"""Fences, the breaker and health: who is asked at all, and what the breaker hears."""

import threading
from functools import partial

import pytest

from backends.client import BREAKER_OPEN, BackendClient, ask_each
from backends.contract import BackendUnavailable, Busy, Dialect, Unknown
from tests.backends.client_reads import Listening, Refusing, read
from tests.backends.servers import LEASE, peer, says, target


def test_bc75_a_fenced_backend_is_never_contacted():
    """P17"""
    with peer() as server:
        client = BackendClient(target(server.url, fenced=True))
        assert client.info(LEASE) == Unknown('backend "b1" is fenced')
        assert client.health().error == 'backend "b1" is fenced'
        with pytest.raises(BackendUnavailable, match="fenced"):
            client.provisions()
        assert server.connections == 0


def test_an_open_breaker_stops_reads_but_neither_walks_nor_probes():
    """BC-57"""
    with peer(says(200, {"provisions": []})) as server:
        client = BackendClient(target(server.url), Refusing())
        assert client.info(LEASE) == Unknown("circuit breaker is open")
        assert server.got == []
        assert client.provisions().complete
        assert client.health().healthy


@pytest.mark.parametrize(
    ("script", "pulse"),
    [
        (says(200, {}), "success"),
        (says(404, b""), "success"),
        (says(500, b""), "failure"),
        (says(200, b"<"), "failure"),
        (lambda _got: None, "failure"),
    ],
)
def test_the_breaker_hears_what_each_read_told(script, pulse):
    gate = Listening()
    with peer(script) as server:
        BackendClient(target(server.url), gate).info(LEASE)
    assert gate.pulses == [pulse]


@pytest.mark.parametrize(("limit", "pulse"), [(0.05, "neutral"), (None, "failure")])
def test_p8_our_own_haste_says_nothing_about_the_backend(limit, pulse):
    gate, held = Listening(), threading.Event()
    with peer(lambda _got: held.wait(5) and None) as server:
        client = BackendClient(target(server.url, timeout=1.0 if limit else 0.05), gate, limit=limit)
        assert isinstance(client.info(LEASE), Unknown)
        held.set()
    assert gate.pulses == [pulse]


@pytest.mark.parametrize(
    ("body", "reason", "pulse"),
    [
        (b'{"error":"busy","code":"insufficient_resources"}', "busy: busy", "success"),
        (b"", "get_logs failed with status 503: ", "failure"),
        (b"<html>", "backend returned an unrecognized error response", "failure"),
    ],
)
def test_bc28_a_busy_current_backend(body, reason, pulse):
    gate = Listening()
    with peer(says(503, body)) as server:
        found = BackendClient(target(server.url, dialect=Dialect.CURRENT), gate).logs(LEASE)
    assert (found.reason, gate.pulses) == (reason, [pulse])
    assert isinstance(found, Busy) == (pulse == "success")


@pytest.mark.parametrize(
    ("script", "healthy", "error"),
    [
        (says(200, b"whatever"), True, ""),
        (says(503, {"error": "x"}), False, "backend unhealthy: status 503"),
    ],
)
def test_health_goes_by_the_status(script, healthy, error):
    """P18"""
    found, got = read(script, "health")
    assert (found.healthy, found.error) == (healthy, error)
    assert "x-fred-signature" in got[0].headers


def test_health_of_a_silent_backend():
    """P18"""
    found, _ = read(lambda _got: None, "health")
    assert found.error.startswith("health check failed: ")


def test_reads_at_once_are_told_as_they_end_and_the_given_up_ones_say_nothing_of_their_backend():
    held, gates = threading.Event(), {name: Listening() for name in ("fast", "slow", "failing")}
    with (
        peer(says(200, {"lease_uuid": str(LEASE), "status": "ready"})) as fast,
        peer(lambda got: held.wait(5) and None) as slow,
        peer(says(500)) as failing,
    ):
        clients = {
            name: BackendClient(target(server.url), gates[name])
            for name, server in (("fast", fast), ("slow", slow), ("failing", failing))
        }
        found = ask_each({name: partial(client.begin_provision_info, LEASE) for name, client in clients.items()})
        two = dict([next(found), next(found)])
        found.close()
        held.set()
    assert (two["fast"].status, isinstance(two["failing"], Unknown)) == ("ready", True)
    assert {name: gate.pulses for name, gate in gates.items()} == {
        "fast": ["success"],
        "failing": ["failure"],
        "slow": ["neutral"],
    }


def test_a_read_that_is_not_let_through_is_told_without_a_request():
    client = BackendClient(target("http://127.0.0.1:1"), Refusing())
    assert dict(ask_each({"one": lambda: client.begin_lookup([LEASE])})) == {"one": Unknown(BREAKER_OPEN)}


def test_who_fails_to_begin_a_read_gives_up_those_that_were_begun():
    gates = [Listening(), Listening()]
    clients = [BackendClient(target("http://127.0.0.1:1"), gate) for gate in gates]

    def ended():
        raise KeyboardInterrupt

    asked = {number: partial(one.begin_provision_info, LEASE) for number, one in enumerate(clients)}
    with pytest.raises(KeyboardInterrupt):
        list(ask_each({**asked, "last": ended}))
    assert [gate.pulses for gate in gates] == [["neutral"], ["neutral"]]
