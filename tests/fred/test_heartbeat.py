"""Processes show that they live; a difference of settings shows too."""

import os
import time

import pytest

from fred import heartbeat
from fred.heartbeat import Heartbeat
from tests.waiting import wait_until


@pytest.fixture
def beat(valkey):
    started = []

    def start(process, fingerprint="a"):
        made = Heartbeat(os.environ["REDIS_URL"], process=process, version="1", fingerprint=fingerprint)
        made.start()
        started.append(made)
        return made

    yield start
    for made in started:
        made.stop()


def processes():
    return dict(heartbeat.living(os.environ["REDIS_URL"]).processes)


def test_a_process_is_seen_until_it_stops(valkey, beat):
    made = beat("web")
    wait_until(lambda: processes() == {"web": 1})
    (key,) = valkey.keys("fred:up:*")
    assert 0 < valkey.ttl(key) <= 60
    made.stop()
    assert processes() == {}


def test_equal_settings_match_and_others_do_not(beat):
    beat("web", "a")
    beat("worker", "a")
    wait_until(lambda: processes() == {"web": 1, "worker": 1})
    assert not heartbeat.living(os.environ["REDIS_URL"]).mismatch
    beat("watcher", "b")
    wait_until(lambda: len(processes()) == 3)
    assert heartbeat.living(os.environ["REDIS_URL"]).mismatch


def test_a_valkey_that_is_away_costs_nothing():
    made = Heartbeat("redis://127.0.0.1:1/0", process="web", version="1", fingerprint="a")
    made.start()
    started = time.monotonic()
    made.stop()
    made.stop()
    assert time.monotonic() - started < 4
