"""The event stream is cut a thousand times while leases come and go: every event is a row in the end."""

import random
from collections import Counter
from datetime import timedelta
from uuid import UUID

import pytest

from fred import metrics
from leases import lanes
from leases.chain.events import EventType
from leases.models import ChainEvent
from tests.leases.house import config_of
from tests.reconciliation.watching import until_begun, until_read, watching
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
CUTS = 1000
BLOCK_S = 0.05


@pytest.fixture
def chain(settings, transactional_db):
    """A chain with twenty blocks a second, whose watcher reconnects at once."""
    from leases import node
    from leases.chain.devchain import running

    with running.run(block_mode="interval", block_interval=BLOCK_S) as chain:
        settings.FRED = config_of(
            chain,
            settings.FRED,
            websocket_reconnect_initial=timedelta(milliseconds=5),
            websocket_reconnect_max=timedelta(milliseconds=50),
        )
        lanes.ensure_signers()
        yield chain
        node.client().close()


def cuts():
    """How many connections were lost so far."""
    return sum(
        metrics.CHAIN_RECONNECTS.labels(reason)._value.get()
        for reason in ("error_frame", "no_confirmation", "silent", "closed")
    )


class Life:
    """Leases that come and go in steps, and the events that tell of it."""

    def __init__(self, chain):
        self.chain = chain
        self.leases = []
        self.happened = Counter()
        self.steps = (self.create, self.acknowledge, self.close, self.expire, self.cancel)

    def note(self, kind, uuids):
        self.happened.update((kind.value, UUID(uuid)) for uuid in uuids)

    def create(self):
        self.leases = self.chain.create_leases(6)
        self.note(EventType.CREATED, self.leases)

    def acknowledge(self):
        self.chain.ack_leases(self.leases[:2])
        self.note(EventType.ACKNOWLEDGED, self.leases[:2])

    def close(self):
        self.chain.close_leases(self.leases[:2])
        self.note(EventType.CLOSED, self.leases[:2])

    def expire(self):
        self.chain.expire_leases(self.leases[2:4])
        self.note(EventType.EXPIRED, self.leases[2:4])

    def cancel(self):
        self.chain.cancel_leases(self.leases[4:])
        self.note(EventType.CANCELLED, self.leases[4:])


def test_a_thousand_disconnects_lose_no_event(chain):
    """CH-97, CH-99."""
    draws = random.Random(7)
    life = Life(chain)
    with watching():
        until_begun()
        first = cuts()
        while cuts() - first < CUTS:
            for step in life.steps:
                before = cuts()
                while_cut = draws.random() < 0.5
                with chain.fault("ws_close", where="ws", code=draws.choice((0, 1000, 1001, 1011))):
                    if while_cut:
                        step()
                    wait_until(lambda before=before: cuts() > before)
                if not while_cut:
                    step()
        until_read(chain.height)
    assert Counter(ChainEvent.objects.values_list("type", "lease_id")) == life.happened
    assert len(life.happened) >= 500
