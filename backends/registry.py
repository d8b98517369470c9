"""Kinds of backends an agent can serve. A new kind is a folder and one line here."""

from collections.abc import Callable, Mapping

from backends.agent import Agent
from backends.mock import serve as mock
from fred.conf import AgentConfig

KINDS: Mapping[str, Callable[[AgentConfig], Agent]] = {"mock": mock.agent}
"""Kind → what makes its agent from the settings."""
