"""What is begun for a request before its address is known to be let in."""

from __future__ import annotations

import asyncio

import pytest

from fred import address_limit
from fred.address_limit import CALLBACKS, AddressLimit, Along
from fred.loop_buckets import LoopBuckets

SCOPE = {"type": "http", "method": "GET", "path": "/x"}


@pytest.fixture
def on_a_loop(valkey):
    """Run `work(limit, begun)` with one request for each address, and what begins work beforehand noted."""

    def run(work):
        async def main():
            begun = []
            other = LoopBuckets("other", rate=0.001, burst=100)

            def ahead(_):
                begun.append(Along(other, "t"))
                return begun[-1]

            limit = AddressLimit(rate=0.001, burst=1, ahead=ahead)
            try:
                return await work(limit, begun)
            finally:
                await limit.close()

        return asyncio.run(main())

    return run


def test_work_begins_ahead_until_the_address_is_refused_and_again_once_it_is_let_in(on_a_loop, valkey):
    async def work(limit, begun):
        first = [(await limit.admits(SCOPE, "1.2.3.4"), len(begun)) for _ in range(3)]
        valkey.flushdb()
        again = [(await limit.admits(SCOPE, "1.2.3.4"), len(begun)) for _ in range(2)]
        return first + again, [one.draw and one.draw.remaining for one in begun]

    told, draws = on_a_loop(work)
    assert told == [(True, 1), (False, 2), (False, 2), (True, 2), (False, 3)]
    assert draws == [99, None, None]


def test_nothing_begins_ahead_for_a_callback(on_a_loop):
    async def work(limit, begun):
        return await limit.admits({**SCOPE, "method": "POST", "path": CALLBACKS}, "1.2.3.4"), begun

    assert on_a_loop(work) == (True, [])


def test_only_so_many_refused_addresses_are_remembered(on_a_loop, monkeypatch):
    monkeypatch.setattr(address_limit, "MOST_SCARCE", 3)

    async def work(limit, _):
        most = 0
        for number in range(8):
            for _ in range(2):
                await limit.admits(SCOPE, f"1.2.3.{number}")
                most = max(most, len(limit._scarce))
        return most

    assert on_a_loop(work) == 3
