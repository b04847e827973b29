"""Broker configuration of the group coordinator's offsets (Kafka's GroupCoordinatorConfig)."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.settings.definition import ConfigDefinition, ConfigKey, ConfigType
from barnabas.settings.range import at_least, between

DEFINITION = ConfigDefinition(
    [
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


@dataclass(frozen=True, slots=True)
class GroupCoordinatorConfig:
    """Values of the keys above; times in ms."""

    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_topic_segment_bytes: int = 104_857_600
    offsets_topic_compression_codec: int = 0
    offset_metadata_max_bytes: int = 4096
    offsets_commit_timeout_ms: int = 5_000
