"""The mock agent put together from its settings."""

from collections.abc import Mapping

import msgspec

from backends.agent import MAX_BODY_BYTES, Agent, SetupError
from backends.mock import faults
from backends.mock.capacity import Tier
from backends.mock.control import Control
from backends.mock.courier import Courier
from backends.mock.door import Door
from backends.mock.driver import MockBackend, MockSettings
from backends.mock.faults import FaultError, RuleBook
from backends.outbox import Outbox, Schedule
from backends.store import Store
from fred.conf import AgentConfig
from fred.http import Tls


def app(config: AgentConfig) -> Agent | Door:
    """What is served: the agent, behind a door if faults or the control API are wanted. Raises as `agent`."""
    inner = agent(config)
    token = config.control_token.get_secret_value() if config.control else ""
    backend = inner.backend
    if not (token or config.faults) or not isinstance(backend, MockBackend):
        return inner
    book = RuleBook(config.seed)
    try:
        book.add(faults.parse(config.faults) if config.faults else [])
    except FaultError as error:
        raise SetupError(f"MOCK_BACKEND_FAULTS: {error}") from None
    return behind_door(inner, backend, book, token=token)


def behind_door(inner: Agent, backend: MockBackend, book: RuleBook, *, token: str = "") -> Door:
    """This agent with faults; with a token also with its control API."""
    courier = Courier(inner.outbox, book)
    backend.whims, backend.courier = book, lambda _outbox: courier
    door = Door(inner, book)
    if token:
        door.control = Control(token, backend, book, door, courier)
    return door


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
