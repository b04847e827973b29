"""Test support: brokers as processes and in the test's process.

pytest finds the fixtures of `pytest_plugin` without configuration.

The distribution `pytest-barnabas` contains the modules of this package that need only the standard
library and pytest, as the package `pytest_barnabas`. Their imports are therefore relative.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .admin_requests import AdminRequestError
    from .broker_on_loop import BrokerOnLoop, running_broker
    from .broker_process import BrokerProcess, BrokerStartError
    from .registry_process import RegistryProcess
    from .relayed_cluster import CLIENTS, RelayedCluster
    from .secured import KafkaUser, SecuredBroker, SecuredCluster

__all__ = [
    "CLIENTS",
    "AdminRequestError",
    "BrokerOnLoop",
    "BrokerProcess",
    "BrokerStartError",
    "KafkaUser",
    "RegistryProcess",
    "RelayedCluster",
    "SecuredBroker",
    "SecuredCluster",
    "running_broker",
]

_HOMES = {
    "AdminRequestError": ".admin_requests",
    "BrokerProcess": ".broker_process",
    "BrokerStartError": ".broker_process",
    "CLIENTS": ".relayed_cluster",
    "RegistryProcess": ".registry_process",
    "RelayedCluster": ".relayed_cluster",
    "KafkaUser": ".secured",
    "SecuredBroker": ".secured",
    "SecuredCluster": ".secured",
    "BrokerOnLoop": ".broker_on_loop",
    "running_broker": ".broker_on_loop",
}
# Not part of the distribution `pytest-barnabas`.
_NOT_IN_PLUGIN = ".broker_on_loop"


def __getattr__(name: str) -> Any:
    """Import a name on first use, because pytest imports this package in every run (PEP 562)."""
    if name in _HOMES:
        home = _HOMES[name]
        if home == _NOT_IN_PLUGIN and __name__ != "barnabas.testing":
            raise ImportError(f"{name} runs in this process: install Barnabas in this environment")
        return getattr(import_module(home, __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
