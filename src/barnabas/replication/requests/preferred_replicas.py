"""Redirects consumers to the replica that a selector prefers (KIP-392; Kafka's ReplicaSelector)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.config import RACK_AWARE_SELECTOR
from barnabas.replication.partition.results import FetchResult, failed_fetch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.replication.partition.fetch_params import FetchParams, FetchPartitionData
    from barnabas.replication.partition.partition import Partition
    from barnabas.runtime.clock import Clock


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


# The first fetch version with a rack id.
_RACK_SINCE = 11


class RackView(Protocol):
    """The racks of other brokers."""

    def rack(self, broker_id: int, listener_name: str) -> str | None:
        """Return the rack of a live broker with that listener, or None."""
        ...


class PreferredReplicas:
    """Selects the replica for each fetch of a consumer with a rack id."""

    __slots__ = ("_brokers", "_clock", "_node_id", "_selector")

    def __init__(
        self, node_id: int, selector: ReplicaSelector, brokers: RackView, clock: Clock
    ) -> None:
        self._node_id = node_id
        self._selector = selector
        self._brokers = brokers
        self._clock = clock

    def find(
        self, partition: Partition, params: FetchParams, data: FetchPartitionData
    ) -> FetchResult | None:
        """Return the result that redirects the consumer, or None if it reads from this broker.

        Only ISR followers with the requested offset are candidates. A lagging follower would delay
        the consumer.
        """
        role = partition.leader
        if params.is_from_follower or params.version < _RACK_SINCE or role is None:
            return None
        now_ms = self._clock.monotonic_ms()
        followers = [
            self._view(each.broker_id, params, each.log_end_offset, now_ms - each.last_caught_up_ms)
            for each in role.readable_followers(data.fetch_offset)
        ]
        log = partition.log
        leader = self._view(self._node_id, params, log.log_end_offset, 0.0)
        chosen = self._selector.select(params.rack_id, leader, followers)
        if chosen is leader:
            return None
        error = partition.check_access(data.current_leader_epoch, only_leader=False)
        if error is not ErrorCode.NONE:
            return failed_fetch(error)
        redirect = FetchResult(
            error, log.high_watermark, log.last_stable_offset, log.log_start_offset, b""
        )
        redirect.preferred_read_replica = chosen.broker_id
        return redirect

    def _view(
        self, broker_id: int, params: FetchParams, log_end_offset: int, since_caught_up_ms: float
    ) -> ReplicaView:
        rack = self._brokers.rack(broker_id, params.listener_name)
        return ReplicaView(broker_id, rack, log_end_offset, since_caught_up_ms)
