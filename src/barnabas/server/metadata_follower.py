"""What this broker does about each new cluster image (Kafka's BrokerMetadataPublisher).

In this order: the view of request handlers, the logs (opened at the first image), replicas, topic
defaults, coordinators. Deleted topics are gone from the view before their logs are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.group_coordinator import OFFSETS_TOPIC
from barnabas.metadata.configs_image import BROKER

if TYPE_CHECKING:
    from barnabas.coordinator.group.group_coordinator import GroupCoordinator
    from barnabas.metadata.delta import ClusterDelta
    from barnabas.metadata.image import ClusterImage
    from barnabas.replication.partition_registry import LeadershipChanges
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.server.cluster_view import ClusterView
    from barnabas.server.topic_configs import TopicConfigs
    from barnabas.storage.log_manager import LogManager


class MetadataFollower:
    """A listener of the metadata publisher."""

    __slots__ = ("_cluster", "_configs", "_groups", "_logs", "_logs_open", "_replicas")

    def __init__(
        self,
        cluster: ClusterView,
        configs: TopicConfigs,
        logs: LogManager,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
    ) -> None:
        self._cluster = cluster
        self._configs = configs
        self._logs = logs
        self._replicas = replicas
        self._groups = groups
        self._logs_open = False

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        """Bring everything in line with `image`."""
        self._cluster.image = image
        if any(resource_type == BROKER for resource_type, _ in delta.config_changes):
            self._take_broker_configs(image)
        if not self._logs_open:
            self._logs_open = True
            self._logs.startup(lambda topic: self._configs.of_topic(image, topic))
        self._tell_groups(self._replicas.apply_delta(delta, image))
        deleted = delta.topics_delta.deleted.values()
        if deleted:
            self._groups.on_topics_deleted({topic.name: topic.id for topic in deleted})

    def _take_broker_configs(self, image: ClusterImage) -> None:
        if not self._configs.take_broker_configs(image):
            return
        for topic in image.topics:
            self._logs.update_config(topic.name, self._configs.of_topic(image, topic.name))

    def _tell_groups(self, changes: LeadershipChanges) -> None:
        driver = self._groups.driver
        for key in changes.deleted:
            if key.topic == OFFSETS_TOPIC:
                driver.on_resigned(key.partition)
        for partition in changes.followers:
            if partition.topic_partition.topic == OFFSETS_TOPIC:
                driver.on_resigned(partition.topic_partition.partition)
        for partition in changes.leaders:
            if partition.topic_partition.topic == OFFSETS_TOPIC:
                driver.on_elected(partition.topic_partition.partition, partition.leader_epoch)
