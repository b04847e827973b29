"""Application of new metadata images on this broker (Kafka's BrokerMetadataPublisher).

Each image is applied in this order: the view of request handlers and the dynamic configuration
(both by `shared_server`), the replicas, the coordinators. Deleted topics disappear from the view
before their logs are deleted.

The logs are opened once the image is as new as the metadata log was when the broker started. An
older image could lack the newest topics, and their logs would look stray. The image also names the
data directory of each log (KIP-858).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.metadata.configs_image import GROUP
from barnabas.metadata.image import ClusterDelta, ClusterImage
from barnabas.metadata.partition_registration import RESERVED_DIRECTORIES
from barnabas.replication.partition.partition_registry import LeadershipChanges
from barnabas.server.configs.dynamic_config import default_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from barnabas.coordinator.group.group_coordinator import GroupCoordinator
    from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.configs.dynamic_config import DynamicBrokerConfig, TopicConfigs
    from barnabas.settings.definition import ParsedConfig
    from barnabas.storage.manager.log_manager import LogManager
    from barnabas.storage.topic_partition import TopicPartition


_log = logging.getLogger(__name__)


class LogAssignments:
    """Information for the storage about the logs that it finds at the start."""

    def __init__(self, image: ClusterImage, node_id: int) -> None:
        self._image = image
        self._node_id = node_id

    def is_stray(self, partition: TopicPartition, topic_id: bytes | None) -> bool:
        """Return whether a log is stray: its topic is deleted or recreated, or has no replica here.

        A log without a topic id was never synced, and may belong to an older topic of the same
        name.
        """
        topic = self._image.topics.by_name(partition.topic)
        if topic is None or topic.id != topic_id:
            return True
        registration = topic.partitions.get(partition.partition)
        return registration is None or self._node_id not in registration.replicas

    def directory_id_of(self, partition: TopicPartition) -> bytes | None:
        """Return the id of the assigned data directory, or None if the metadata names none."""
        registration = self._image.topics.partition(*partition)
        if registration is None:
            return None
        directory = registration.directory_of(self._node_id)
        return None if directory in RESERVED_DIRECTORIES else directory

    def topic_id_of(self, partition: TopicPartition) -> bytes | None:
        """Return the id of the topic with this name, or None if it does not exist."""
        topic = self._image.topics.by_name(partition.topic)
        return None if topic is None else topic.id

    def has_other_in_sync(self, partition: TopicPartition) -> bool:
        """Return whether the ISR has another broker, which therefore has all committed records."""
        registration = self._image.topics.partition(*partition)
        return registration is not None and any(each != self._node_id for each in registration.isr)


class MetadataFollower:
    """Applies images to the components of the broker. Listens to the metadata publisher."""

    def __init__(
        self,
        cluster: ClusterView,
        dynamic: DynamicBrokerConfig,
        configs: TopicConfigs,
        logs: LogManager,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
        *coordinators: CoordinatorRuntime[Any],
    ) -> None:
        # Called with the leadership changes of each image, after the coordinators are updated.
        self.on_changes: list[Callable[[LeadershipChanges], None]] = []
        self._cluster = cluster
        self._dynamic = dynamic
        self._configs = configs
        self._logs = logs
        self._replicas = replicas
        self._groups = groups
        # Called with the ids of deleted topics by name, after the coordinators are updated.
        self.on_deleted: list[Callable[[Mapping[str, bytes]], None]] = [groups.on_topics_deleted]
        # The runtimes of all coordinators, by the internal topic that stores their state.
        self._coordinators = {each.topic: each for each in (groups.runtime, *coordinators)}
        self._inform_coordinators()
        # Whether the logs are open, so that new images are applied.
        self.logs_open = False
        # Offset of the last metadata record that was applied; -1 before the first.
        self.applied_offset = -1
        dynamic.subscribe(default_keys(dynamic.current.definition), self._apply_broker_config)

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        """Apply an image to the components of the broker. The cluster view has it already."""
        self._inform_coordinators()
        if self.logs_open:
            self._cluster.backlog.add(self._apply(delta, image))

    def open_logs(self, on_open: Callable[[], None]) -> None:
        """Open all logs, then apply the current image and all later ones.

        The caller has checked that the image is as new as the metadata log at the start.

        Args:
            on_open: called when the logs are open and the image is applied, perhaps before this
                method returns.
        """

        def opened() -> None:
            self.logs_open = True
            image = self._cluster.image
            # The change from an empty image to the current one, regardless of the images between
            # them.
            delta = ClusterDelta(ClusterImage())
            for record, _ in image.to_records():
                delta.replay(record)
            self._cluster.backlog.add(self._apply(delta, image))
            self._cluster.backlog.when_empty(on_open)

        self._logs.startup_in_slices(
            lambda topic: self._configs.of_topic(self._cluster.image, topic),
            LogAssignments(self._cluster.image, self._dynamic.node_id),
            opened,
        )

    def _apply(self, delta: ClusterDelta, image: ClusterImage) -> Generator[None, None, None]:
        changes = LeadershipChanges()
        yield from self._replicas.apply_in_steps(delta, image, changes)
        self._update_coordinators(changes)
        for listener in self.on_changes:
            self._guarded(partial(listener, changes))
        deleted = delta.topics_delta.deleted.values()
        if deleted:
            topics = {topic.name: topic.id for topic in deleted}
            for on_deleted in self.on_deleted:
                self._guarded(partial(on_deleted, topics))
        self._report_topics(delta)
        self.applied_offset = image.provenance.offset

    def _report_topics(self, delta: ClusterDelta) -> None:
        """Report created, changed and deleted topics to the groups, which hash their partitions."""
        topics = delta.topics_delta
        names = {each.name for each in topics.changed.values() if each.changes_replicas}
        names.update(topic.name for topic in topics.deleted.values())
        if names:
            has_new = bool(topics.created)
            self._guarded(partial(self._groups.on_topics_changed, names, has_new=has_new))

    def _guarded(self, act: Callable[[], None]) -> None:
        """Call `act`, and log and count its errors. The rest of the image is still applied."""
        try:
            act()
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - the rest of the image is still applied
            _log.exception("Metadata could not be applied")
            self._replicas.metrics.metadata_apply_errors += 1

    def _apply_broker_config(self, broker: ParsedConfig) -> None:
        """Update the configurations of all logs, because topics inherit from the broker's."""
        self._configs.apply_broker_config(broker)
        self._logs.update_configs(lambda topic: self._configs.of_topic(self._cluster.image, topic))

    def _inform_coordinators(self) -> None:
        """Give the coordinators the facts of the latest image that each request uses."""
        for topic, runtime in self._coordinators.items():
            runtime.partition_count = self._cluster.partition_count(topic)
        self._groups.settings.overrides = self._cluster.image.configs.of_type(GROUP)

    def _update_coordinators(self, changes: LeadershipChanges) -> None:
        """Report won and lost leaderships of state partitions to their coordinators."""
        resigned = [*changes.deleted, *changes.failed]
        resigned += [each.topic_partition for each in changes.followers]
        for key in resigned:
            runtime = self._coordinators.get(key.topic)
            if runtime is not None:
                self._guarded(partial(runtime.on_resigned, key.partition))
        for partition in changes.leaders:
            key = partition.topic_partition
            runtime = self._coordinators.get(key.topic)
            if runtime is not None:
                self._guarded(partial(runtime.on_elected, key.partition, partition.leader_epoch))
