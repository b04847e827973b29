"""The partitions that this broker hosts, kept in step with the metadata.

Part of Kafka's ReplicaManager (KIP-500). A replica with a damaged log goes offline if other
replicas have the records, and the broker reports its directory as lost to the controller (KIP-858).
The controller removes it from the ISR and elects another leader. Then the broker deletes the
damaged segment and fetches it again.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.metadata.configs_image import TOPIC
from barnabas.metadata.metadata_version import METADATA_VERSION, METADATA_VERSION_MAX
from barnabas.metadata.partition_registration import RESERVED_DIRECTORIES
from barnabas.protocol.errors import ErrorCode
from barnabas.replication.config import fetch_version, lists_pending_uploads
from barnabas.replication.partition.partition import Partition
from barnabas.storage.errors import InconsistentTopicIdError, StorageError
from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from barnabas.metadata.image import ClusterImage
    from barnabas.metadata.topics import LocalChanges, LocalPartition
    from barnabas.replication.partition.partition_roles import PartitionSettings
    from barnabas.storage.config import LogConfig
    from barnabas.storage.errors import DamagedLogError
    from barnabas.storage.log.log import Log
    from barnabas.waiting.timing_wheel import TimingWheel

_log = logging.getLogger(__name__)


class LogStore(Protocol):
    """The part of the log manager that this package uses to open and delete logs."""

    def get_or_create(
        self,
        partition: TopicPartition,
        topic_id: bytes | None,
        config: LogConfig,
        directory_id: bytes | None = None,
    ) -> Log:
        """Return the partition's log. Create it in the given directory if it does not exist.

        Raises:
            StorageError: if the log cannot be opened or created.
        """
        ...

    def delete_async(self, partition: TopicPartition) -> bool:
        """Rename the log directory now, and delete its files later.

        Returns:
            Whether there was a log.
        """
        ...

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Apply a changed topic configuration to the topic's logs."""
        ...


class LeadershipChanges(msgspec.Struct):
    """The changes on this broker from applying one delta."""

    # Partitions that this broker starts to lead, or leads with a changed registration.
    leaders: list[Partition] = msgspec.field(default_factory=list)
    followers: list[Partition] = msgspec.field(default_factory=list)
    # The subset of `followers` with a new leader epoch.
    new_followers: list[Partition] = msgspec.field(default_factory=list)
    deleted: list[TopicPartition] = msgspec.field(default_factory=list)
    # Partitions that could not apply the metadata and are offline. The reason is in the log.
    failed: list[TopicPartition] = msgspec.field(default_factory=list)

    @property
    def touched(self) -> list[TopicPartition]:
        """All changed partitions. Operations that wait for them must be checked."""
        changed = [partition.topic_partition for partition in (*self.leaders, *self.followers)]
        return [*changed, *self.deleted, *self.failed]


class ImageBrokers:
    """The state of other brokers, from the latest image, as leaders need it."""

    __slots__ = ("image",)

    def __init__(self) -> None:
        self.image: ClusterImage | None = None

    def is_isr_eligible(self, broker_id: int) -> bool:
        """Whether the broker is registered, not fenced, and not in controlled shutdown."""
        broker = None if self.image is None else self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown

    def is_alive(self, broker_id: int) -> bool:
        """Whether the broker is registered and not fenced."""
        broker = None if self.image is None else self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def broker_epoch(self, broker_id: int) -> int | None:
        """Return the epoch of the broker's registration, or None if it is not registered."""
        broker = None if self.image is None else self.image.brokers.get(broker_id)
        return None if broker is None else broker.epoch

    def rack(self, broker_id: int, listener_name: str) -> str | None:
        """Return the rack of a live broker with that listener, or None."""
        broker = None if self.image is None else self.image.brokers.get(broker_id)
        if broker is None or broker.fenced or listener_name not in broker.listeners:
            return None
        return broker.rack

    def fetch_version(self) -> int:
        """Return the version of Fetch requests between brokers."""
        return fetch_version(self._level())

    def lists_pending_uploads(self) -> bool:
        """Whether all brokers list the first offset that is not in the remote tier (KIP-1023)."""
        return lists_pending_uploads(self._level())

    def _level(self) -> int:
        """Return the finalized metadata.version."""
        if self.image is None:
            return METADATA_VERSION_MAX
        return self.image.features.finalized.get(METADATA_VERSION, METADATA_VERSION_MAX)


