"""Broker configuration of the group coordinator (Kafka's GroupCoordinatorConfig).

It declares only the keys that Barnabas implements.
"""

from __future__ import annotations

import msgspec

from barnabas.settings.definition import ConfigDefinition, ConfigKey, ConfigType
from barnabas.settings.range import at_least, between

_INT_MAX = 0x7FFF_FFFF

DEFINITION = ConfigDefinition(
    [
        ConfigKey(
            "group.min.session.timeout.ms",
            ConfigType.INT,
            6_000,
            "Shortest session time-out that members of a classic group may ask for.",
        ),
        ConfigKey(
            "group.max.session.timeout.ms",
            ConfigType.INT,
            1_800_000,
            "Longest session time-out that members of a classic group may ask for.",
        ),
        ConfigKey(
            "group.initial.rebalance.delay.ms",
            ConfigType.INT,
            3_000,
            "How long the first members of a classic group wait for others to come, ms.",
        ),
        ConfigKey(
            "group.max.size",
            ConfigType.INT,
            _INT_MAX,
            "Most members of a classic group.",
            at_least(1),
        ),
        ConfigKey(
            "offsets.topic.num.partitions",
            ConfigType.INT,
            50,
            "Partitions of __consumer_offsets; must not change once the topic exists.",
            at_least(1),
        ),
        ConfigKey(
            "offsets.topic.replication.factor",
            ConfigType.SHORT,
            3,
            "Replicas of __consumer_offsets; its creation waits for that many brokers.",
            at_least(1),
        ),
        ConfigKey(
            "offsets.topic.segment.bytes",
            ConfigType.INT,
            104_857_600,
            "Segment size of __consumer_offsets; smaller segments compact and load sooner.",
            at_least(1),
        ),
        ConfigKey(
            "offsets.topic.compression.codec",
            ConfigType.INT,
            0,
            "Compression of committed offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
            between(0, 4),
        ),
        ConfigKey(
            "offsets.retention.minutes",
            ConfigType.INT,
            7 * 24 * 60,
            "How long offsets are kept once their group is empty, or its members do not read "
            "the topic; without members, since the commit.",
            at_least(1),
        ),
        ConfigKey(
            "offsets.retention.check.interval.ms",
            ConfigType.LONG,
            600_000,
            "How often offsets and groups are looked for that are to be forgotten.",
            at_least(1),
        ),
        ConfigKey(
            "offset.metadata.max.bytes",
            ConfigType.INT,
            4096,
            "Length of the metadata that may go with a committed offset.",
        ),
        ConfigKey(
            "offsets.commit.timeout.ms",
            ConfigType.INT,
            5_000,
            "How long a commit of offsets may wait for its replicas.",
            at_least(1),
        ),
    ]
)


class GroupCoordinatorConfig(msgspec.Struct, frozen=True):
    """Values of the configuration keys above. Times are in ms unless the name says otherwise."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = _INT_MAX
    offsets_topic_compression_codec: int = 0
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4096
    offsets_commit_timeout_ms: int = 5_000

    @property
    def offsets_retention_ms(self) -> int:
        """offsets.retention.minutes in ms."""
        return self.offsets_retention_minutes * 60_000
