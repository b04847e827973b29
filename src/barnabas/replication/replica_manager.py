"""The partitions that this broker hosts, and the operations on them (Kafka's ReplicaManager)."""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.metadata.configs_image import TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.replication.fetcher.followed_partitions import (
    FollowedDependencies,
    FollowedPartitions,
    FollowerLogs,
)
from barnabas.replication.links.source_offsets import LinkSources
from barnabas.replication.partition.isr_maintenance import IsrMaintenance
from barnabas.replication.partition.partition_registry import (
    DamageDependencies,
    DamagedReplicas,
    HighWatermarkListeners,
    ImageBrokers,
    LeadershipChanges,
    LogStore,
    PartitionRegistry,
)
from barnabas.replication.partition.partition_roles import PartitionSettings
from barnabas.replication.replication_throttle import ReplicationThrottles
from barnabas.replication.requests.idle_partitions import IdlePartitionRegistry
from barnabas.replication.requests.leadership_checks import LeadershipChecks
from barnabas.replication.requests.offset_requests import OffsetRequests
from barnabas.replication.requests.replica_appends import (
    AppendDependencies,
    JointAppends,
    ReplicaAppends,
)
from barnabas.replication.requests.replica_reads import ReadDependencies, ReplicaReads
from barnabas.storage.errors import StorageError
from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition
from barnabas.waiting.purgatory import Purgatory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from barnabas.metadata.image import ClusterDelta, ClusterImage
    from barnabas.replication.config import ReplicationConfig
    from barnabas.replication.fetcher.leader_channels import LeaderChannels
    from barnabas.replication.links.mirror_replicas import MirrorReplicas
    from barnabas.replication.partition.isr import AlterPartitionSender
    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.results import FetchResult
    from barnabas.replication.remote.remote_access import RemoteReplication
    from barnabas.replication.remote.remote_log_manager import RemoteLogManager
    from barnabas.replication.replica_metrics import ReplicaMetrics
    from barnabas.replication.replication_throttle import ReplicationThrottle
    from barnabas.replication.requests.delayed_offset_lookups import (
        DelayedOffsetLookups,
        PendingLookup,
        SearchQueue,
    )
    from barnabas.replication.requests.delayed_writes import StepQueue
    from barnabas.replication.requests.preferred_replicas import PreferredReplicas
    from barnabas.runtime.clock import Clock
    from barnabas.storage.config import LogConfig
    from barnabas.waiting.timing_wheel import TimingWheel, WheelEntry

_log = logging.getLogger(__name__)

# Attribute lookup on the enum class costs 100 ns, as much as a function call.
_NONE = ErrorCode.NONE
# Limit on the number of pending fetches, counted once per partition. Each costs about 1 KB.
WATCHED_FETCHES_MAX = 200_000
LEADER_THROTTLED_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_THROTTLED_REPLICAS = "follower.replication.throttled.replicas"


class LogManagement(LogStore, FollowerLogs, Protocol):
    """The part of the log manager that replication uses."""


class ReplicationDependencies(msgspec.Struct, frozen=True):
    """The collaborators and callbacks of a replica manager."""

    wheel: TimingWheel
    clock: Clock
    alter_partition_sender: AlterPartitionSender
    metrics: ReplicaMetrics
    # Returns the configuration of a log, given its topic and the topic's own configs.
    log_config: Callable[[str, Mapping[str, str]], LogConfig]
    # Connections to other brokers. None if this broker has no peers.
    leaders: LeaderChannels | None = None
    # Returns this broker's epoch, which followers send in fetches (KIP-903). -1: not registered.
    broker_epoch: Callable[[], int] = lambda: -1
    # Reports a lost replica of this broker to the controller. None if there are no peers.
    give_up_replica: Callable[[TopicIdPartition], None] | None = None
    # Queue that inspects producers' records over several turns. None: inspect them at once.
    inspections: StepQueue | None = None
    # The remote tier. None without one.
    tiering: RemoteReplication | None = None