class PartitionRegistry:
    """Partitions by name, and the reason why a partition is missing."""

    __slots__ = (
        "_brokers",
        "_damaged",
        "_log_config",
        "_logs",
        "_settings",
        "offline",
        "online",
        "read_only_topics",
    )

    def __init__(
        self,
        logs: LogStore,
        log_config: Callable[[str, Mapping[str, str]], LogConfig],
        settings: PartitionSettings,
        brokers: ImageBrokers,
    ) -> None:
        self._logs = logs
        # Returns the configuration of a log, given the name and the configs of its topic.
        self._log_config = log_config
        self._settings = settings
        self._brokers = brokers
        # Usable partitions. Only this class changes the dict.
        self.online: dict[TopicPartition, Partition] = {}
        # Partitions in failed directories, or with failed logs. Disjoint from `online`.
        self.offline: set[TopicPartition] = set()
        # Topics that mirror topics of another cluster: only their link appends. The links change it
        # in place, because the hot path of appends keeps the set.
        self.read_only_topics: set[str] = set()
        # The repairable offline partitions: each damaged log, with the path of its damaged segment.
        self._damaged: dict[TopicPartition, str] = {}

    def partition(self, topic_partition: TopicPartition) -> Partition | ErrorCode:
        """Return the partition if it is online on this broker, else the error for the client."""
        partition = self.online.get(topic_partition)
        return self.missing_error(topic_partition) if partition is None else partition

    def missing_error(self, topic_partition: TopicPartition) -> ErrorCode:
        """Return the error for a partition that is not online on this broker."""
        if topic_partition in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        image = self._brokers.image
        if image is not None and image.topics.partition(*topic_partition) is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def apply(self, local: LocalChanges, changes: LeadershipChanges) -> Iterator[None]:
        """Delete, lead and follow partitions according to the delta.

        A partition that fails in any way goes offline. The other partitions are not affected.

        Args:
            changes: receives each change. The iterator stops after each partition.
        """
        for deleted in local.deletes:
            topic_partition = TopicPartition(deleted.topic, deleted.partition)
            self._guarded(topic_partition, changes, partial(self._delete, topic_partition))
            self.offline.discard(topic_partition)
            changes.deleted.append(topic_partition)
            yield
        for wanted in local.leaders:
            key = TopicPartition(wanted.topic, wanted.partition)
            self._guarded(key, changes, partial(self._lead, wanted, changes))
            yield
        for wanted in local.followers:
            key = TopicPartition(wanted.topic, wanted.partition)
            self._guarded(key, changes, partial(self._follow, wanted, changes))
            yield

    def _guarded(
        self, key: TopicPartition, changes: LeadershipChanges, act: Callable[[], None]
    ) -> None:
        try:
            act()
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - the other partitions are still handled
            _log.exception("Unexpected error, the partition is offline: partition=%s", key)
            self.online.pop(key, None)
            self.offline.add(key)
            changes.failed.append(key)

    def _delete(self, key: TopicPartition) -> None:
        is_offline = key in self.offline
        if self.online.pop(key, None) is not None or is_offline:
            # This also deletes a log that could not be opened.
            self._logs.delete_async(key)

    def _lead(self, wanted: LocalPartition, changes: LeadershipChanges) -> None:
        partition = self._ensure(wanted, changes)
        if partition is not None:
            partition.become_leader(wanted.registration)
            changes.leaders.append(partition)

    def _follow(self, wanted: LocalPartition, changes: LeadershipChanges) -> None:
        partition = self._ensure(wanted, changes)
        if partition is not None:
            is_new_epoch = partition.become_follower(wanted.registration)
            changes.followers.append(partition)
            if is_new_epoch:
                changes.new_followers.append(partition)

    def update_config(self, topic: str) -> list[TopicPartition]:
        """Apply the topic's changed configuration.

        Returns:
            Partitions whose high watermark moved, since min.insync.replicas limits it.
        """
        self._logs.update_config(topic, self._config_of(topic))
        return [
            topic_partition
            for topic_partition, partition in self.online.items()
            if topic_partition.topic == topic
            and partition.leader is not None
            and partition.leader.maybe_increment_high_watermark()
        ]

    def _config_of(self, topic: str) -> LogConfig:
        image = self._brokers.image
        own = {} if image is None else image.configs.get(TOPIC, topic)
        return self._log_config(topic, own)

    def _ensure(self, wanted: LocalPartition, changes: LeadershipChanges) -> Partition | None:
        topic_partition = TopicPartition(wanted.topic, wanted.partition)
        partition = self.online.get(topic_partition)
        if partition is not None and partition.topic_id == wanted.topic_id:
            return partition
        if topic_partition in self.offline and not self._may_repair(wanted):
            return None
        if partition is not None:
            # The topic was deleted and recreated under the same name in one metadata batch.
            del self.online[topic_partition]
            self._logs.delete_async(topic_partition)
        try:
            directory = wanted.registration.directory_of(self._settings.node_id)
            log = self._open(topic_partition, wanted.topic_id, directory)
        except StorageError as error:
            _log.error("Log cannot be opened: partition=%s error=%s", topic_partition, error)
            self.offline.add(topic_partition)
            changes.failed.append(topic_partition)
            return None
        partition = Partition(topic_partition, wanted.topic_id, log, self._settings)
        self.online[topic_partition] = partition
        return partition

    def _open(self, topic_partition: TopicPartition, topic_id: bytes, directory: bytes) -> Log:
        config = self._config_of(topic_partition.topic)
        directory_id = None if directory in RESERVED_DIRECTORIES else directory
        try:
            return self._logs.get_or_create(topic_partition, topic_id, config, directory_id)
        except InconsistentTopicIdError:
            # The topic was deleted and its name reused while this broker was down.
            _log.warning(
                "Log of a deleted topic is deleted, because its name is reused: partition=%s",
                topic_partition,
            )
            self._logs.delete_async(topic_partition)
            return self._logs.get_or_create(topic_partition, topic_id, config, directory_id)

    def note_damage(self, topic_partition: TopicPartition, path: str) -> None:
        """Record that a segment file is damaged. The caller then takes the partition offline."""
        self._damaged[topic_partition] = path

    def _may_repair(self, wanted: LocalPartition) -> bool:
        """Repair a damaged offline log: delete the damaged part so that it can be fetched again.

        This requires that the controller has removed this replica from the ISR. Then no
        acknowledged record depends on it.

        Returns:
            Whether the log was repaired.
        """
        key = TopicPartition(wanted.topic, wanted.partition)
        registration, node_id = wanted.registration, self._settings.node_id
        if key not in self._damaged or node_id in registration.isr:
            return False
        path = self._damaged.pop(key)
        try:
            self._open(key, wanted.topic_id, registration.directory_of(node_id)).truncate_damage(
                path
            )
        except StorageError as error:
            _log.error("Damaged log cannot be truncated: partition=%s error=%s", key, error)
            return False
        _log.warning("Damaged replica is fetched again: partition=%s path=%s", key, path)
        self.offline.discard(key)
        return True

    def take_offline(self, topic_partition: TopicPartition) -> None:
        """Take a partition offline after a failure of its log."""
        if self.online.pop(topic_partition, None) is not None:
            self.offline.add(topic_partition)

    def take_directory_offline(self, directory: str) -> list[TopicPartition]:
        """Take offline the partitions in a failed data directory or log directory. Return them."""
        prefix = directory.rstrip("/") + "/"
        affected = [
            topic_partition
            for topic_partition, partition in self.online.items()
            if f"{partition.log.directory}/".startswith(prefix)
        ]
        for topic_partition in affected:
            self.take_offline(topic_partition)
        return affected


