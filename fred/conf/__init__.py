"""Typed settings: read once, checked whole, named the same everywhere. No Django inside."""

from fred.conf.agent import AgentConfig
from fred.conf.backends import BackendConfig
from fred.conf.house import HouseConfig
from fred.conf.load import (
    Configuration,
    Loaded,
    Unconfigured,
    load,
    load_agent,
    load_house,
    load_provider,
)
from fred.conf.problems import ConfigError, Problem
from fred.conf.provider import ProviderConfig
from fred.conf.roles import Role, add_config_flag, command_of, config_path_of, process_of, role_of

__all__ = [
    "AgentConfig",
    "BackendConfig",
    "ConfigError",
    "Configuration",
    "HouseConfig",
    "Loaded",
    "Problem",
    "ProviderConfig",
    "Role",
    "Unconfigured",
    "add_config_flag",
    "command_of",
    "config_path_of",
    "load",
    "load_agent",
    "load_house",
    "load_provider",
    "process_of",
    "role_of",
]
