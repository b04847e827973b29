"""Configs of a group, which override the broker's `group.*` defaults (KIP-848, KIP-1043)."""

from __future__ import annotations

from barnabas.settings.definition import ConfigDefinition, ConfigKey, ConfigType
from barnabas.settings.key import DynamicMode, Synonym
from barnabas.settings.range import between

# The bounds are the defaults of the broker's group.consumer.min.* and group.consumer.max.* keys.
GROUP_CONFIGS = ConfigDefinition([
    ConfigKey(
        "consumer.session.timeout.ms",
        ConfigType.INT,
        45_000,
        "Time without a heartbeat after which a member of the consumer protocol is removed.",
        between(45_000, 60_000),
        DynamicMode.CLUSTER_WIDE,
        (Synonym("group.consumer.session.timeout.ms"),),
    ),
    ConfigKey(
        "consumer.heartbeat.interval.ms",
        ConfigType.INT,
        5_000,
        "Heartbeat interval of members of the consumer protocol.",
        between(5_000, 15_000),
        DynamicMode.CLUSTER_WIDE,
        (Synonym("group.consumer.heartbeat.interval.ms"),),
    ),
    ConfigKey(
        "consumer.assignment.interval.ms",
        ConfigType.INT,
        1_000,
        "Minimum time between two target assignments of the group.",
        between(0, 15_000),
        DynamicMode.CLUSTER_WIDE,
        (Synonym("group.consumer.assignment.interval.ms"),),
    ),
])  # fmt: skip