class DamageDependencies(msgspec.Struct, frozen=True):
    """The collaborators and callbacks of `DamagedReplicas`."""

    node_id: int
    registry: PartitionRegistry
    brokers: ImageBrokers
    wheel: TimingWheel
    # Takes a partition offline, and checks its pending operations.
    take_offline: Callable[[TopicPartition], None]
    wake: Callable[[TopicPartition], None]
    # Reports a lost replica to the controller. None if no other broker can take over.
    give_up: Callable[[TopicIdPartition], None] | None


class DamagedReplicas:
    """Takes replicas with damaged logs offline."""

    __slots__ = ("_dependencies",)

    def __init__(self, dependencies: DamageDependencies) -> None:
        self._dependencies = dependencies

    def on_damage(self, key: TopicPartition, error: DamagedLogError) -> None:
        """Handle a damaged log. Without another live ISR member, the partition stays online."""
        dependencies = self._dependencies
        partition = dependencies.registry.online.get(key)
        if dependencies.give_up is None or partition is None or not self._has_other_in_sync(key):
            return
        _log.warning(
            "Damaged replica goes offline: partition=%s path=%s; it is fetched again "
            "after the controller has removed it from the ISR",
            key,
            error.path,
        )
        dependencies.registry.note_damage(key, error.path)
        where = TopicIdPartition(partition.topic_id, *key)
        # In the next turn, since this method may be called during a fetch.
        dependencies.wheel.add(0, partial(self._give_up, where, dependencies.give_up))

    def _give_up(
        self, where: TopicIdPartition, give_up: Callable[[TopicIdPartition], None]
    ) -> None:
        self._dependencies.take_offline(where.topic_partition)
        self._dependencies.wake(where.topic_partition)
        give_up(where)

    def _has_other_in_sync(self, key: TopicPartition) -> bool:
        brokers = self._dependencies.brokers
        registration = None if brokers.image is None else brokers.image.topics.partition(*key)
        return registration is not None and any(
            each != self._dependencies.node_id and brokers.is_alive(each)
            for each in registration.isr
        )


