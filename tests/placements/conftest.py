"""A scripted backend that is configured, and senders that end with their test."""

from __future__ import annotations

import pytest

from tests.scripted_backend import ScriptedBackend


@pytest.fixture
def backend(transactional_db, settings, valkey):
    """The only configured backend, `mock-1`, answers as the test scripts it."""
    from backends import targets
    from fred import breaker
    from fred.conf import BackendConfig
    from tests.factories.backends import BackendFactory

    breaker.forget()
    with ScriptedBackend() as server:
        BackendFactory(name="mock-1", url=server.url)
        config = BackendConfig(name="mock-1", url=server.url, timeout="30s")
        settings.FRED = settings.FRED.model_copy(update={"backends": (config,)})
        targets.forget()
        yield server
    targets.forget()
    breaker.forget()


@pytest.fixture
def make_sender():
    """Make senders; each is drained, with its database connection closed, when the test ends."""
    from placements.sender import Sender

    made = []

    def make(**kwargs):
        made.append(Sender(**kwargs))
        return made[-1]

    yield make
    for one in made:
        one.drain(deadline=0.2)


@pytest.fixture
def sender(backend, make_sender):
    """A sender that pulls."""
    return make_sender()
