"""The configuration of consumer, share and streams groups, which follows the dynamic keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.configs.group_type_settings import GroupSettings, GroupTypeSettings
from barnabas.coordinator.group.configs.kind_configs import (
    ASSIGNMENT_INTERVAL,
    SHARE_ASSIGNMENT_INTERVAL,
    STREAMS_ASSIGNMENT_INTERVAL,
    ConsumerGroupConfig,
    ShareGroupConfig,
    StreamsGroupConfig,
)
from barnabas.metadata.configs_image import GROUP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.configs.dynamic.dynamic_config import DynamicBrokerConfig
    from barnabas.settings.definition import ParsedConfig


def make_group_settings(
    config: ParsedConfig, cluster: ClusterView, dynamic: DynamicBrokerConfig
) -> GroupSettings:
    """Return the configuration of groups.

    Args:
        config: the configuration of the broker at its start.
        cluster: has the configs of single groups.
        dynamic: the current configuration. The result follows it.
    """

    def overrides(group_id: str) -> Mapping[str, str]:
        return cluster.image.configs.get(GROUP, group_id)

    settings = GroupSettings(
        GroupTypeSettings(config.build(ConsumerGroupConfig), overrides),
        GroupTypeSettings(config.build(ShareGroupConfig), overrides),
        GroupTypeSettings(config.build(StreamsGroupConfig), overrides),
    )

    def apply(changed: ParsedConfig) -> None:
        settings.consumers.config = changed.build(ConsumerGroupConfig)
        settings.shares.config = changed.build(ShareGroupConfig)
        settings.streams.config = changed.build(StreamsGroupConfig)

    intervals = (ASSIGNMENT_INTERVAL, SHARE_ASSIGNMENT_INTERVAL, STREAMS_ASSIGNMENT_INTERVAL)
    dynamic.subscribe(intervals, apply)
    return settings
