"""States of streams groups (Kafka: StreamsGroup.StreamsGroupState)."""

from __future__ import annotations

from enum import Enum


class StreamsGroupState(Enum):
    """The name of a state in responses. Deleted groups have no state."""

    EMPTY = "Empty"
    # The topics of the topology are missing or do not fit.
    NOT_READY = "NotReady"
    # The target assignment is older than the group epoch.
    ASSIGNING = "Assigning"
    # A member does not have its target yet.
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"

    @property
    def filter_name(self) -> str:
        """The name in filters and metrics."""
        return "not_ready" if self is StreamsGroupState.NOT_READY else self.value.lower()
