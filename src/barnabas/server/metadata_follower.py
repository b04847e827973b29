"""What this broker does about each new cluster image (Kafka's BrokerMetadataPublisher).

In this order: the view of request handlers and dynamic configs (both by `shared_server`), replicas,
coordinators. Deleted topics are gone from the view before their logs are. Logs are opened once the
image is as new as the metadata log was when the broker started: an older one would not know the
newest of them.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinator.group.group_coordinator import OFFSETS_TOPIC
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.image import ClusterImage
from barnabas.replication.partition_registry import LeadershipChanges
from barnabas.server.log_assignments import LogAssignments
from barnabas.server.topic_configs import default_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.coordinator.group.group_coordinator import GroupCoordinator
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.server.cluster_view import ClusterView
    from barnabas.server.dynamic_config import DynamicBrokerConfig
    from barnabas.server.topic_configs import TopicConfigs
    from barnabas.settings.definition import ParsedConfig
    from barnabas.storage.log_manager import LogManager

_log = logging.getLogger(__name__)


class MetadataFollower:
    """A listener of the metadata publisher."""

    __slots__ = (
        "_cluster",
        "_configs",
        "_dynamic",
        "_groups",
        "_logs",
        "_on_changes",
        "_replicas",
        "applied_offset",
        "logs_open",
    )

    def __init__(
        self,
        cluster: ClusterView,
        dynamic: DynamicBrokerConfig,
        configs: TopicConfigs,
        logs: LogManager,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
    ) -> None:
        self._on_changes: list[Callable[[LeadershipChanges], None]] = []
        self._cluster = cluster
        self._dynamic = dynamic
        self._configs = configs
        self._logs = logs
        self._replicas = replicas
        self._groups = groups
        # Whether the logs are open, so that images are followed.
        self.logs_open = False
        # Of the last metadata record that was acted on; -1 before the first.
        self.applied_offset = -1
        dynamic.subscribe(default_keys(dynamic.current.definition), self._take_broker_config)

    def add_listener(self, listener: Callable[[LeadershipChanges], None]) -> None:
        """Tell `listener` what has changed on this broker, behind the coordinators."""
        self._on_changes.append(listener)

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        """Bring everything in line with `image`, which the view of the cluster has already."""
        if self.logs_open:
            self._cluster.backlog.add(self._apply(delta, image))

    def open_logs(self, on_open: Callable[[], None]) -> None:
        """Open all logs, and from then on follow the images: all of the metadata log was seen.

        Args:
            on_open: called when they are open, perhaps before this returns.
        """

        def opened() -> None:
            self.logs_open = True
            image = self._cluster.image
            # From nothing to what there is now, however many images came before.
            delta = ClusterDelta(ClusterImage())
            for record, version in image.to_records():
                delta.replay(record, version)
            self._cluster.backlog.add(self._apply(delta, image))
            self._cluster.backlog.when_empty(on_open)

        self._logs.startup_in_slices(
            lambda topic: self._configs.of_topic(self._cluster.image, topic),
            LogAssignments(self._cluster.image, self._dynamic.node_id),
            opened,
        )

    def _apply(self, delta: ClusterDelta, image: ClusterImage) -> Iterator[None]:
        changes = LeadershipChanges()
        yield from self._replicas.apply_in_steps(delta, image, changes)
        self._tell_groups(changes)
        for told in self._on_changes:
            self._guarded(partial(told, changes))
        deleted = delta.topics_delta.deleted.values()
        if deleted:
            topics = {topic.name: topic.id for topic in deleted}
            self._guarded(partial(self._groups.on_topics_deleted, topics))
        self.applied_offset = image.provenance.offset

    def _guarded(self, act: Callable[[], None]) -> None:
        """What fails here is logged and counted; the rest of the image is applied."""
        try:
            act()
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - the rest goes on
            _log.exception("Unexpected error while new metadata is applied")
            self._replicas.metrics.metadata_apply_errors += 1

    def _take_broker_config(self, broker: ParsedConfig) -> None:
        """What topics inherit has changed."""
        self._configs.take_broker_config(broker)
        self._logs.update_configs(lambda topic: self._configs.of_topic(self._cluster.image, topic))

    def _tell_groups(self, changes: LeadershipChanges) -> None:
        driver = self._groups.driver
        resigned = [*changes.deleted, *changes.failed]
        resigned += [each.topic_partition for each in changes.followers]
        for key in resigned:
            if key.topic == OFFSETS_TOPIC:
                self._guarded(partial(driver.on_resigned, key.partition))
        for partition in changes.leaders:
            key = partition.topic_partition
            if key.topic == OFFSETS_TOPIC:
                self._guarded(partial(driver.on_elected, key.partition, partition.leader_epoch))
