"""Idle partitions of a follower's fetch session.

A partition is idle only if the follower is in the ISR. A check of a partition in Kafka also records
that the follower fetched from the log end at this time. Here, `fetched_ms` records this time for
all idle partitions together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.replication.partition.replica import NEVER_MS, NO_BROKER_EPOCH
from barnabas.replication.requests.idle_partition_set import IdlePartitionSet

if TYPE_CHECKING:
    from barnabas.replication.partition.leader_role import LeaderRole
    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.requests.idle_partition_set import Registry
    from barnabas.replication.requests.session_partition import SessionKey, SessionPartition
    from barnabas.storage.topic_partition import TopicPartition

# Interval of the sweep, and its number of partitions. The sweep makes some idle partitions active,
# since retention can move a log start offset without a notification.
_SWEEP_MS = 450.0
_SWEEP_PARTITIONS = 64


class FollowerIdlePartitions(IdlePartitionSet):
    """The idle partitions of one follower's session."""

    __slots__ = ("_replica_epoch", "_swept_ms", "fetched_ms", "replica_id")

    def __init__(
        self,
        registry: Registry,
        replica: tuple[int, int],
        active: dict[SessionKey, SessionPartition],
    ) -> None:
        """Create a session without idle partitions.

        Args:
            registry: the registry of the sessions per partition.
            replica: the follower's broker id and the epoch of its registration.
            active: the session's other partitions; all of them at first.
        """
        super().__init__(registry, active)
        self.replica_id, self._replica_epoch = replica
        # Time of the follower's last fetch, in monotonic ms. It covers all idle partitions.
        self.fetched_ms = NEVER_MS
        self._swept_ms = NEVER_MS

    def begin_fetch(self, now_ms: float, replica_epoch: int) -> None:
        """Record the fetch, and make all partitions active that it must check."""
        if not self._partitions:
            self._replica_epoch, self.fetched_ms = replica_epoch, now_ms
            return
        known_epoch = self._registry.broker_epoch(self.replica_id)
        is_outdated = known_epoch is not None and NO_BROKER_EPOCH < replica_epoch < known_epoch
        if is_outdated or replica_epoch != self._replica_epoch:
            # The broker epoch differs, for example after a restart: all partitions must check it.
            self._replica_epoch = replica_epoch
            self._activate_first(len(self._partitions))
        elif now_ms - self._swept_ms >= _SWEEP_MS:
            self._swept_ms = now_ms
            self._activate_first(_SWEEP_PARTITIONS)
        self.fetched_ms = now_ms
        self._registry.count_fetches(self._counts)

    def _is_idle(self, entry: SessionPartition, partition: Partition, leader: LeaderRole) -> bool:
        return (
            partition.topic_id == entry.where.topic_id
            and leader.is_idle_for(self.replica_id, entry.requested, entry.high_watermark)
            and partition.topic_partition not in self._registry.awaited
        )

    def _on_idle(self, leader: LeaderRole) -> None:
        leader.remote_replicas[self.replica_id].join_idle_set(self)

    def _on_active(self, key: TopicPartition) -> None:
        partition = self._registry.online.get(key)
        leader = None if partition is None else partition.leader
        replica = None if leader is None else leader.remote_replicas.get(self.replica_id)
        if replica is not None:
            replica.leave_idle_set(self)
