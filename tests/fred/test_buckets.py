"""Token buckets that all processes share, and what is left of them without Valkey."""

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fred import buckets
from fred.buckets import Buckets
from tests.waiting import wait_until


def away():
    return Redis(host="127.0.0.1", port=1, retry=Retry(NoBackoff(), 0))


@pytest.fixture(params=["valkey", "away"])
def make(request, valkey):
    client = (lambda: valkey) if request.param == "valkey" else away
    return lambda **limits: Buckets("test", client=client, **{"rate": 10.0, "burst": 3, **limits})


def test_so_many_at_once_then_it_says_how_long_the_next_takes(make):
    some = make(rate=0.5)
    assert [some.take("a") for _ in range(3)] == [0.0] * 3
    assert 1.5 < some.take("a") <= 2.0
    assert some.take("b") == 0.0


def test_tokens_come_back_but_never_more_than_fit(make):
    some = make(rate=300.0)
    for _ in range(3):
        some.take("a")
    wait_until(lambda: [some.take("a") for _ in range(4)].count(0.0) == 3)


def test_processes_share_them(valkey):
    one, other = (Buckets("test", rate=0.1, burst=4, client=lambda: valkey) for _ in range(2))
    taken = [bucket.take("a") for bucket in (one, other, one, other, one, other)]
    assert taken.count(0.0) == 4


def test_an_unused_bucket_is_forgotten(valkey):
    Buckets("test", rate=10.0, burst=20, client=lambda: valkey).take("a")
    assert 2000 < valkey.pttl("fred:rl:test:a") <= 3000


def test_a_valkey_that_is_away_is_not_asked_for_every_token():
    asked = []

    def client():
        asked.append(1)
        return away()

    some = Buckets("test", rate=1.0, burst=5, client=client)
    assert [some.take("a") for _ in range(5)] == [0.0] * 5
    assert len(asked) == 1


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(buckets, "MOST_KEPT", 3)
    some = Buckets("test", rate=0.1, burst=1, client=away)
    for key in "abcd":
        assert some.take(key) == 0.0
    assert some.take("d") > 0
    assert some.take("a") == 0.0  # forgotten
