"""Selects the replica from which a consumer reads (KIP-392; Kafka's ReplicaSelector)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

# Values of `replica.selector.class`: the names of Kafka's own classes.
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class ReplicaView(NamedTuple):
    """A replica that has the requested records."""

    broker_id: int
    # None if the broker has no rack, or has no listener for the consumer.
    rack: str | None
    log_end_offset: int
    since_caught_up_ms: float


class ReplicaSelector(Protocol):
    """Selects one replica among the leader and its followers."""

    def select(
        self, rack_id: str, leader: ReplicaView, followers: Sequence[ReplicaView]
    ) -> ReplicaView:
        """Return the replica from which a consumer in `rack_id` (empty: unknown) reads."""
        ...


class RackAwareReplicaSelector:
    """Selects the leader if it is in the consumer's rack, else the most complete follower there."""

    def select(
        self, rack_id: str, leader: ReplicaView, followers: Sequence[ReplicaView]
    ) -> ReplicaView:
        """Return a replica in the rack, or the leader if the rack has none."""
        if not rack_id or leader.rack == rack_id:
            return leader
        nearby = [each for each in followers if each.rack == rack_id]
        if not nearby:
            return leader
        return max(
            nearby, key=lambda each: (each.log_end_offset, -each.since_caught_up_ms, each.broker_id)
        )


def replica_selector(class_name: str | None) -> ReplicaSelector | None:
    """Return the selector of that name, or None if every consumer reads from the leader."""
    return RackAwareReplicaSelector() if class_name == RACK_AWARE_SELECTOR else None
