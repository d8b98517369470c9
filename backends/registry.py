"""Kinds of backends an agent can serve. A new kind is a folder and one line here."""

from collections.abc import Callable, Mapping
from typing import Protocol

from backends.agent_metrics import AgentMetrics
from backends.agent_routes import Receive, Scope, Send
from backends.mock import serve as mock
from fred.conf import AgentConfig


class Served(Protocol):
    """An ASGI application with the agent's metrics."""

    @property
    def metrics(self) -> AgentMetrics:
        """What it counts."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""


KINDS: Mapping[str, Callable[[AgentConfig], Served]] = {"mock": mock.app}
"""Kind → what makes its agent from the settings."""
