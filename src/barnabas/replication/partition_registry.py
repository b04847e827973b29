"""The partitions that this broker has a replica of, kept as the metadata says (KIP-500, part of
Kafka's ReplicaManager)."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.metadata.configs_image import TOPIC
from barnabas.metadata.metadata_version import METADATA_VERSION, METADATA_VERSION_MAX
from barnabas.metadata.partition_registration import RESERVED_DIRECTORIES
from barnabas.protocol.errors import ErrorCode
from barnabas.replication.fetcher_settings import fetch_version
from barnabas.replication.partition import Partition
from barnabas.storage.errors import InconsistentTopicIdError, StorageError
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from barnabas.metadata.image import ClusterImage
    from barnabas.metadata.topics_delta import LocalChanges, LocalPartition
    from barnabas.replication.partition_settings import PartitionSettings
    from barnabas.storage.config import LogConfig
    from barnabas.storage.log import Log

_log = logging.getLogger(__name__)


class LogStore(Protocol):
    """Where logs come from: what this package needs of the log manager."""

    def get_or_create(
        self,
        partition: TopicPartition,
        topic_id: bytes | None,
        config: LogConfig,
        directory_id: bytes | None = None,
    ) -> Log:
        """The partition's log, made if there is none, in that directory. Raises StorageError."""
        ...

    def delete_async(self, partition: TopicPartition) -> bool:
        """Set the log aside now and delete its files later."""
        ...

    def update_config(self, topic: str, config: LogConfig) -> None:
        """The configuration of a topic has changed."""
        ...


class LeadershipChanges(msgspec.Struct):
    """What applying a delta has changed on this broker."""

    # Led from now on, or led as before with a changed registration.
    leaders: list[Partition] = msgspec.field(default_factory=list)
    followers: list[Partition] = msgspec.field(default_factory=list)
    # Those of the followers that a new leader epoch began for.
    new_followers: list[Partition] = msgspec.field(default_factory=list)
    deleted: list[TopicPartition] = msgspec.field(default_factory=list)
    # Those that cannot do what the metadata says, and are offline; the log tells why.
    failed: list[TopicPartition] = msgspec.field(default_factory=list)

    @property
    def touched(self) -> list[TopicPartition]:
        """All of them: whoever waits on one has to look again."""
        changed = [partition.topic_partition for partition in (*self.leaders, *self.followers)]
        return [*changed, *self.deleted, *self.failed]


class ImageBrokers:
    """What leaders ask about other brokers, from the latest image."""

    __slots__ = ("image",)

    def __init__(self) -> None:
        self.image: ClusterImage | None = None

    def is_isr_eligible(self, broker_id: int) -> bool:
        """Whether it is registered, neither fenced nor shutting down."""
        broker = None if self.image is None else self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown

    def is_alive(self, broker_id: int) -> bool:
        """Whether it is registered and not fenced."""
        broker = None if self.image is None else self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def broker_epoch(self, broker_id: int) -> int | None:
        """Epoch of its registration."""
        broker = None if self.image is None else self.image.brokers.get(broker_id)
        return None if broker is None else broker.epoch

    def rack(self, broker_id: int, listener_name: str) -> str | None:
        """The rack of a live broker with that listener; None if there is none."""
        broker = None if self.image is None else self.image.brokers.get(broker_id)
        if broker is None or broker.fenced or listener_name not in broker.listeners:
            return None
        return broker.rack

    def fetch_version(self) -> int:
        """The version in which brokers fetch from each other."""
        level = METADATA_VERSION_MAX
        if self.image is not None:
            level = self.image.features.finalized.get(METADATA_VERSION, level)
        return fetch_version(level)


