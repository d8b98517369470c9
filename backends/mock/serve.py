"""The mock agent put together from its settings."""

from backends.agent import MAX_BODY_BYTES, Agent
from backends.mock.driver import MockBackend, MockSettings
from backends.outbox import Outbox, Schedule
from backends.store import Store
from fred.conf import AgentConfig
from fred.http import Tls


def agent(config: AgentConfig) -> Agent:
    """The agent of these settings; with a state path its file is opened (raises `store.StoreError`)."""
    secret = config.callback_secret.get_secret_value()
    store = Store(config.state_path) if config.state_path else None
    settings = MockSettings(
        name=config.name,
        host=config.host,
        delay=config.delay,
        fail_ratio=config.fail_ratio,
        seed=config.seed,
        retention=config.retention,
    )
    outbox = Outbox(
        name=config.name,
        secret=secret,
        store=store,
        schedule=Schedule(config.sender),
        attempt_timeout=config.client_timeout.total_seconds(),
        max_age=config.callback_max_age,
        tls=Tls(skip_verify=config.tls_skip_verify, minimum_1_3=False),
    )
    size = config.max_request_body_size
    return Agent(
        MockBackend(settings, store),
        outbox,
        (secret,),
        require_hmac=config.require_hmac,
        max_body=size if size > 0 else MAX_BODY_BYTES,
    )
