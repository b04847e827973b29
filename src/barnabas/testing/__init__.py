"""Test support: brokers as processes and in the test's process.

pytest finds the fixtures `kafka_broker`, `kafka_topic`, `kafka_cluster` and `schema_registry`
without configuration.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.testing.broker_on_loop import BrokerOnLoop, running_broker
    from barnabas.testing.broker_process import BrokerProcess, BrokerStartError
    from barnabas.testing.registry_process import RegistryProcess
    from barnabas.testing.relayed_cluster import CLIENTS, RelayedCluster

__all__ = [
    "CLIENTS",
    "BrokerOnLoop",
    "BrokerProcess",
    "BrokerStartError",
    "RegistryProcess",
    "RelayedCluster",
    "running_broker",
]

_HOMES = {
    "BrokerProcess": "barnabas.testing.broker_process",
    "BrokerStartError": "barnabas.testing.broker_process",
    "CLIENTS": "barnabas.testing.relayed_cluster",
    "RegistryProcess": "barnabas.testing.registry_process",
    "RelayedCluster": "barnabas.testing.relayed_cluster",
    "BrokerOnLoop": "barnabas.testing.broker_on_loop",
    "running_broker": "barnabas.testing.broker_on_loop",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use, because pytest imports this package in every run (PEP 562)."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
