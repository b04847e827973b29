"""Broker configuration of streams groups (Kafka's GroupCoordinatorConfig)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.settings.definition import ConfigKey, ConfigType, DynamicMode
from barnabas.settings.range import at_least, satisfying

if TYPE_CHECKING:
    from barnabas.settings.range import ConfigValue

STREAMS_ASSIGNMENT_INTERVAL = "group.streams.assignment.interval.ms"
_RACK_TAGS = "group.streams.rack.aware.assignment.tags"
_INT_MAX = 0x7FFF_FFFF


def _key(name: str, default: int, doc: str, least: int = 1) -> ConfigKey:
    return ConfigKey(f"group.streams.{name}", ConfigType.INT, default, doc, at_least(least))


def _are_distinct(value: ConfigValue) -> bool:
    return isinstance(value, list) and "" not in value and len(set(value)) == len(value)


STREAMS_KEYS = [
    _key(
        "session.timeout.ms",
        45_000,
        "Time without a heartbeat after which a member of a streams group is removed, in ms.",
    ),
    _key("min.session.timeout.ms", 45_000, "Lowest session timeout of a streams group."),
    _key("max.session.timeout.ms", 60_000, "Highest session timeout of a streams group."),
    _key("heartbeat.interval.ms", 5_000, "Heartbeat interval of members of streams groups."),
    _key("min.heartbeat.interval.ms", 5_000, "Lowest heartbeat interval of a streams group."),
    _key("max.heartbeat.interval.ms", 15_000, "Highest heartbeat interval of a streams group."),
    ConfigKey(
        STREAMS_ASSIGNMENT_INTERVAL,
        ConfigType.INT,
        1_000,
        "Minimum time between two target assignments of a streams group, in ms.",
        at_least(0),
        DynamicMode.CLUSTER_WIDE,
    ),
    _key("min.assignment.interval.ms", 0, "Lowest assignment interval of a streams group.", 0),
    _key(
        "max.assignment.interval.ms", 15_000, "Highest assignment interval of a streams group.", 0
    ),
    _key("max.size", _INT_MAX, "Maximum number of members of a streams group."),
    _key("num.standby.replicas", 0, "Number of standby tasks of each task with state.", 0),
    _key("max.standby.replicas", 2, "Highest number of standby tasks of a streams group.", 0),
    _key(
        "num.warmup.replicas",
        2,
        "Number of warm-up tasks. Kafka 4.4 has the key, but assigns no warm-up tasks.",
        0,
    ),
    _key("max.warmup.replicas", 20, "Highest number of warm-up tasks of a streams group.", 0),
    _key(
        "initial.rebalance.delay.ms",
        3_000,
        "How long the first rebalance of an empty streams group waits for more members, in ms.",
        0,
    ),
    _key(
        "task.offset.interval.ms",
        60_000,
        "Interval in which members report the offsets of their tasks, in ms.",
    ),
    _key("min.task.offset.interval.ms", 15_000, "Lowest task offset interval of a streams group."),
    ConfigKey(
        "group.streams.acceptable.recovery.lag",
        ConfigType.LONG,
        10_000,
        "Lag below which a member reports that it has caught up with a task, in offsets.",
        at_least(0),
    ),
    ConfigKey(
        "group.streams.assignors",
        ConfigType.LIST,
        ["sticky"],
        "Task assignors of streams groups.",
        satisfying(
            "sticky; remove other assignors from the list, since Barnabas runs no Java classes",
            lambda value: value == ["sticky"],
        ),
    ),
    ConfigKey(
        _RACK_TAGS,
        ConfigType.LIST,
        [],
        "Keys of client tags that all members must have. Members without them get a status.",
        satisfying("a list of different names", _are_distinct),
    ),
]


class StreamsGroupConfig(msgspec.Struct, frozen=True):
    """Values of the keys above. Times are in ms."""

    group_streams_session_timeout_ms: int = 45_000
    group_streams_min_session_timeout_ms: int = 45_000
    group_streams_max_session_timeout_ms: int = 60_000
    group_streams_heartbeat_interval_ms: int = 5_000
    group_streams_min_heartbeat_interval_ms: int = 5_000
    group_streams_max_heartbeat_interval_ms: int = 15_000
    group_streams_assignment_interval_ms: int = 1_000
    group_streams_min_assignment_interval_ms: int = 0
    group_streams_max_assignment_interval_ms: int = 15_000
    group_streams_max_size: int = _INT_MAX
    group_streams_num_standby_replicas: int = 0
    group_streams_max_standby_replicas: int = 2
    group_streams_initial_rebalance_delay_ms: int = 3_000
    group_streams_task_offset_interval_ms: int = 60_000
    group_streams_min_task_offset_interval_ms: int = 15_000
    group_streams_acceptable_recovery_lag: int = 10_000
    group_streams_rack_aware_assignment_tags: tuple[str, ...] | list[str] = ()
