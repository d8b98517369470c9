"""The mock agent put together from its settings."""

from collections.abc import Mapping

import msgspec

from backends.agent import MAX_BODY_BYTES, Agent, SetupError
from backends.mock.capacity import Tier
from backends.mock.driver import MockBackend, MockSettings
from backends.outbox import Outbox, Schedule
from backends.store import Store
from fred.conf import AgentConfig
from fred.http import Tls


def agent(config: AgentConfig) -> Agent:
    """The agent of these settings; with a state path its file is opened. Raises `StoreError`, `SetupError`."""
    secret = config.callback_secret.get_secret_value()
    following = config.callback_secret_next.get_secret_value()
    settings = MockSettings(
        name=config.name,
        host=config.host,
        delay=config.delay,
        fail_ratio=config.fail_ratio,
        seed=config.seed,
        retention=config.retention,
        total_cpu_cores=config.total_cpu_cores,
        total_memory_mb=config.total_memory_mb,
        total_disk_mb=config.total_disk_mb,
        tiers=_tiers(config.skus),
        plain=config.plain_connection,
    )
    store = Store(config.state_path) if config.state_path else None
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
        (secret, following) if following else (secret,),
        require_hmac=config.require_hmac,
        max_body=size if size > 0 else MAX_BODY_BYTES,
        starts_eagerly=True,
    )


def _tiers(text: str) -> Mapping[str, Tier]:
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Tier])
    except msgspec.DecodeError as error:
        raise SetupError(f"MOCK_BACKEND_SKUS: {error}") from None
