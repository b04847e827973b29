"""The tiered partitions of this broker, as leader and follower (Kafka's RemoteLogManager; KIP-405).

A leader copies closed segments to the remote tier and deletes expired ones from it. Every replica
learns from the metadata topic how far its log is copied, checks that the store has it, and may then
delete its local segments. Copies begin with events: a roll, a move of the last stable offset, the
end of the previous copy. The sweep over all partitions, in each `task.interval.ms`, finds what no
event announces: age and size limits, failed deletions, lost copies.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from barnabas.replication.remote.copy_slots import CopySlots
from barnabas.replication.remote.copy_task import CopyDependencies, CopyTask
from barnabas.replication.remote.copy_verification import CopyVerification
from barnabas.replication.remote.deleted_topics import DeletedTopics
from barnabas.replication.remote.expiration_task import ExpirationTask
from barnabas.replication.remote.restored_logs import RestoredLogs
from barnabas.replication.remote.segment_deletions import SegmentDeletions
from barnabas.replication.remote.store_health import StoreHealth
from barnabas.replication.remote.tier_dependencies import Leadership
from barnabas.replication.remote.tier_removals import TierRemovals
from barnabas.replication.remote.topic_descriptions import TopicDescriptions
from barnabas.storage.config import RESTORE_NONE
from barnabas.storage.topic_partition import TopicIdPartition
from barnabas.waiting.steps import run_in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.partition_registry import (
        HighWatermarkListeners,
        LeadershipChanges,
    )
    from barnabas.replication.remote.copy_causes import WaitingSegment
    from barnabas.replication.remote.deleted_topics import DeletedPartitionSearch
    from barnabas.replication.remote.remote_metrics import RemoteMetrics
    from barnabas.replication.remote.remote_quota import RemoteQuota
    from barnabas.replication.remote.restored_logs import RestartLog
    from barnabas.replication.remote.tier_dependencies import TierDependencies
    from barnabas.runtime.clock import Timer
    from barnabas.storage.config import LogConfig
    from barnabas.storage.remote.remote_storage import RemoteSegment, TopicDescription
    from barnabas.storage.topic_partition import TopicPartition
    from barnabas.waiting.timing_wheel import WheelEntry

_log = logging.getLogger(__name__)

METADATA_TOPIC = "__remote_log_metadata"


class ManagerDependencies(msgspec.Struct, frozen=True):
    """What the manager uses besides the parts of the tier."""

    copy_quota: RemoteQuota
    search: DeletedPartitionSearch
    timer: Timer
    # Returns whether the topic with an id exists in the latest metadata.
    topic_exists: Callable[[bytes], bool]
    # Returns a topic as it is in the latest metadata; None if it is deleted.
    describe_topic: Callable[[bytes], TopicDescription | None]
    # Forgets what is cached of a segment that is deleted.
    forget_segment: Callable[[bytes], None]
    restart_log: RestartLog


class _TieredReplica:
    """A replica of a tiered partition, and its tasks."""

    __slots__ = ("copies", "expiration", "leadership", "partition", "verification", "where")

    def __init__(
        self, where: TopicIdPartition, partition: Partition, verification: CopyVerification
    ) -> None:
        self.where = where
        self.partition = partition
        self.verification = verification
        # The leadership and its tasks; None on a follower. `copies` is also None while
        # remote.log.copy.disable is set.
        self.leadership: Leadership | None = None
        self.copies: CopyTask | None = None
        self.expiration: ExpirationTask | None = None


class RemoteLogManager:
    """All tiered partitions of this broker."""

    def __init__(self, tier: TierDependencies, dependencies: ManagerDependencies) -> None:
        """Create without partitions. No copy starts before `start`.

        Args:
            tier: the parts of the tier, which this object closes.
            dependencies: what else it uses.
        """
        self._tier = tier
        self._dependencies = dependencies
        self.health = StoreHealth(tier.clock)
        self.slots = CopySlots(
            tier.copies.threads, dependencies.copy_quota, self.health, tier.wheel
        )
        self.deletions = SegmentDeletions(tier, self.health, dependencies.forget_segment)
        self.descriptions = TopicDescriptions(tier, self.health, dependencies.describe_topic)
        self.deleted_topics = DeletedTopics(
            tier,
            self.deletions,
            self.descriptions,
            dependencies.search,
            dependencies.topic_exists,
            self._on_deleted_partition_gone,
        )
        self.removals = TierRemovals(tier.metadata, self.deleted_topics)
        self._restored = RestoredLogs(tier, dependencies.restart_log, self._on_adopted)
        # The tiered replicas of this broker. Metadata and configs change it.
        self._replicas: dict[TopicPartition, _TieredReplica] = {}
        # What copy tasks use. None before `start`: then no task exists yet.
        self._copying: CopyDependencies | None = None
        self._wake: Callable[[TopicPartition], None] = _ignore
        self._sweep_entry: WheelEntry | None = None
        self._is_closed = False

    @property
    def metrics(self) -> RemoteMetrics:
        """The counters and sizes."""
        return self._tier.metrics

    def start(
        self,
        high_watermarks: HighWatermarkListeners,
        wake: Callable[[TopicPartition], None],
    ) -> None:
        """Begin to copy, to expire and to sweep: the broker serves requests.

        Args:
            high_watermarks: calls back when the high watermark of a partition moves.
            wake: checks the operations that wait for a partition.
        """
        assert self._copying is None, "the manager was started before"
        self._wake = wake
        self._copying = CopyDependencies(
            self.slots, self.deletions, self.health, high_watermarks, self._on_copied
        )
        for replica in list(self._replicas.values()):
            if replica.partition.leader is not None:
                self._lead(replica)
        self.removals.start(wake)
        self._schedule_sweep()

    # Metadata and configs.

    def on_changes(self, changes: LeadershipChanges) -> None:
        """Start and stop the tasks of partitions whose role has changed, or that are gone."""
        for key in changes.deleted:
            self.removals.forget(key)
        for key in changes.failed:
            self.removals.end(key)
        for key in (*changes.deleted, *changes.failed):
            self._remove(key)
        changed = (*changes.leaders, *changes.followers)
        tiered = [each for each in changed if each.log.config.is_remote]
        self._add(tiered)
        self.removals.update(each for each in changed if not each.log.config.is_remote)
        for partition in changes.leaders:
            if partition.topic_partition.topic == METADATA_TOPIC:
                self.deleted_topics.search_later(partition.topic_partition.partition)

    def on_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Drop the metrics of deleted topics. Their partitions are in the changes before."""
        for name in topics:
            self.metrics.forget_topic(name)

    def on_offline(self, keys: Iterable[TopicPartition]) -> None:
        """Stop the tasks of partitions whose directory or log has failed."""
        for key in keys:
            self.removals.end(key)
            self._remove(key)

    def on_config(
        self, topic: str, partitions: Iterable[Partition], old: LogConfig, new: LogConfig
    ) -> None:
        """Apply a topic's changed configuration.

        Args:
            topic: the topic.
            partitions: its partitions on this broker, which have the new configuration already.
            old: the configuration before.
            new: the configuration from now on.
        """
        affected = list(partitions)
        if not (old.is_remote or new.is_remote):
            if new.remote_delete_on_disable and not old.remote_delete_on_disable:
                # A removal that the configs had forgotten before its end goes on.
                self.removals.update(affected)
            return
        if not new.is_remote:
            self._remove_tier(topic, affected, has_to_delete=new.remote_delete_on_disable)
            return
        is_new_tier = not old.is_remote
        if is_new_tier:
            self._add(affected, is_new_tier=True)
            for partition in affected:
                self.removals.end(partition.topic_partition)
        for partition in affected:
            replica = self._replicas.get(partition.topic_partition)
            if replica is not None and replica.leadership is not None:
                self._apply_copy_switch(replica)
                self._restored.check(replica.leadership)

    def _remove_tier(self, topic: str, partitions: list[Partition], *, has_to_delete: bool) -> None:
        """End the tier of a topic; leaders delete its segments."""
        if has_to_delete:
            _log.info("The remote tier of a topic is removed: topic=%s", topic)
            # First, so that the metadata stays known.
            self.removals.update(partitions)
        else:
            # The controller refuses this change.
            _log.error("Topic is not tiered any more, its remote segments stay: topic=%s", topic)
        for partition in partitions:
            self._remove(partition.topic_partition)
            # The tier may come back, and will not have these copies.
            partition.log.offsets.forget_copies()

    def on_roll(self, key: TopicPartition) -> None:
        """Look for a segment to copy in the next turn: a leader has closed a segment."""
        replica = self._replicas.get(key)
        if replica is not None and replica.copies is not None:
            self._tier.wheel.add(0, replica.copies.check)

    def _add(self, partitions: list[Partition], *, is_new_tier: bool = False) -> None:
        """Begin with partitions, or with their new roles."""
        new: list[TopicIdPartition] = []
        for partition in partitions:
            key = partition.topic_partition
            replica = self._replicas.get(key)
            if replica is not None and replica.partition is not partition:
                # The topic was deleted and created again, or its log was opened again.
                self._remove(key)
                replica = None
            if replica is None:
                where = TopicIdPartition(partition.topic_id, *key)
                replica = self._new_replica(where, partition, is_new_tier=is_new_tier)
                self._replicas[key] = replica
                new.append(where)
        if new:
            self._tier.metadata.assign(new)
        for where in new:
            replica = self._replicas[where.topic_partition]
            self._tier.metadata.on_ready(where, replica.verification.check)
        for partition in partitions:
            replica = self._replicas[partition.topic_partition]
            if partition.leader is None:
                self._resign(replica)
            else:
                self._lead(replica)

    def _new_replica(
        self, where: TopicIdPartition, partition: Partition, *, is_new_tier: bool
    ) -> _TieredReplica:
        def on_lost(segment: RemoteSegment) -> None:
            self._on_lost(replica, segment)

        verification = CopyVerification(
            where, partition, self._tier, self.health, on_lost, self.deletions.is_deleting
        )
        verification.is_new_tier = is_new_tier
        replica = _TieredReplica(where, partition, verification)
        return replica

    def _lead(self, replica: _TieredReplica) -> None:
        """Start the tasks of a leader, unless they run in this leader epoch already."""
        copying = self._copying
        leadership = replica.leadership
        if copying is None or (leadership is not None and leadership.holds):
            return
        self._resign(replica)
        leadership = replica.leadership = Leadership(replica.where, replica.partition)

        def is_copying(segment_id: bytes) -> bool:
            return replica.copies is not None and replica.copies.is_copying(segment_id)

        replica.expiration = ExpirationTask(
            leadership, self._tier, self.deletions, is_copying, self._wake
        )
        replica.expiration.start()
        self._apply_copy_switch(replica)
        self._restored.check(leadership)

    def _apply_copy_switch(self, replica: _TieredReplica) -> None:
        """Start or stop the copies of a leader, as remote.log.copy.disable demands."""
        leadership, copying = replica.leadership, self._copying
        if copying is None or leadership is None or not leadership.holds:
            return
        if not replica.partition.log.config.copies_to_remote:
            if replica.copies is not None:
                replica.copies.resign()
                replica.copies = None
            sizes = self.metrics.sizes_of(replica.where.topic_partition)
            sizes.copy_lag_bytes = sizes.copy_lag_segments = 0
        elif replica.copies is None:
            replica.copies = CopyTask(leadership, self._tier, copying)
            replica.copies.start()

    def _resign(self, replica: _TieredReplica) -> None:
        """End the tasks of a leader."""
        if replica.leadership is None:
            return
        replica.leadership.end()
        if replica.copies is not None:
            replica.copies.resign()
        replica.leadership = replica.copies = replica.expiration = None
        self.metrics.forget_partition(replica.where.topic_partition)
        self.descriptions.forget(replica.where)

    def _remove(self, key: TopicPartition) -> None:
        """End all work for a partition that this broker does not host any more."""
        replica = self._replicas.pop(key, None)
        if replica is None:
            return
        # A partition keeps its role when it is deleted.
        was_leader = replica.partition.leader is not None
        self._resign(replica)
        replica.verification.close()
        is_deleted = not self._dependencies.topic_exists(replica.where.topic_id)
        if is_deleted and was_leader and self._copying is not None:
            self.deleted_topics.delete(replica.where)
        elif replica.where not in self.deleted_topics:
            self._tier.metadata.unassign([replica.where])

    def _on_deleted_partition_gone(self, where: TopicIdPartition) -> None:
        replica = self._replicas.get(where.topic_partition)
        if replica is None or replica.where != where:
            self._tier.metadata.unassign([where])
        if not any(key.topic == where.topic for key in self._replicas):
            # The deletions were counted after the topic was deleted.
            self.metrics.forget_topic(where.topic)

    def _on_adopted(self, key: TopicPartition) -> None:
        """Begin to copy behind the adopted segments."""
        replica = self._replicas.get(key)
        if replica is not None:
            self._resign(replica)
            self._lead(replica)
        self._wake(key)

    # Copies.

    def _on_copied(self, key: TopicPartition) -> None:
        replica = self._replicas.get(key)
        if replica is not None:
            replica.verification.check()
            self._check_description(replica)

    def _check_description(self, replica: _TieredReplica) -> None:
        """Keep the description of a topic in the store, once the partition has segments there."""
        leadership = replica.leadership
        if leadership is None or not leadership.holds:
            return
        remote = self._tier.metadata.log_of(replica.where)
        if remote is not None and remote.finished_bytes:
            self.descriptions.check(replica.where)

    def _on_lost(self, replica: _TieredReplica, segment: RemoteSegment) -> None:
        """Copy a lost segment again, if this broker leads and still has its records."""
        leadership, copies = replica.leadership, replica.copies
        if leadership is None or copies is None or not leadership.holds:
            return
        if segment.start_offset < replica.partition.log.local_log_start_offset:
            _log.error(
                "Records are lost: only the remote tier had them: partition=%s offsets=%d-%d",
                replica.where.topic_partition,
                segment.start_offset,
                segment.end_offset,
            )
            return

        def on_deleted(is_gone: bool) -> None:
            if is_gone and replica.copies is copies:
                copies.on_lost(segment)

        self.deletions.delete(replica.where, segment, lambda: leadership.holds, on_deleted)

    # The sweep.

    def _schedule_sweep(self) -> None:
        if self._is_closed:
            return
        interval_ms = self._tier.config.remote_log_manager_task_interval_ms
        self._sweep_entry = self._tier.wheel.add(interval_ms, self.sweep)

    def sweep(self) -> None:
        """Look at all partitions in slices, then wait for the interval again."""
        run_in_slices(
            self._sweep_steps(),
            self._tier.clock,
            self._dependencies.timer.call_soon,
            lambda _: self._schedule_sweep(),
        )

    def _sweep_steps(self) -> Generator[None, None, None]:
        known = 0
        for key in list(self._replicas):
            replica = self._replicas.get(key)
            if replica is None or self._is_closed:
                continue
            remote = self._tier.metadata.log_of(replica.where)
            known += 0 if remote is None else remote.count
            try:
                replica.verification.check()
                if replica.copies is not None:
                    replica.copies.check()
                    replica.copies.update_lag()
                self._check_description(replica)
                if replica.partition.log.config.barnabas_remote_restore != RESTORE_NONE:
                    # The command still adds segments, which do not belong to the empty log yet.
                    if replica.leadership is not None:
                        self._restored.check(replica.leadership)
                elif replica.expiration is not None:
                    yield from replica.expiration.run()
            except AssertionError:
                raise
            except Exception:  # noqa: BLE001 - the other partitions are still handled
                _log.exception("Unexpected error in the remote tier: partition=%s", key)
            yield
        self.slots.has_room = known < self._tier.config.barnabas_remote_segments_max

    def waiting_segments(self) -> Iterator[WaitingSegment]:
        """Yield the oldest closed segment without a copy of each led partition that has one."""
        for replica in self._replicas.values():
            waiting = None if replica.copies is None else replica.copies.waiting_segment()
            if waiting is not None:
                yield waiting

    def unready_count(self) -> int:
        """Return the number of replicas whose events are not all read yet."""
        metadata = self._tier.metadata
        return sum(metadata.log_of(each.where) is None for each in self._replicas.values())

    # Closing.

    def resize(self, copies: int, deletes: int) -> None:
        """Change the number of copies, and of deletions, that run at a time."""
        self._tier.copies.resize(copies)
        self.slots.resize(copies)
        self._tier.deletes.resize(deletes)

    def close(self, on_closed: Callable[[], None]) -> None:
        """Stop all tasks. Running copies get two seconds, and are not finished by an event."""
        self._is_closed = True
        if self._sweep_entry is not None:
            self._sweep_entry.cancel()
        self.slots.close()
        for replica in self._replicas.values():
            self._resign(replica)
            replica.verification.close()
        self.deletions.close()
        self.deleted_topics.close()
        pools = [self._tier.copies, self._tier.deletes]
        still_open = len(pools)

        def on_pool_closed() -> None:
            nonlocal still_open
            still_open -= 1
            if not still_open:
                on_closed()

        for pool in pools:
            pool.close(on_pool_closed)


def _ignore(_: TopicPartition) -> None:
    """Wake nothing: the manager has not started."""
