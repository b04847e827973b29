"""What all partitions of a broker share, and what they ask about other brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from barnabas.runtime.clock import Clock


class BrokersView(Protocol):
    """What a leader must know of other brokers."""

    def is_isr_eligible(self, broker_id: int) -> bool:
        """Whether it is registered, neither fenced nor shutting down."""
        ...

    def is_alive(self, broker_id: int) -> bool:
        """Whether it is registered and not fenced."""
        ...

    def broker_epoch(self, broker_id: int) -> int | None:
        """Epoch of its registration, None if unknown."""
        ...


class PartitionSettings(msgspec.Struct, frozen=True):
    """What all partitions of a broker share."""

    node_id: int
    clock: Clock
    brokers: BrokersView
    replica_lag_time_max_ms: int
