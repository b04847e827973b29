"""The configs of one streams group: the broker's values, and those of the group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.coordinator.group.configs.group_type_settings import GroupTypeSettings
    from barnabas.coordinator.group.configs.streams_config import StreamsGroupConfig


class StreamsConfigs(msgspec.Struct, frozen=True):
    """The values that heartbeats need. Each heartbeat uses them until one of their sources changes.

    Times are in ms.
    """

    # The sources: the configuration of the broker, and the configs of the group.
    broker: StreamsGroupConfig
    own: Mapping[str, str]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    task_offset_interval_ms: int
    assignment_interval_ms: int
    initial_rebalance_delay_ms: int
    acceptable_recovery_lag: int
    # The keys of client tags that members must have.
    rack_tags: tuple[str, ...]
    # The configs that the target assignment depends on, as the record of the group has them.
    assignment: Mapping[str, str]

    def is_of(self, broker: StreamsGroupConfig, own: Mapping[str, str]) -> bool:
        """Whether these are the sources."""
        return self.broker is broker and self.own is own


def read_configs(
    settings: GroupTypeSettings[StreamsGroupConfig], group_id: str, own: Mapping[str, str]
) -> StreamsConfigs:
    """Return the current configs of a group.

    Args:
        settings: the configuration of streams groups.
        group_id: the group.
        own: the configs of the group, which override the broker's.
    """

    def value(name: str) -> int:
        return settings.value(group_id, f"streams.{name}")

    tags = _rack_tags(settings.config, own)
    assignment = {"num.standby.replicas": str(value("num.standby.replicas"))}
    if tags:
        assignment["rack.aware.assignment.tags"] = ",".join(tags)
    return StreamsConfigs(
        broker=settings.config,
        own=own,
        session_timeout_ms=value("session.timeout.ms"),
        heartbeat_interval_ms=value("heartbeat.interval.ms"),
        task_offset_interval_ms=value("task.offset.interval.ms"),
        assignment_interval_ms=value("assignment.interval.ms"),
        initial_rebalance_delay_ms=value("initial.rebalance.delay.ms"),
        acceptable_recovery_lag=value("acceptable.recovery.lag"),
        rack_tags=tags,
        assignment=assignment,
    )


def _rack_tags(broker: StreamsGroupConfig, own: Mapping[str, str]) -> tuple[str, ...]:
    tags = own.get("streams.rack.aware.assignment.tags")
    if tags is None:
        return tuple(broker.group_streams_rack_aware_assignment_tags)
    return tuple(each.strip() for each in tags.split(",")) if tags.strip() else ()
