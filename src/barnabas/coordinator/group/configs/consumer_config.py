"""Broker configuration of consumer groups, and how configs of a group override it."""

from __future__ import annotations

import msgspec

from barnabas.coordinator.group.configs.assignor_config import CONSUMER_ASSIGNORS, assignor_names
from barnabas.settings.definition import ConfigKey, ConfigType, DynamicMode
from barnabas.settings.range import at_least

ASSIGNMENT_INTERVAL = "group.consumer.assignment.interval.ms"
_INT_MAX = 0x7FFF_FFFF


def _interval(name: str, default: int, doc: str, least: int = 1) -> ConfigKey:
    return ConfigKey(f"group.consumer.{name}", ConfigType.INT, default, doc, at_least(least))


CONSUMER_KEYS = [
    _interval(
        "session.timeout.ms",
        45_000,
        "Time without a heartbeat after which a member of a consumer group is removed, in ms.",
    ),
    _interval("min.session.timeout.ms", 45_000, "Lowest session timeout of a consumer group."),
    _interval("max.session.timeout.ms", 60_000, "Highest session timeout of a consumer group."),
    _interval("heartbeat.interval.ms", 5_000, "Heartbeat interval of members of consumer groups."),
    _interval("min.heartbeat.interval.ms", 5_000, "Lowest heartbeat interval of a consumer group."),
    _interval(
        "max.heartbeat.interval.ms", 15_000, "Highest heartbeat interval of a consumer group."
    ),
    ConfigKey(
        ASSIGNMENT_INTERVAL,
        ConfigType.INT,
        1_000,
        "Minimum time between two target assignments of a consumer group, in ms.",
        at_least(0),
        DynamicMode.CLUSTER_WIDE,
    ),
    _interval(
        "min.assignment.interval.ms", 0, "Lowest assignment interval of a consumer group.", 0
    ),
    _interval(
        "max.assignment.interval.ms", 15_000, "Highest assignment interval of a consumer group.", 0
    ),
    _interval("max.size", _INT_MAX, "Maximum number of members of a consumer group."),
    _interval(
        "regex.refresh.interval.ms",
        600_000,
        "How often a consumer group matches the topics with its regular expressions, in ms. New "
        "topics are matched at the next heartbeat.",
        10_000,
    ),
]


class ConsumerGroupConfig(msgspec.Struct, frozen=True):
    """Values of the keys above. Times are in ms."""

    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_assignment_interval_ms: int = 1_000
    group_consumer_min_assignment_interval_ms: int = 0
    group_consumer_max_assignment_interval_ms: int = 15_000
    group_consumer_max_size: int = _INT_MAX
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_consumer_assignors: tuple[str, ...] | list[str] = CONSUMER_ASSIGNORS

    @property
    def assignors(self) -> tuple[str, ...]:
        """The names of the assignors that members may choose. The first one is the default."""
        return assignor_names(self.group_consumer_assignors)
