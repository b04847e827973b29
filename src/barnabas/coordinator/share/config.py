"""Broker configuration of the share coordinator (Kafka's ShareCoordinatorConfig)."""

from __future__ import annotations

import msgspec

from barnabas.settings.definition import ConfigDefinition, ConfigKey, ConfigType
from barnabas.settings.key import at_least, between

_FIVE_MINUTES_MS = 300_000

DEFINITION = ConfigDefinition(
    [
        ConfigKey(
            "share.coordinator.state.topic.num.partitions",
            ConfigType.INT,
            50,
            "Number of partitions of __share_group_state. It must not change once the topic "
            "exists.",
            at_least(1),
        ),
        ConfigKey(
            "share.coordinator.state.topic.replication.factor",
            ConfigType.SHORT,
            3,
            "Number of replicas of __share_group_state. Its creation waits for that many brokers.",
            at_least(1),
        ),
        ConfigKey(
            "share.coordinator.state.topic.min.isr",
            ConfigType.SHORT,
            2,
            "Minimum number of in-sync replicas for writes to __share_group_state.",
            at_least(1),
        ),
        ConfigKey(
            "share.coordinator.state.topic.segment.bytes",
            ConfigType.INT,
            104_857_600,
            "Segment size of __share_group_state, in bytes. Smaller segments are deleted sooner.",
            at_least(1),
        ),
        ConfigKey(
            "share.coordinator.state.topic.compression.codec",
            ConfigType.INT,
            0,
            "Compression of __share_group_state: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
            between(0, 4),
        ),
        ConfigKey(
            "share.coordinator.snapshot.update.records.per.snapshot",
            ConfigType.INT,
            500,
            "Number of updates of a share partition's state between two snapshots of it.",
            between(0, 500),
        ),
        ConfigKey(
            "share.coordinator.write.timeout.ms",
            ConfigType.INT,
            5_000,
            "How long a write to __share_group_state may wait for its replicas, in ms.",
            at_least(1),
        ),
        ConfigKey(
            "share.coordinator.state.topic.prune.interval.ms",
            ConfigType.INT,
            _FIVE_MINUTES_MS,
            "Interval of the deletion of records of __share_group_state that later snapshots "
            "replace, in ms.",
            at_least(1),
        ),
        ConfigKey(
            "share.coordinator.cold.partition.snapshot.interval.ms",
            ConfigType.INT,
            _FIVE_MINUTES_MS,
            "Age of a snapshot after which an unchanged share partition gets a new one, in ms. "
            "Then older records can be deleted.",
            at_least(1),
        ),
    ]
)


class ShareCoordinatorConfig(msgspec.Struct, frozen=True):
    """Values of the configuration keys above that the coordinator uses. Times are in ms."""

    share_coordinator_state_topic_compression_codec: int = 0
    share_coordinator_snapshot_update_records_per_snapshot: int = 500
    share_coordinator_write_timeout_ms: int = 5_000
    share_coordinator_state_topic_prune_interval_ms: int = _FIVE_MINUTES_MS
    share_coordinator_cold_partition_snapshot_interval_ms: int = _FIVE_MINUTES_MS