class HighWatermarkListeners:
    """Calls one listener per partition when the partition's high watermark has moved.

    The caller checks a partition after each change of it, never during the change.
    """

    __slots__ = ("_listeners", "_registry", "_reported")

    def __init__(self, registry: PartitionRegistry) -> None:
        self._registry = registry
        self._listeners: dict[TopicPartition, Callable[[], None]] = {}
        # The high watermark at the last call of each listener. Same keys as `_listeners`.
        self._reported: dict[TopicPartition, int] = {}

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition has a listener."""
        return topic_partition in self._listeners

    def __len__(self) -> int:
        """Return the number of listeners."""
        return len(self._listeners)

    def add(self, topic_partition: TopicPartition, on_moved: Callable[[], None]) -> None:
        """Call `on_moved` after each move of the high watermark, until `remove`.

        The partition may be offline; then the calls begin when it is online again.
        """
        assert topic_partition not in self._listeners, f"{topic_partition} has a listener"
        self._listeners[topic_partition] = on_moved
        found = self._registry.partition(topic_partition)
        self._reported[topic_partition] = (
            -1 if isinstance(found, ErrorCode) else found.log.high_watermark
        )

    def remove(self, topic_partition: TopicPartition) -> None:
        """Remove the partition's listener. Without a listener, do nothing."""
        self._listeners.pop(topic_partition, None)
        self._reported.pop(topic_partition, None)

    def check(self, topic_partition: TopicPartition) -> None:
        """Call the partition's listener if the high watermark has moved since its last call."""
        listener = self._listeners.get(topic_partition)
        if listener is None:
            return
        found = self._registry.partition(topic_partition)
        if isinstance(found, ErrorCode):
            return
        high_watermark = found.log.high_watermark
        if high_watermark == self._reported[topic_partition]:
            return
        self._reported[topic_partition] = high_watermark
        try:
            listener()
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - the caller serves another request
            _log.exception(
                "Unexpected error in a listener to a high watermark: partition=%s", topic_partition
            )
