"""A trusted database, a chain in memory, and looks that push to nobody by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from leases.chain.devchain.running import RunningDevchain
    from reconciliation.look import Looker
    from tests.reconciliation.chains import MemoryChain
    from tests.reconciliation.story import Story


@pytest.fixture
def chain() -> MemoryChain:
    """A chain in memory, empty, at height 100."""
    from tests.reconciliation.chains import MemoryChain

    return MemoryChain()


@pytest.fixture
def looker(chain: MemoryChain, valkey: object) -> Looker:
    """Looks at the chain in memory; what they want pushed stays due."""
    from backends import load, targets
    from fred import breaker
    from reconciliation.look import Looker
    from reconciliation.sources import Sources

    breaker.forget()
    load.forget()
    targets.forget()
    return Looker(sources=Sources(chain), pushes=False)


@pytest.fixture
def trusted(db: None) -> Callable[..., None]:
    """Make this database one that saw everything since an hour ago, with a fresh head; one backend serves the SKU."""
    from django.db import connection

    from tests.factories.backends import BackendFactory
    from tests.reconciliation.chains import SKU

    def make(*, head_age: str = "0 s", since: str = "1 hour") -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                """
                INSERT INTO leases_chaincursor (chain_id, last_height, head_height, head_seen_at, trusted_from_height,
                       trusted_from_at, trusted_block_at, alive_at, system_identifier, timeline_id)
                VALUES ('manifest-localnet', 100, 100, now() - %s::interval, 1, now() - %s::interval,
                        now() - %s::interval, now(), '', 0)
                ON CONFLICT (chain_id) DO UPDATE SET head_seen_at = excluded.head_seen_at,
                       trusted_from_at = excluded.trusted_from_at, trusted_block_at = excluded.trusted_block_at
                """,
                [head_age, since, since],
            )

    make()
    BackendFactory(name="mock-1", url="http://127.0.0.1:2", skus=[str(SKU)], is_default=True)
    return make


@pytest.fixture(scope="module")
def devchain() -> Iterator[RunningDevchain]:
    """A simulated chain with a block per transaction, for all tests of a module."""
    from leases.chain.devchain import running

    with running.run() as chain:
        yield chain


@pytest.fixture
def story(devchain: RunningDevchain, settings: Any, transactional_db: None, valkey: object) -> Iterator[Story]:
    """A provider on that chain with two backends: b1 serves the chain's SKU, b2 none until a test says so."""
    from contextlib import ExitStack

    from backends import load, targets
    from fred import breaker
    from fred.conf import BackendConfig
    from leases import lane_draft, lanes, node
    from placements.sender import Sender
    from reconciliation.look import Looker
    from tests.factories.backends import BackendFactory
    from tests.leases.house import config_of
    from tests.reconciliation.story import Story, end_all, trust
    from tests.scripted_backend import ScriptedBackend

    with ExitStack() as stack:
        servers = {name: stack.enter_context(ScriptedBackend()) for name in ("b1", "b2")}
        configs = tuple(BackendConfig(name=name, url=one.url, timeout="30s") for name, one in servers.items())
        settings.FRED = config_of(devchain, settings.FRED, backends=configs)
        for position, (name, one) in enumerate(servers.items()):
            skus = [devchain.sku_uuid] if name == "b1" else []
            BackendFactory(name=name, url=one.url, position=position, skus=skus)
        for module in (breaker, load, targets):
            module.forget()
        lanes.ensure_signers()
        lane_draft.simulations.__init__()
        trust()
        sender = Sender()
        yield Story(devchain, servers, Looker(pushes=False), sender)
        sender.drain(deadline=0.2)
        node.client().close()
        devchain.clear_faults()
        end_all(devchain)
    for module in (breaker, load, targets):
        module.forget()
