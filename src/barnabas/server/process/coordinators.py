"""Creation of a broker's share coordinator, and of the configuration of its groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.group_config import GroupSettings
from barnabas.coordinator.group.kind_configs import ASSIGNMENT_INTERVALS
from barnabas.coordinator.share.share_coordinator import ShareCoordinator, ShareDependencies

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.runtime.runtime_dependencies import RuntimeDependencies
    from barnabas.coordinator.share.config import ShareCoordinatorConfig
    from barnabas.protocol.errors import ErrorCode
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.replication.requests.delayed_writes import DeleteRecordsResult
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.configs.dynamic_config import DynamicBrokerConfig
    from barnabas.settings.definition import ParsedConfig
    from barnabas.storage.topic_partition import TopicPartition


def make_group_settings(config: ParsedConfig, dynamic: DynamicBrokerConfig) -> GroupSettings:
    """Return the configuration of groups. `MetadataFollower` adds the configs of single groups.

    Args:
        config: the configuration of the broker at its start.
        dynamic: the current configuration. The result follows it.
    """
    settings = GroupSettings(config)

    def apply(changed: ParsedConfig) -> None:
        settings.config = changed

    dynamic.subscribe(ASSIGNMENT_INTERVALS, apply)
    return settings


def make_share_coordinator(
    config: ShareCoordinatorConfig,
    dependencies: RuntimeDependencies,
    cluster: ClusterView,
    replicas: ReplicaManager,
) -> ShareCoordinator:
    """Return the share coordinator of a broker.

    Args:
        config: keys of the coordinator.
        dependencies: of its runtime.
        cluster: the topics, and whether share groups are enabled.
        replicas: delete redundant records.
    """
    timeout_ms = config.share_coordinator_write_timeout_ms

    def delete_records(
        key: TopicPartition, offset: int, on_done: Callable[[ErrorCode], None]
    ) -> None:
        def done(results: dict[TopicPartition, DeleteRecordsResult]) -> None:
            on_done(results[key].error)

        replicas.delete_records(timeout_ms, {key: offset}, done)

    return ShareCoordinator(
        config,
        dependencies,
        ShareDependencies(
            lambda topic_id, partition: _has_partition(cluster, topic_id, partition),
            lambda: cluster.image.features.has_share_groups,
            delete_records,
        ),
    )


def _has_partition(cluster: ClusterView, topic_id: bytes, partition: int) -> bool:
    name = cluster.topic_name(topic_id)
    return name is not None and cluster.has_partition(name, partition)
