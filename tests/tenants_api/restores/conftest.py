"""A house with a backend that takes restores.

Models are imported inside the fixture: this file is read before Django is set up.
"""

import pytest

from fred.conf import BackendConfig
from tests.tenants_api.calls import PROVIDER


@pytest.fixture
def restoring(transactional_db, settings, valkey, chain, client):
    """A house whose backend docker-1 takes restores; docker-2 is never asked."""
    from django.utils import timezone

    from backends import targets
    from fred import breaker
    from placements import dispatch
    from tests.factories.backends import BackendFactory
    from tests.factories.leases import ChainCursorFactory
    from tests.scripted_backend import ScriptedBackend as AnyBackend
    from tests.tenants_api.restores.restoring import Restoring

    dispatch.drain(deadline=0.2)
    dispatch.use_in_web()
    settings.MIDDLEWARE = []
    ChainCursorFactory(head_seen_at=timezone.now())
    with AnyBackend() as one, AnyBackend() as two:
        configs = []
        for name, server in (("docker-1", one), ("docker-2", two)):
            server.always["restore"] = 202, b'{"status":"restoring"}'
            configs.append(BackendConfig(name=name, url=server.url, timeout="30s", default=name == "docker-2"))
            BackendFactory(name=name, url=server.url)
        settings.FRED = settings.FRED.model_copy(
            update={
                "provider_uuid": PROVIDER,
                "backends": tuple(configs),
                "tenant_rate_limit_rps": 1e6,
                "tenant_rate_limit_burst": 10**6,
            }
        )
        for module in (breaker, targets):
            module.forget()
        yield Restoring(one, chain, client)
        assert two.seen == []
        dispatch.drain(deadline=0.2)
        dispatch._pulls = True
    for module in (breaker, targets):
        module.forget()


@pytest.fixture
def looker_of(restoring):
    """`looker_of(lease)`: a look that has claimed the lease and gathered its facts; call what it returns to finish."""
    from django.utils import timezone

    from fred import due
    from leases.models import Lease
    from reconciliation.look import Looker
    from reconciliation.sources import Sources

    def claim(lease):
        Lease.objects.filter(pk=lease.pk).update(due_at=timezone.now())
        looker = Looker(sources=Sources(restoring.chain), pushes=False)
        (claimed,) = due.claim(Lease, 1)
        known = looker.gather({claimed.pk: claimed.epoch}, looker.sources)
        looker.gather = lambda *_: known
        return lambda: looker.at_claimed([claimed], 0.0)

    return claim
