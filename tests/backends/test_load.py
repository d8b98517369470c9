"""Load figures: asked by one process, known to all for two seconds, and a silent backend left alone for five."""

import threading

import pytest

from backends import load, targets
from fred import breaker, metrics
from fred.conf import BackendConfig
from tests.backends.servers import peer, says

pytestmark = pytest.mark.django_db
FIGURES = {"total_cpu_cores": 8, "allocated_cpu_cores": 2}


@pytest.fixture
def configure(settings, valkey):
    def apply(url):
        config = (BackendConfig(name="b1", url=url, timeout="30s"),)
        settings.FRED = settings.FRED.model_copy(update={"backends": config})

    for module in (breaker, load, targets):
        module.forget()
    yield apply
    for module in (breaker, load, targets):
        module.forget()


def another_process():
    load.forget()


def test_what_one_process_was_told_the_others_need_not_ask(configure, valkey):
    with peer(says(200, FIGURES)) as server:
        configure(server.url)
        assert load.of(["b1"])["b1"].cpu_ratio == 0.25
        another_process()
        assert load.of(["b1"])["b1"].cpu_ratio == 0.25
        assert len(server.got) == 1
        assert 500 < valkey.pttl("fred:stats:b1") <= 2000
        valkey.delete("fred:stats:b1")  # two seconds pass
        another_process()
        assert load.of(["b1"])["b1"].cpu_ratio == 0.25
        assert len(server.got) == 2


def test_a_backend_without_figures_is_left_alone_by_all(configure, valkey):
    with peer(says(500)) as server:
        configure(server.url)
        assert load.of(["b1"]) == {}
        another_process()
        assert load.of(["b1"]) == {}
        assert len(server.got) == 1
        assert 2500 < valkey.pttl("fred:stats:b1") <= 5000


@pytest.mark.parametrize("raw", [b"<", b"[]", b'{"total_cpu_cores":"8"}'])
def test_what_cannot_be_read_is_asked_anew(configure, valkey, raw):
    with peer(says(200, FIGURES)) as server:
        configure(server.url)
        valkey.set("fred:stats:b1", raw, px=2000)
        assert load.of(["b1"])["b1"].cpu_ratio == 0.25


def test_without_valkey_each_process_asks_for_itself(configure, monkeypatch):
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    away = Redis(host="127.0.0.1", port=1, retry=Retry(NoBackoff(), 0))
    monkeypatch.setattr("fred.valkey.client", lambda: away)
    with peer(says(200, FIGURES)) as server:
        configure(server.url)
        for _ in range(3):
            assert load.of(["b1"])["b1"].cpu_ratio == 0.25
        assert len(server.got) == 1


def test_bc63_figures_have_two_seconds_and_their_absence_trips_no_breaker(configure, monkeypatch, valkey):
    monkeypatch.setattr(load, "STATS_SECONDS", 0.05)
    held = threading.Event()
    with peer(lambda _got: held.wait(5) and None) as server:
        configure(server.url)
        for _ in range(breaker.THRESHOLD + 1):
            another_process()
            valkey.delete("fred:stats:b1")
            assert load.of(["b1"]) == {}
        held.set()
    assert not breaker.is_open("b1")


def test_the_share_of_the_cpus_is_a_gauge(configure):
    with peer(says(200, FIGURES)) as server:
        configure(server.url)
        load.of(["b1"])
    assert metrics.BACKEND_ALLOCATED_CPU_RATIO.labels("b1")._value.get() == 0.25
