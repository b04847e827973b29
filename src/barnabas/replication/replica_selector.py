"""From which replica a consumer had better read (KIP-392; Kafka's ReplicaSelector)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

# Values of `replica.selector.class`: Kafka's own classes, by Kafka's names.
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class ReplicaView(NamedTuple):
    """A replica that has what the consumer asks for."""

    broker_id: int
    # None if its broker did not say, or cannot be reached where the consumer comes from.
    rack: str | None
    log_end_offset: int
    since_caught_up_ms: float


class ReplicaSelector(Protocol):
    """Chooses among a leader and followers."""

    def select(
        self, rack_id: str, leader: ReplicaView, followers: Sequence[ReplicaView]
    ) -> ReplicaView:
        """Where a consumer in `rack_id` (empty: unknown) is to read."""
        ...


class RackAwareReplicaSelector:
    """A replica in the consumer's rack: the leader if it is there, else who has the most."""

    def select(
        self, rack_id: str, leader: ReplicaView, followers: Sequence[ReplicaView]
    ) -> ReplicaView:
        """The leader too if nobody is in that rack."""
        if not rack_id or leader.rack == rack_id:
            return leader
        nearby = [each for each in followers if each.rack == rack_id]
        if not nearby:
            return leader
        return max(
            nearby, key=lambda each: (each.log_end_offset, -each.since_caught_up_ms, each.broker_id)
        )


def replica_selector(class_name: str | None) -> ReplicaSelector | None:
    """The selector of that name; None where every consumer reads from the leader."""
    return RackAwareReplicaSelector() if class_name == RACK_AWARE_SELECTOR else None