class ReplicaManager:
    """Reads, appends and replicates the partitions that this broker hosts."""

    def __init__(
        self,
        node_id: int,
        config: ReplicationConfig,
        logs: LogManagement,
        dependencies: ReplicationDependencies,
    ) -> None:
        self._config = config
        self._logs = logs
        self._wheel = dependencies.wheel
        self._clock = dependencies.clock
        self.metrics = dependencies.metrics
        self._brokers = ImageBrokers()
        # The remote tier. None without one.
        self._tiering = dependencies.tiering
        self.remote = None if self._tiering is None else self._tiering.reads
        settings = PartitionSettings(
            node_id,
            self._clock,
            self._brokers,
            config.replica_lag_time_max_ms,
            remote=self.remote,
        )
        self._node_id = node_id
        self._registry = PartitionRegistry(logs, dependencies.log_config, settings, self._brokers)
        # The registry's own dict: the hot path does one lookup per partition.
        self._online = self._registry.online
        self._create_purgatories()
        # Coordinators listen to the partitions of their state. Checked by `wake`.
        self.high_watermark_listeners = HighWatermarkListeners(self._registry)
        # Fetch sessions whose partitions have no changes to report to the follower.
        self.idle_partitions = IdlePartitionRegistry(
            self._online,
            self._brokers,
            self._fetches,
            self.metrics,
            has_selector=config.replica_selector_class is not None,
        )
        self._checks = LeadershipChecks(
            self._online, self._fetches, self.idle_partitions, self._wheel
        )
        self._isr = IsrMaintenance(
            config.replica_lag_time_max_ms,
            self._wheel,
            dependencies.alter_partition_sender,
            self.metrics,
            self._online.values,
            self.wake,
        )
        self.throttles = ReplicationThrottles(config, self._clock)
        # The partitions that this broker follows, and their fetchers.
        self.followed = self._make_followed(dependencies)
        self.sources = LinkSources()
        self._checkpoint_entry: WheelEntry | None = None
        # Partitions to check after the current check, each with whether only fetches are checked.
        self._to_wake: deque[tuple[TopicPartition, bool]] = deque()
        self._waking = False
        self._create_requests(dependencies)

    def _create_purgatories(self) -> None:
        """Create the purgatories of pending requests."""
        self._produces = Purgatory("Produce", self._wheel)
        self._fetches = Purgatory("Fetch", self._wheel, WATCHED_FETCHES_MAX)
        self._deletes = Purgatory("DeleteRecords", self._wheel)
        # Fetches of share groups. Also watched under share partitions, which the broker checks.
        self.share_fetches = Purgatory("ShareFetch", self._wheel, WATCHED_FETCHES_MAX)
        # In the order in which `wake` checks them. Producers first: many fetches may wait for a
        # partition.
        self._purgatories: tuple[Purgatory, ...] = (
            self._produces,
            self._fetches,
            self._deletes,
            self.share_fetches,
        )
        # Fetches and lookups of offsets that wait for the remote tier. None without one.
        self._remote_fetches: Purgatory | None = None
        self.remote_lookups: Purgatory | None = None
        if self._tiering is not None:
            self._remote_fetches = Purgatory("RemoteFetch", self._wheel, WATCHED_FETCHES_MAX)
            self.remote_lookups = Purgatory("RemoteListOffsets", self._wheel, WATCHED_FETCHES_MAX)
            self._purgatories += (self._remote_fetches, self.remote_lookups)

    def _create_requests(self, dependencies: ReplicationDependencies) -> None:
        """Create the appends, reads and lookups.

        Their bound methods become attributes, to save a call on the hot path.
        """
        self.partition = self._registry.partition
        appends = self._make_appends(dependencies)
        self.append_records = appends.append_records
        self.joint_appends = JointAppends(appends, self._clock)
        reads = self._make_reads(dependencies)
        offsets = OffsetRequests(
            self._registry, self.sources, self._deletes, self._clock, self.wake
        )
        self.list_offset = offsets.list_offset
        self.offsets_before = offsets.offsets_before
        self.epoch_end_offset = offsets.epoch_end_offset
        self.delete_records = offsets.delete_records
        self.confirm_leadership = self._checks.confirm_leadership
        self.fetch = reads.fetch
        self.read = reads.read_again
        self.load_remote = reads.load_remote

    def _make_followed(self, dependencies: ReplicationDependencies) -> FollowedPartitions:
        return FollowedPartitions(
            FollowedDependencies(
                node_id=self._node_id,
                config=self._config,
                registry=self._registry,
                brokers=self._brokers,
                logs=self._logs,
                metrics=self.metrics,
                throttle=self.throttles.follower,
                wheel=self._wheel,
                clock=self._clock,
                channels=dependencies.leaders,
                broker_epoch=dependencies.broker_epoch,
                wake=self.wake,
                remote=None if self._tiering is None else self._tiering.access,
            )
        )

    def _make_appends(self, dependencies: ReplicationDependencies) -> ReplicaAppends:
        return ReplicaAppends(
            AppendDependencies(
                registry=self._registry,
                metrics=self.metrics,
                clock=self._clock,
                produces=self._produces,
                wake=self.wake,
                wake_fetches=self._wake_fetches,
                take_offline=self._take_offline,
                inspections=dependencies.inspections,
                on_roll=None if self._tiering is None else self._tiering.manager.on_roll,
            )
        )

    def _make_reads(self, dependencies: ReplicationDependencies) -> ReplicaReads:
        damaged = DamagedReplicas(
            DamageDependencies(
                node_id=self._node_id,
                registry=self._registry,
                brokers=self._brokers,
                wheel=self._wheel,
                take_offline=self._take_offline,
                wake=self.wake,
                give_up=dependencies.give_up_replica,
            )
        )
        return ReplicaReads(
            ReadDependencies(
                registry=self._registry,
                metrics=self.metrics,
                isr=self._isr,
                fetches=self._fetches,
                deletes=self._deletes,
                checks=self._checks,
                throttle=self.throttles.leader,
                preferred=self._preferred_replicas(),
                wake=self.wake,
                on_damage=damaged.on_damage,
                remote=self.remote,
                remote_fetches=self._remote_fetches,
            )
        )

    def mirror_replicas(self, throttle: ReplicationThrottle) -> MirrorReplicas:
        """Return the access of a link's fetchers to the mirrors that this broker leads."""
        # Imported only on brokers with links.
        from barnabas.replication.links.mirror_replicas import MirrorReplicas

        return MirrorReplicas(
            self._registry, self._logs, self.metrics, throttle, self.wake, self._clock
        )

    def set_read_only_topics(self, topics: set[str], promoting: frozenset[str]) -> None:
        """Refuse clients' appends to mirrors. No link appends to the `promoting` ones either."""
        self.sources.promoting = promoting
        read_only = self.sources.read_only = self._registry.read_only_topics
        read_only.clear()
        read_only.update(topics)

    def _preferred_replicas(self) -> PreferredReplicas | None:
        if self._config.replica_selector_class is None:
            return None
        from barnabas.replication.requests.preferred_replicas import (
            PreferredReplicas,
            replica_selector,
        )

        selector = replica_selector(self._config.replica_selector_class)
        if selector is None:
            return None
        return PreferredReplicas(self._node_id, selector, self._brokers, self._clock)

    def start(self) -> None:
        """Start the periodic work: ISR shrinking and high watermark checkpoints."""
        self._isr.start()
        self._schedule_checkpoint()
        if self._tiering is not None:
            self._tiering.manager.start(self.high_watermark_listeners, self.wake)

    def shutdown(self) -> None:
        """Stop, drop pending operations without a response, and write the high watermarks."""
        self.followed.close()
        self._isr.stop()
        if self._checkpoint_entry is not None:
            self._checkpoint_entry.cancel()
        for purgatory in self._purgatories:
            purgatory.shutdown()
        self._checks.close()
        self._logs.checkpoint_high_watermarks()

    def complete_delayed_fetches(self) -> None:
        """Complete all pending fetches with the available records, before the broker stops."""
        self._fetches.complete_all()
        self.share_fetches.complete_all()
        if self._remote_fetches is not None:
            self._remote_fetches.complete_all()

    # Partitions.

    def partitions(self) -> Iterable[Partition]:
        """Return all online partitions."""
        return self._online.values()

    def waiting(self) -> dict[str, int]:
        """Return the number of pending operations in each purgatory, by its name."""
        return {purgatory.name: purgatory.delayed for purgatory in self._purgatories}

    def watched(self) -> dict[str, int]:
        """Return the number of watches, by purgatory.

        A pending operation has one watch per partition that it waits for.
        """
        return {purgatory.name: purgatory.watched() for purgatory in self._purgatories}

    @property
    def offline_partitions(self) -> frozenset[TopicPartition]:
        """Partitions in failed data directories."""
        return frozenset(self._registry.offline)

    def apply_delta(self, delta: ClusterDelta, image: ClusterImage) -> LeadershipChanges:
        """Apply new metadata like `apply_in_steps`, without pauses."""
        changes = LeadershipChanges()
        for _ in self.apply_in_steps(delta, image, changes):
            pass
        return changes

    def apply_in_steps(
        self, delta: ClusterDelta, image: ClusterImage, changes: LeadershipChanges
    ) -> Iterator[None]:
        """Apply new metadata: delete, lead, follow and configure the partitions of this broker.

        Args:
            delta: the change from the previous image.
            image: the cluster after the change.
            changes: receives the changes on this broker, for the coordinators. Complete at the end.

        Yields:
            After each partition, since opening or deleting a log takes a millisecond.
        """
        self._brokers.image = image
        local = delta.topics_delta.local_changes(self._node_id)
        self.followed.remove(TopicPartition(each.topic, each.partition) for each in local.leaders)
        self.followed.remove(TopicPartition(each.topic, each.partition) for each in local.deletes)
        new_followers = 0
        for _ in self._registry.apply(local, changes):
            if len(changes.new_followers) > new_followers:
                # Stop fetching from the old leader before the first fetch from the new leader.
                new = changes.new_followers[new_followers:]
                self.followed.remove(each.topic_partition for each in new)
                new_followers += len(new)
            yield
        self.metrics.metadata_apply_errors += len(changes.failed)
        self.followed.remove(changes.failed)
        for key in changes.deleted:
            if image.topics.by_name(key.topic) is None:
                self.metrics.forget_topic(key.topic)
        moved: list[TopicPartition] = []
        for resource_type, name in delta.config_changes:
            if resource_type == TOPIC:
                moved += self._apply_topic_config(name)
        for topic_partition in (*changes.touched, *moved):
            self.wake(topic_partition)
            yield
        if changes.followers:
            self.followed.follow(changes)
        self.followed.close_idle()

    def _apply_topic_config(self, topic: str) -> list[TopicPartition]:
        """Apply a topic's configuration. Return the partitions whose high watermark moved."""
        try:
            self._apply_throttled_replicas(topic)
            if self._tiering is not None:
                return self._update_tiered_config(topic, self._tiering.manager)
            return self._registry.update_config(topic)
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - the other topics are still handled
            _log.exception("Configuration of a topic cannot be applied: topic=%s", topic)
            self.metrics.metadata_apply_errors += 1
            return []

    def _update_tiered_config(self, topic: str, manager: RemoteLogManager) -> list[TopicPartition]:
        """Apply a topic's configuration to its logs, then to its tasks of the remote tier."""
        image = self._brokers.image
        found = None if image is None else image.topics.by_name(topic)
        keys = () if found is None else (TopicPartition(topic, each) for each in found.partitions)
        partitions = [self._online[key] for key in keys if key in self._online]
        if not partitions:
            return self._registry.update_config(topic)
        old = partitions[0].log.config
        moved = self._registry.update_config(topic)
        manager.on_config(topic, partitions, old, partitions[0].log.config)
        return moved

    def _apply_throttled_replicas(self, topic: str) -> None:
        image = self._brokers.image
        configs = {} if image is None else image.configs.get(TOPIC, topic)
        for key, throttle in (
            (LEADER_THROTTLED_REPLICAS, self.throttles.leader),
            (FOLLOWER_THROTTLED_REPLICAS, self.throttles.follower),
        ):
            listed = [each.strip() for each in configs.get(key, "").split(",") if each.strip()]
            throttle.set_replicas(topic, listed, self._node_id)

    def on_directory_failed(self, directory: str) -> list[TopicPartition]:
        """Take the partitions of a failed data directory offline.

        Returns:
            The partitions. Their pending operations are checked in the next turn, since this method
            may be called during an append.
        """
        affected = self._registry.take_directory_offline(directory)
        self.followed.remove(affected)
        if self._tiering is not None:
            self._tiering.manager.on_offline(affected)
        for topic_partition in affected:
            self._wheel.add(0, partial(self.wake, topic_partition))
        return affected

    def _take_offline(self, topic_partition: TopicPartition) -> None:
        self._registry.take_offline(topic_partition)
        self.followed.remove([topic_partition])
        if self._tiering is not None:
            self._tiering.manager.on_offline([topic_partition])

    def _schedule_checkpoint(self) -> None:
        interval_ms = self._config.replica_high_watermark_checkpoint_interval_ms
        self._checkpoint_entry = self._wheel.add(interval_ms, self._checkpoint)

    def _checkpoint(self) -> None:
        self._schedule_checkpoint()
        try:
            self._logs.checkpoint_high_watermarks()
        except StorageError as error:
            _log.error("Checkpoint of high watermarks failed: error=%s", error)

    # Lookups in the remote tier.

    def look_up_remotely(
        self,
        lookups: list[PendingLookup],
        timeout_ms: int,
        queue: SearchQueue,
        on_done: Callable[[], None],
    ) -> DelayedOffsetLookups:
        """Search the remote tier for the offsets of one request.

        Args:
            lookups: at least one.
            timeout_ms: how long the request waits; 0 or less for the limit of the broker.
            queue: runs the searches.
            on_done: called once, after all lookups have their results; perhaps before this returns.
        """
        # Imported only on brokers with a remote tier.
        from barnabas.replication.requests.delayed_offset_lookups import DelayedOffsetLookups

        assert self.remote is not None, "a lookup needs the remote tier"
        assert self.remote_lookups is not None, "a broker with a remote tier has its purgatory"
        if timeout_ms <= 0:
            timeout_ms = self.remote.limits.list_offsets_timeout_ms
        operation = DelayedOffsetLookups(timeout_ms, lookups, self, self.remote, queue, on_done)
        operation.start(self.remote_lookups)
        return operation

    # Waking.

    def wake(self, topic_partition: TopicPartition) -> None:
        """Check the operations and the listener of the partition, after a change of its state.

        A completed operation may append again. The checks after that append run later, so that no
        check sees a partition during its change.
        """
        if self.idle_partitions.sessions:
            self.idle_partitions.activate(topic_partition)
        if (
            not (self._fetches.delayed or self._produces.delayed or self._deletes.delayed)
            and not self.share_fetches.delayed
            and not (self._remote_fetches is not None and self._remote_fetches.delayed)
            and not self._checks.pending
            and topic_partition not in self.high_watermark_listeners
        ):
            return
        self._check_operations(topic_partition, only_fetches=False)

    def _wake_fetches(self, topic_partition: TopicPartition) -> None:
        """Check the pending fetches of the partition, after a change of its log end only."""
        if self.idle_partitions.sessions:
            self.idle_partitions.activate(topic_partition)
        if self._fetches.delayed:
            self._check_operations(topic_partition, only_fetches=True)

    def _check_operations(self, topic_partition: TopicPartition, only_fetches: bool) -> None:
        self._to_wake.append((topic_partition, only_fetches))
        if self._waking:
            return
        self._waking = True
        try:
            while self._to_wake:
                key, only_fetches = self._to_wake.popleft()
                if only_fetches:
                    self._fetches.check_and_complete(key)
                    continue
                for purgatory in self._purgatories:
                    if purgatory.delayed:
                        purgatory.check_and_complete(key)
                if self._checks.pending:
                    self._checks.recheck(key)
                # Last: a pending append first decides its own result.
                self.high_watermark_listeners.check(key)
        finally:
            self._waking = False

    def count_sent(self, where: TopicIdPartition, result: FetchResult) -> None:
        """Count records that are about to be sent to a follower, also against the throttle."""
        size = len(result.records)
        metrics, throttle = self.metrics, self.throttles.leader
        metrics.replication_bytes_out += size
        if result.is_reassignment:
            metrics.reassignment_bytes_out += size
        if throttle.is_active and throttle.is_throttled(where.topic_partition):
            throttle.record(size)
