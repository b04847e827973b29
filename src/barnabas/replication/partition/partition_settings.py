"""Settings that all partitions of a broker share, including the state of other brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from barnabas.runtime.clock import Clock


class BrokersView(Protocol):
    """The state of other brokers, as leaders need it."""

    def is_isr_eligible(self, broker_id: int) -> bool:
        """Whether the broker is registered, not fenced, and not in controlled shutdown."""
        ...

    def is_alive(self, broker_id: int) -> bool:
        """Whether the broker is registered and not fenced."""
        ...

    def broker_epoch(self, broker_id: int) -> int | None:
        """Return the epoch of the broker's registration, or None if unknown."""
        ...


class PartitionSettings(msgspec.Struct, frozen=True):
    """Settings that all partitions of a broker share."""

    node_id: int
    clock: Clock
    brokers: BrokersView
    replica_lag_time_max_ms: int