class PartitionRegistry:
    """Partitions by name, and why one is not there."""

    __slots__ = ("_brokers", "_damaged", "_log_config", "_logs", "_settings", "offline", "online")

    def __init__(
        self,
        logs: LogStore,
        log_config: Callable[[Mapping[str, str]], LogConfig],
        settings: PartitionSettings,
        brokers: ImageBrokers,
    ) -> None:
        self._logs = logs
        # The configuration of a log, from what is set on its topic.
        self._log_config = log_config
        self._settings = settings
        self._brokers = brokers
        # What can be used. Changed here only.
        self.online: dict[TopicPartition, Partition] = {}
        # What lies on a failed disk; disjoint from `online`.
        self.offline: set[TopicPartition] = set()
        # Those of them whose log is damaged and can be fetched again: the damaged segment's file.
        self._damaged: dict[TopicPartition, str] = {}

    def partition(self, topic_partition: TopicPartition) -> Partition | ErrorCode:
        """The partition if it is online here, else the error for the asker."""
        partition = self.online.get(topic_partition)
        return self.why_missing(topic_partition) if partition is None else partition

    def why_missing(self, topic_partition: TopicPartition) -> ErrorCode:
        """The error for a partition that is not online here."""
        if topic_partition in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        image = self._brokers.image
        if image is not None and image.topics.partition(*topic_partition) is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def apply(self, local: LocalChanges, changes: LeadershipChanges) -> Iterator[None]:
        """Delete, lead and follow as the delta says.

        A partition that fails, in whatever way, is taken offline; the others go on.

        Args:
            changes: gets each change when it is made; the iterator stops after each.
        """
        for gone in local.deletes:
            topic_partition = TopicPartition(gone.topic, gone.partition)
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
        except Exception:  # noqa: BLE001 - the other partitions go on
            _log.exception("Unexpected error, the partition is offline: partition=%s", key)
            self.online.pop(key, None)
            self.offline.add(key)
            changes.failed.append(key)

    def _delete(self, key: TopicPartition) -> None:
        is_offline = key in self.offline
        if self.online.pop(key, None) is not None or is_offline:
            # A log that could not be opened is deleted with its topic too.
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
        """The topic's configuration has changed.

        Returns:
            Partitions whose high watermark moved: min.insync.replicas is part of its rule.
        """
        self._logs.update_config(topic, self._config_of(topic))
        return [
            topic_partition
            for topic_partition, partition in self.online.items()
            if topic_partition.topic == topic
            and partition.is_leader
            and partition.maybe_increment_high_watermark()
        ]

    def _config_of(self, topic: str) -> LogConfig:
        image = self._brokers.image
        return self._log_config({} if image is None else image.configs.get(TOPIC, topic))

    def _ensure(self, wanted: LocalPartition, changes: LeadershipChanges) -> Partition | None:
        topic_partition = TopicPartition(wanted.topic, wanted.partition)
        partition = self.online.get(topic_partition)
        if partition is not None and partition.topic_id == wanted.topic_id:
            return partition
        if topic_partition in self.offline and not self._may_repair(wanted):
            return None
        if partition is not None:
            # Deleted and created anew under the same name in one batch of metadata.
            del self.online[topic_partition]
            self._logs.delete_async(topic_partition)
        try:
            directory = wanted.registration.directory_of(self._settings.node_id)
            log = self._open(topic_partition, wanted.topic_id, directory)
        except StorageError as error:
            _log.error("cannot open the log of %s: %s", topic_partition, error)
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
            # Of a topic that was deleted, and its name used again, while this broker was down.
            _log.warning("%s belongs to a deleted topic and makes room", topic_partition)
            self._logs.delete_async(topic_partition)
            return self._logs.get_or_create(topic_partition, topic_id, config, directory_id)

    def note_damage(self, topic_partition: TopicPartition, path: str) -> None:
        """A segment's file is damaged; the partition is about to go offline for it."""
        self._damaged[topic_partition] = path

    def _may_repair(self, wanted: LocalPartition) -> bool:
        """Drop the damaged part of a log that is offline for it, if other replicas have it.

        The controller must have taken this replica out of the ISR: then it is not counted on.
        """
        key = TopicPartition(wanted.topic, wanted.partition)
        registration, node_id = wanted.registration, self._settings.node_id
        if key not in self._damaged or node_id in registration.isr:
            return False
        path = self._damaged.pop(key)
        try:
            self._open(key, wanted.topic_id, registration.directory_of(node_id)).cut_damage(path)
        except StorageError as error:
            _log.error("cannot cut the damaged log of %s: %s", key, error)
            return False
        _log.warning("Damaged replica is fetched again: partition=%s path=%s", key, path)
        self.offline.discard(key)
        return True

    def take_offline(self, topic_partition: TopicPartition) -> None:
        """Its disk failed."""
        if self.online.pop(topic_partition, None) is not None:
            self.offline.add(topic_partition)

    def take_directory_offline(self, directory: str) -> list[TopicPartition]:
        """A data directory, or one log's directory, failed; returns the partitions it held."""
        prefix = directory.rstrip("/") + "/"
        affected = [
            topic_partition
            for topic_partition, partition in self.online.items()
            if f"{partition.log.directory}/".startswith(prefix)
        ]
        for topic_partition in affected:
            self.take_offline(topic_partition)
        return affected
