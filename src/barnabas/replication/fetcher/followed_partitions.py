"""Starts and stops fetching after leadership changes (part of Kafka's ReplicaManager).

A partition is fetched from a new leader only after its high watermark is on disk: a follower
without leader epochs truncates to that offset after a restart.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.replication.config import ReplicationConfig
    from barnabas.replication.fetcher.fetcher_manager import FetcherManager
    from barnabas.replication.fetcher.leader_channels import LeaderChannels
    from barnabas.replication.fetcher.local_replicas import TruncatableLogs
    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.partition_registry import (
        ImageBrokers,
        LeadershipChanges,
        PartitionRegistry,
    )
    from barnabas.replication.remote.remote_access import RemoteAccess
    from barnabas.replication.replica_metrics import ReplicaMetrics
    from barnabas.replication.replication_throttle import ReplicationThrottle
    from barnabas.runtime.clock import Clock
    from barnabas.storage.log.log import Log
    from barnabas.storage.topic_partition import TopicPartition
    from barnabas.waiting.timing_wheel import TimingWheel


class FollowerLogs(Protocol):
    """The part of the log manager that followers use."""

    def checkpoint_high_watermarks(self, on_done: Callable[[], None] = ...) -> None:
        """Write the high watermarks of all logs to disk, then call `on_done` (maybe at once)."""
        ...

    def truncate_to(self, partition: TopicPartition, offset: int) -> bool:
        """Truncate a log and its recovery point on disk. Return whether it was truncated."""
        ...

    def restart_log(self, partition: TopicPartition, restart: Callable[[Log], None]) -> None:
        """Empty a log and start it anew by `restart`, and update its checkpoints on disk."""
        ...


class FollowedDependencies(msgspec.Struct, frozen=True):
    """The collaborators and callbacks of `FollowedPartitions`."""

    node_id: int
    config: ReplicationConfig
    registry: PartitionRegistry
    brokers: ImageBrokers
    logs: FollowerLogs
    metrics: ReplicaMetrics
    # Throttle of the records that this broker fetches.
    throttle: ReplicationThrottle
    wheel: TimingWheel
    clock: Clock
    # Connections to other brokers. None if this broker has no peers.
    channels: LeaderChannels | None
    # Returns this broker's epoch, which followers send in fetches (KIP-903).
    broker_epoch: Callable[[], int]
    # Checks all operations that wait for a partition.
    wake: Callable[[TopicPartition], None]
    # The remote tier. None without one.
    remote: RemoteAccess | None = None


class FollowedPartitions:
    """The fetchers of this broker, and the partitions that wait for a checkpoint."""

    __slots__ = (
        "_checkpoints_pending",
        "_dependencies",
        "_fetchers_per_leader",
        "_is_shutting_down",
        "fetchers",
    )

    def __init__(self, dependencies: FollowedDependencies) -> None:
        self._dependencies = dependencies
        # None until this broker follows a partition. A single broker never has fetchers.
        self.fetchers: FetcherManager | None = None
        # `num.replica.fetchers`. Set by `resize`.
        self._fetchers_per_leader = dependencies.config.num_replica_fetchers
        # Number of pending checkpoints. Fetching from new leaders starts after they are done.
        self._checkpoints_pending = 0
        # Set once by `begin_shutdown`. Never reset.
        self._is_shutting_down = False

    @property
    def is_about_to_fetch(self) -> bool:
        """Whether a checkpoint is pending, after which fetching from new leaders starts."""
        return self._checkpoints_pending > 0

    def remove(self, keys: Iterable[TopicPartition]) -> None:
        """Stop fetching partitions."""
        if self.fetchers is not None:
            self.fetchers.remove(keys)

    def follow(self, changes: LeadershipChanges) -> None:
        """Checkpoint the high watermarks, then fetch the partitions that have a new leader.

        During a shutdown, replicas in the ISR keep fetching until the broker stops, as in Kafka.
        The other replicas stop.
        """
        new = changes.new_followers
        if self._is_shutting_down:
            unneeded = [each for each in changes.followers if not self._is_in_isr(each)]
            self.remove(each.topic_partition for each in unneeded)
            new = changes.new_followers = [each for each in new if each not in unneeded]
        if self.fetchers is not None:
            self.fetchers.update_isr(
                {each.topic_partition: self._is_in_isr(each) for each in changes.followers}
            )
        if not new:
            return
        with_leader = [(each, each.leader_epoch) for each in new if each.leader_id >= 0]
        self._checkpoints_pending += 1
        logs = self._dependencies.logs
        logs.checkpoint_high_watermarks(partial(self._on_checkpointed, with_leader))

    def _on_checkpointed(self, with_leader: list[tuple[Partition, int]]) -> None:
        """Start to fetch the partitions that are still followed in the same leader epoch."""
        self._checkpoints_pending -= 1
        assert self._checkpoints_pending >= 0, self._checkpoints_pending
        online, channels = self._dependencies.registry.online, self._dependencies.channels
        current = [
            partition
            for partition, leader_epoch in with_leader
            if online.get(partition.topic_partition) is partition
            and partition.leader_epoch == leader_epoch
        ]
        if current and channels is not None:
            self._fetch(current, channels)
        self.close_idle()

    def _fetch(self, followed: list[Partition], channels: LeaderChannels) -> None:
        from barnabas.replication.fetcher.fetch_states import InitialFetchState

        if self.fetchers is None:
            self.fetchers = self._make_fetchers(channels)
        self.fetchers.add(
            {
                each.topic_partition: InitialFetchState(
                    each.topic_id,
                    each.leader_id,
                    each.leader_epoch,
                    each.initial_fetch_offset,
                    self._is_in_isr(each),
                )
                for each in followed
            }
        )

    def _is_in_isr(self, partition: Partition) -> bool:
        """Whether the metadata has a leader for the partition, and this replica in its ISR."""
        image = self._dependencies.brokers.image
        registration = None if image is None else image.topics.partition(*partition.topic_partition)
        return (
            registration is not None
            and registration.leader >= 0
            and self._dependencies.node_id in registration.isr
        )

    def close_idle(self) -> None:
        """Close fetchers without partitions, unless new partitions are pending."""
        if self.fetchers is not None and not self._checkpoints_pending:
            self.fetchers.close_idle()

    def resize(self, fetchers_per_leader: int) -> None:
        """Apply a changed `num.replica.fetchers`."""
        self._fetchers_per_leader = fetchers_per_leader
        if self.fetchers is not None:
            self.fetchers.resize(fetchers_per_leader)

    def begin_shutdown(self) -> None:
        """From now on, follow only the partitions whose ISR has this replica."""
        self._is_shutting_down = True

    def close(self) -> None:
        """Stop fetching permanently."""
        self._is_shutting_down = True
        if self.fetchers is not None:
            self.fetchers.close()

    def _make_fetchers(self, channels: LeaderChannels) -> FetcherManager:
        from barnabas.replication.config import FetcherSettings
        from barnabas.replication.fetcher.fetch_states import FailedPartitions
        from barnabas.replication.fetcher.fetcher_manager import FetcherManager
        from barnabas.replication.fetcher.local_replicas import LocalReplicas
        from barnabas.replication.fetcher.replica_fetcher import FetcherDependencies

        given = self._dependencies
        logs: TruncatableLogs = given.logs
        local = LocalReplicas(given.registry, logs, given.metrics, given.throttle, given.wake)
        settings = FetcherSettings(
            given.node_id, given.broker_epoch, given.brokers.fetch_version, given.config
        )
        tier = None
        if given.remote is not None:
            # Imported only on brokers with a remote tier.
            from barnabas.replication.fetcher.tiered_partitions import TierSettings
            from barnabas.replication.remote.auxiliary_state import AuxiliaryStates

            states = AuxiliaryStates(given.remote, given.wheel)
            tier = TierSettings(states, given.brokers.lists_pending_uploads)
        shared = FetcherDependencies(
            local, settings, FailedPartitions(), given.wheel, given.clock, tier
        )
        fetchers = FetcherManager(channels, shared)
        fetchers.resize(self._fetchers_per_leader)
        return fetchers
