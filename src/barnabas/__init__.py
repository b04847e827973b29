"""Barnabas: an event log that speaks the Apache Kafka protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.client.facade import Client

__all__ = ["Client"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import the client when it is asked for: the broker starts without it (PEP 562)."""
    if name == "Client":
        from barnabas.client.facade import Client

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
