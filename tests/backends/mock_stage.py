"""The mock driver on a clock of its own, without HTTP."""

import asyncio
from datetime import timedelta

from backends.mock.driver import MockBackend, MockSettings
from tests.backends.servers import LEASE, spec, uuid_number

GOOD = b'{"services":{"app":{"image":"r.example/app:1"}}}'
BETTER = b'{"image":"r.example/app:2"}'
CRASHES = b'{"image":"r.example/app:crash"}'
NOT_THERE = b'{"image":"r.example/app:missing"}'
OTHER = uuid_number(7)
URL = "http://127.0.0.1:9/later"


class Heard:
    """The agent's place: hears what is reported, and writes state as the agent would."""

    def __init__(self, store=None):
        self.said, self.store, self.news = [], store, asyncio.Event()

    async def report(self, callback, *, url, state=None):
        if self.store is not None and state is not None:
            await self.store.commit(state)
        self.said.append((callback.status.value, callback.error, url))
        self.news.set()

    async def until(self, count):
        async with asyncio.timeout(5):
            while len(self.said) < count:
                self.news.clear()
                await self.news.wait()

    @property
    def last(self):
        return self.said[-1]


class Stage:
    """A mock with work that takes an hour of its own clock."""

    def __init__(self, store=None, **settings):
        self.heard = Heard(store)
        self.mock = MockBackend(MockSettings(**{"delay": timedelta(hours=1), **settings}), store)

    async def __aenter__(self):
        await self.mock.start(self.heard)
        return self

    async def __aexit__(self, *_):
        await self.mock.stop()

    async def work(self):
        before = len(self.heard.said)
        self.mock.clock.advance(timedelta(hours=1))
        await self.heard.until(before + 1)

    async def ready(self, lease=LEASE, **changes):
        await self.mock.provision(spec(lease, **{"payload": GOOD, **changes}))
        await self.work()

    async def row(self, lease=LEASE):
        found = await self.mock.provision_info(lease)
        return found.status.value, found.reason, found.message, found.fail_count

    async def versions(self):
        return [(one.version, one.image, one.status.value, one.message) for one in await self.mock.releases(LEASE)]


def play(story, **settings):
    async def run():
        async with Stage(**settings) as stage:
            await story(stage)

    asyncio.run(run())
