"""A log's configuration: Kafka's topic configs, each with its broker-wide `log.*` default."""

from __future__ import annotations

from dataclasses import dataclass

LONG_MAX = 0x7FFF_FFFF_FFFF_FFFF
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The topic configs that a log obeys, with Kafka's defaults; times in ms."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    # "producer": batches are kept as they come; else one of none, gzip, snappy, lz4, zstd.
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = LONG_MAX
    # "CreateTime" or "LogAppendTime".
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    # -1: no limit.
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * DAY_MS
    unclean_leader_election_enable: bool = False

    @property
    def is_compacted(self) -> bool:
        """Whether every record needs a key."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Whether segments go by age and size."""
        return "delete" in self.cleanup_policy

    @property
    def has_log_append_time(self) -> bool:
        """Whether the broker's time replaces the producer's."""
        return self.message_timestamp_type == "LogAppendTime"
