"""Barnabas: an event log that speaks the Apache Kafka protocol."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas import aio
    from barnabas.client.admin.admin import Admin
    from barnabas.client.consumer.consumer import Consumer
    from barnabas.client.facade import Client
    from barnabas.client.producer import Producer

__all__ = ["Admin", "Client", "Consumer", "Producer", "aio"]
__version__ = "0.1.0"


# Where each public name lives.
_HOMES = {
    "Admin": "barnabas.client.admin.admin",
    "Client": "barnabas.client.facade",
    "Consumer": "barnabas.client.consumer.consumer",
    "Producer": "barnabas.client.producer",
}


def __getattr__(name: str) -> Any:
    """Import the client when it is asked for: the broker starts without it (PEP 562)."""
    if name == "aio":
        return import_module("barnabas.aio")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
