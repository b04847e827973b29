"""Configuration of a log: Kafka's topic configs, and the broker keys with their defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import force_setattr, replace

from barnabas.settings.definition import (
    ConfigDefinition,
    ConfigError,
    ConfigKey,
    ConfigType,
    DynamicMode,
    Synonym,
)
from barnabas.settings.key import (
    at_least,
    between,
    each_once_of,
    each_one_of,
    one_of,
    satisfying,
    whole_number,
)
from barnabas.storage.remote_keys import REMOTE_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.settings.definition import ParsedConfig
    from barnabas.settings.key import ConfigValue, Range

HOLD_KEY = "barnabas.retention.hold.ms"
PRODUCER_EXPIRATION = "producer.id.expiration.ms"
REMOTE_STORAGE_ENABLE = "remote.storage.enable"
RESTORE = "barnabas.remote.restore"
# The phases in which `barnabas remote restore` makes a topic: its segments are copied to the store;
# the empty logs of the leaders start behind them; open transactions are aborted. All other topics
# have the first value.
RESTORE_NONE, RESTORE_COPYING, RESTORE_ADOPTING, RESTORE_FINISHING = RESTORE_PHASES = (
    "none",
    "copying",
    "adopting",
    "finishing",
)
REMOTE_COPY_DISABLE = "remote.log.copy.disable"
REMOTE_DELETE_ON_DISABLE = "remote.log.delete.on.disable"
INTERNAL_SEGMENT_BYTES = "internal.segment.bytes"
TRANSACTION_VERIFICATION = "transaction.partition.verification.enable"
CLEANUP_POLICY = "cleanup.policy"
LONG_MAX = 0x7FFF_FFFF_FFFF_FFFF
INT_MAX = 0x7FFF_FFFF
# Java's largest array size; Kafka's default, which means "no limit".
DECOMPRESSED_BYTES_MAX = INT_MAX - 8
DOUBLE_MAX = 1.7976931348623157e308
HOUR_MS = 3_600_000
RETENTION_HOLD_MS = 6 * HOUR_MS
MINUTE_MS = 60_000
DAY_MS = 24 * HOUR_MS
# Value of the local retention keys: the same as the total retention.
SAME_AS_TOTAL = -2
# Topics whose logs stay local, whatever their configs say (UnifiedLog.isRemoteLogEnabled).
LOCAL_TOPICS = frozenset({
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
    "__remote_log_metadata",
    "__cluster_metadata",
})  # fmt: skip

_POLICIES = ("compact", "delete")
_COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_TIMESTAMP_TYPES = one_of("CreateTime", "LogAppendTime")
# Users cannot set a segment size below 1 MiB (KIP-1030).
_SEGMENT_BYTES = between(1 << 20, INT_MAX)

_GZIP_LEVELS = satisfying(
    "1 to 9, or -1 for the default", lambda value: value in (-1, *range(1, 10))
)
_LOG_RETENTION = satisfying(
    "negative for no limit, or at least 1",
    lambda value: isinstance(value, int) and value != 0,
)


def _are_replicas(value: ConfigValue) -> bool:
    """Return whether the value is `*`, `none`, or a list of PARTITION:BROKER (KIP-73)."""
    if not isinstance(value, list):
        return False
    pairs = [each.split(":") for each in value if each]
    return value in (["*"], ["none"]) or all(
        len(pair) == 2 and all(part.isdigit() and whole_number(part) is not None for part in pair)
        for pair in pairs
    )


_THROTTLED_REPLICAS = satisfying(
    "PARTITION:BROKER,PARTITION:BROKER,..., or * for all, or none", _are_replicas
)
_BOOLEAN, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG
_STRING, _LIST, _DOUBLE = ConfigType.STRING, ConfigType.LIST, ConfigType.DOUBLE


class LogConfig(msgspec.Struct, frozen=True):
    """The topic configs that affect a log, with Kafka's defaults; times in ms."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    # "producer" keeps each batch's compression; another value recompresses all batches.
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = DAY_MS
    file_delete_delay_ms: int = MINUTE_MS
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = LONG_MAX
    max_decompressed_message_bytes: int = DECOMPRESSED_BYTES_MAX
    max_message_bytes: int = 1_048_588
    # Whether old consumers get converted records; Kafka removed this key after 3.9.
    message_downconversion_enable: bool = True
    message_timestamp_after_max_ms: int = HOUR_MS
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
    # Whether the topic asks for the remote tier (KIP-405); `is_remote` tells whether it has it.
    remote_storage_enable: bool = False
    # Whether closed segments are no longer copied to the remote tier (KIP-950).
    remote_copy_disable: bool = False
    # Whether the remote segments are deleted when remote.storage.enable becomes false (KIP-950).
    remote_delete_on_disable: bool = False
    # One of RESTORE_PHASES.
    barnabas_remote_restore: str = RESTORE_NONE
    # Distance in bytes or age after which a closed segment is copied (KIP-1241). Either suffices.
    # 0: at once. -1: the effective local retention.
    remote_copy_lag_bytes: int = -1
    remote_copy_lag_ms: int = 0
    # Retention of local segments that have a copy. -1: no limit. SAME_AS_TOTAL: as retention_*.
    local_retention_bytes: int = SAME_AS_TOTAL
    local_retention_ms: int = SAME_AS_TOTAL
    # Whether the log has a remote tier: the topic asks for it, the broker has it, and the topic is
    # neither compacted nor in LOCAL_TOPICS. Set by `log_config`.
    is_remote: bool = False
    # Age at which a segment is rolled. For a compacted topic, at most max.compaction.lag.ms,
    # because the active segment is never compacted. Computed once, because each append reads it.
    segment_ms_max: int = 0
    # Whether producers' batches are stored as received if their records are well-formed and their
    # header is right. Computed once, because each append reads it.
    keeps_batches: bool = False
    # The same for the batches of coordinators.
    keeps_coordinator_batches: bool = False
    # Whether the broker's timestamp replaces the producer's.
    has_log_append_time: bool = False

    def __post_init__(self) -> None:
        has_log_append_time = self.message_timestamp_type == "LogAppendTime"
        force_setattr(self, "has_log_append_time", has_log_append_time)
        keeps_coordinator_batches = (
            self.compression_type == "producer"
            and not has_log_append_time
            and self.barnabas_remote_restore == RESTORE_NONE
        )
        keeps_batches = (
            keeps_coordinator_batches
            and self.message_timestamp_before_max_ms == LONG_MAX
            and self.max_decompressed_message_bytes == DECOMPRESSED_BYTES_MAX
            and not self.is_compacted
        )
        force_setattr(self, "keeps_batches", keeps_batches)
        force_setattr(self, "keeps_coordinator_batches", keeps_coordinator_batches)
        compacted_ms = self.max_compaction_lag_ms if self.is_compacted else LONG_MAX
        force_setattr(self, "segment_ms_max", min(self.segment_ms, compacted_ms))

    @property
    def is_compacted(self) -> bool:
        """Whether the log is compacted, so that every record needs a key."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Whether segments are deleted by age and size."""
        return "delete" in self.cleanup_policy

    @property
    def copies_to_remote(self) -> bool:
        """Whether closed segments are copied; else total retention applies to local segments."""
        return self.is_remote and not self.remote_copy_disable

    @property
    def has_or_had_tier(self) -> bool:
        """Whether a remote tier has, or had, the first records of the log."""
        return self.is_remote or self.remote_delete_on_disable

    @property
    def effective_local_retention_bytes(self) -> int:
        """Bytes of local segments to keep if the log has a remote tier; negative for no limit."""
        own = self.local_retention_bytes
        return self.retention_bytes if own == SAME_AS_TOTAL else own

    @property
    def effective_local_retention_ms(self) -> int:
        """Time for which a log with a remote tier keeps local segments; -1 for no limit."""
        own = self.local_retention_ms
        return self.retention_ms if own == SAME_AS_TOTAL else own

    @property
    def effective_remote_copy_lag_bytes(self) -> int:
        """Bytes after a closed segment at which it is copied; 0 at once, negative never."""
        own = self.remote_copy_lag_bytes
        return self.effective_local_retention_bytes if own == -1 else own

    @property
    def effective_remote_copy_lag_ms(self) -> int:
        """Age at which a closed segment is copied; 0 at once, negative never."""
        own = self.remote_copy_lag_ms
        return self.effective_local_retention_ms if own == -1 else own


class CleanerConfig(msgspec.Struct, frozen=True):
    """The broker keys of the log cleaner."""

    log_cleaner_enable: bool = True
    # Maximum number of logs compacted concurrently, each in its own process.
    log_cleaner_threads: int = 1
    # Limit of reads and writes together, across all threads.
    log_cleaner_io_max_bytes_per_second: float = DOUBLE_MAX
    # Shared by all threads.
    log_cleaner_dedupe_buffer_size: int = 128 << 20
    log_cleaner_io_buffer_size: int = 512 << 10
    log_cleaner_io_buffer_load_factor: float = 0.9
    log_cleaner_backoff_ms: int = 15_000


class StorageConfig(msgspec.Struct, frozen=True):
    """The broker keys of the log manager; the other broker keys are topic defaults."""

    log_retention_check_interval_ms: int = 5 * MINUTE_MS
    log_flush_scheduler_interval_ms: int = LONG_MAX
    log_flush_offset_checkpoint_interval_ms: int = MINUTE_MS
    log_flush_start_offset_checkpoint_interval_ms: int = MINUTE_MS
    log_initial_task_delay_ms: int = 30_000
    # How long a jump of the wall clock is ignored; not a Kafka key.
    barnabas_retention_hold_ms: int = RETENTION_HOLD_MS
    producer_id_expiration_ms: int = DAY_MS
    producer_id_expiration_check_interval_ms: int = 10 * MINUTE_MS
    transaction_partition_verification_enable: bool = True
    cleaner: CleanerConfig = msgspec.field(default_factory=CleanerConfig)
    # Configuration of topics that set no config of their own.
    log_defaults: LogConfig = msgspec.field(default_factory=LogConfig)


def _topic_key(
    name: str,
    kind: ConfigType,
    default: ConfigValue,
    doc: str,
    limits: Range | None = None,
    synonyms: tuple[Synonym, ...] = (),
) -> ConfigKey:
    # Kafka removes duplicates in this list instead of rejecting them.
    distinct = name == CLEANUP_POLICY
    return ConfigKey(name, kind, default, doc, limits, DynamicMode.CLUSTER_WIDE, synonyms, distinct)


def _same(name: str) -> tuple[Synonym, ...]:
    return (Synonym(name),)


_NOT_NEGATIVE = at_least(0)
_POSITIVE = at_least(1)
_FROM_MINUS_ONE = at_least(-1)
_FROM_MINUS_TWO = at_least(SAME_AS_TOTAL)

# Topic keys. Each names the broker keys that supply its default, the most specific first.
TOPIC_CONFIGS = ConfigDefinition(
    [
        ConfigKey(RESTORE, _STRING, RESTORE_NONE,
                  "Phase of a topic that `barnabas remote restore` is making from the store of"
                  " another cluster. Only this command sets it. Producers are refused meanwhile.",
                  one_of(*RESTORE_PHASES), DynamicMode.CLUSTER_WIDE, internal=True),
        _topic_key(CLEANUP_POLICY, _LIST, ["delete"],
                   "Policy for old segments: delete, compact, or both.",
                   each_one_of(*_POLICIES), _same("log.cleanup.policy")),
        _topic_key("compression.type", _STRING, "producer",
                   "Compression of stored batches; producer keeps the producer's compression.",
                   one_of(*_COMPRESSIONS), _same("compression.type")),
        _topic_key("compression.gzip.level", _INT, -1, "Level of gzip if the broker compresses.",
                   _GZIP_LEVELS, _same("compression.gzip.level")),
        _topic_key("compression.lz4.level", _INT, 9, "Level of lz4 if the broker compresses.",
                   between(1, 17), _same("compression.lz4.level")),
        _topic_key("compression.zstd.level", _INT, 3, "Level of zstd if the broker compresses.",
                   between(-131072, 22), _same("compression.zstd.level")),
        _topic_key("delete.retention.ms", _LONG, DAY_MS,
                   "Time for which a compacted topic keeps tombstones.",
                   _NOT_NEGATIVE, _same("log.cleaner.delete.retention.ms")),
        _topic_key("errors.deadletterqueue.group.enable", _BOOLEAN, False,
                   "Whether share groups may use the topic as their dead-letter topic."),
        _topic_key("file.delete.delay.ms", _LONG, MINUTE_MS,
                   "Delay before the files of a deleted segment are removed.",
                   _NOT_NEGATIVE, _same("log.segment.delete.delay.ms")),
        _topic_key("flush.messages", _LONG, LONG_MAX,
                   "Number of unsynced records after which a produce request waits for a sync.",
                   _POSITIVE, _same("log.flush.interval.messages")),
        _topic_key("flush.ms", _LONG, LONG_MAX, "Time after which the log is synced.",
                   _NOT_NEGATIVE,
                   (Synonym("log.flush.interval.ms"),
                    Synonym("log.flush.scheduler.interval.ms"))),
        _topic_key("follower.replication.throttled.replicas", _LIST, [],
                   "Throttled follower replicas, each as PARTITION:BROKER; * for all.",
                   _THROTTLED_REPLICAS),
        _topic_key("index.interval.bytes", _INT, 4096, "Bytes of log per index entry.",
                   _NOT_NEGATIVE, _same("log.index.interval.bytes")),
        ConfigKey(INTERNAL_SEGMENT_BYTES, _INT, None,
                  "Size at which a segment is rolled, without the lower limit of segment.bytes."
                  " For tests.", _POSITIVE, DynamicMode.CLUSTER_WIDE, internal=True),
        _topic_key("leader.replication.throttled.replicas", _LIST, [],
                   "Throttled leader replicas, each as PARTITION:BROKER; * for all.",
                   _THROTTLED_REPLICAS),
        _topic_key("local.retention.bytes", _LONG, SAME_AS_TOTAL,
                   "Bytes of local segments to keep if older ones are in the remote tier; -2 for"
                   " retention.bytes, -1 for no limit.",
                   _FROM_MINUS_TWO, _same("log.local.retention.bytes")),
        _topic_key("local.retention.ms", _LONG, SAME_AS_TOTAL,
                   "Time for which local segments are kept if the remote tier has them too; -2 for"
                   " retention.ms, -1 for no limit.",
                   _FROM_MINUS_TWO, _same("log.local.retention.ms")),
        _topic_key("max.compaction.lag.ms", _LONG, LONG_MAX,
                   "Longest time for which a record stays uncompacted.",
                   _POSITIVE, _same("log.cleaner.max.compaction.lag.ms")),
        _topic_key("max.decompressed.message.bytes", _INT, DECOMPRESSED_BYTES_MAX,
                   "Largest decompressed size of the records of a compressed batch."
                   " Below the default, the broker decompresses each compressed batch to check it."
                   " Records that the broker must read may have at most 128 MiB, and"
                   " at most the largest of 4 MiB, max.message.bytes and 1032 times the batch.",
                   between(1, DECOMPRESSED_BYTES_MAX), _same("max.decompressed.message.bytes")),
        _topic_key("max.message.bytes", _INT, 1_048_588, "Largest accepted batch.",
                   _NOT_NEGATIVE, _same("message.max.bytes")),
        _topic_key("message.downconversion.enable", _BOOLEAN, True,
                   "Whether to serve consumers that need an older message format.",
                   None, _same("log.message.downconversion.enable")),
        _topic_key("message.timestamp.after.max.ms", _LONG, HOUR_MS,
                   "Largest accepted distance of a timestamp after the broker's time.",
                   _NOT_NEGATIVE, _same("log.message.timestamp.after.max.ms")),
        _topic_key("message.timestamp.before.max.ms", _LONG, LONG_MAX,
                   "Largest accepted distance of a timestamp before the broker's time.",
                   _NOT_NEGATIVE, _same("log.message.timestamp.before.max.ms")),
        _topic_key("message.timestamp.type", _STRING, "CreateTime",
                   "Source of a record's timestamp: the producer (CreateTime) or the broker.",
                   _TIMESTAMP_TYPES, _same("log.message.timestamp.type")),
        _topic_key("min.cleanable.dirty.ratio", _DOUBLE, 0.5,
                   "Fraction of uncompacted bytes above which compaction begins.",
                   between(0, 1), _same("log.cleaner.min.cleanable.ratio")),
        _topic_key("min.compaction.lag.ms", _LONG, 0,
                   "Shortest time for which a record stays uncompacted.",
                   _NOT_NEGATIVE, _same("log.cleaner.min.compaction.lag.ms")),
        _topic_key("min.insync.replicas", _INT, 1,
                   "Number of in-sync replicas that acks=all requires.",
                   _POSITIVE, _same("min.insync.replicas")),
        _topic_key("remote.copy.lag.bytes", _LONG, -1,
                   "Bytes of newer local segments after which a closed segment is copied to the"
                   " remote tier; 0 for at once, -1 for the local retention. remote.copy.lag.ms can"
                   " cause the copy earlier.",
                   _FROM_MINUS_ONE, _same("log.remote.copy.lag.bytes")),
        _topic_key("remote.copy.lag.ms", _LONG, 0,
                   "Age of its latest record at which a closed segment is copied to the remote"
                   " tier; 0 for at once, -1 for the local retention. remote.copy.lag.bytes can"
                   " cause the copy earlier.",
                   _FROM_MINUS_ONE, _same("log.remote.copy.lag.ms")),
        _topic_key(REMOTE_COPY_DISABLE, _BOOLEAN, False,
                   "Whether no more segments are copied to the remote tier. The local retention is"
                   " then that of the topic."),
        _topic_key(REMOTE_DELETE_ON_DISABLE, _BOOLEAN, False,
                   "Whether the remote segments are deleted when remote.storage.enable becomes"
                   " false."),
        _topic_key(REMOTE_STORAGE_ENABLE, _BOOLEAN, False,
                   "Whether closed segments are copied to the remote tier, so that local retention"
                   " can delete them earlier."),
        _topic_key("retention.bytes", _LONG, -1,
                   "Bytes of log to keep; negative for no limit.",
                   None, _same("log.retention.bytes")),
        _topic_key("retention.ms", _LONG, 7 * DAY_MS,
                   "Time for which records are kept; -1 for no limit.",
                   _FROM_MINUS_ONE,
                   (Synonym("log.retention.ms", least=-1),
                    Synonym("log.retention.minutes", MINUTE_MS, least=-1),
                    Synonym("log.retention.hours", HOUR_MS, least=-1))),
        _topic_key("segment.bytes", _INT, 1 << 30, "Size at which a segment is rolled.",
                   _SEGMENT_BYTES, _same("log.segment.bytes")),
        _topic_key("segment.index.bytes", _INT, 10 << 20,
                   "Size of an index at which its segment is rolled.",
                   at_least(4), _same("log.index.size.max.bytes")),
        _topic_key("segment.jitter.ms", _LONG, 0, "Largest random time off segment.ms.",
                   _NOT_NEGATIVE,
                   (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", HOUR_MS))),
        _topic_key("segment.ms", _LONG, 7 * DAY_MS, "Age at which a segment is rolled.",
                   _POSITIVE, (Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS))),
        _topic_key("unclean.leader.election.enable", _BOOLEAN, False,
                   "Whether an out-of-sync replica may lead if no other replica is available.",
                   None, _same("unclean.leader.election.enable")),
    ]
)  # fmt: skip


def _broker_key(
    name: str, kind: ConfigType, default: ConfigValue, doc: str, limits: Range | None = None
) -> ConfigKey:
    return ConfigKey(name, kind, default, doc, limits, DynamicMode.READ_ONLY)


def _dynamic_key(
    name: str, kind: ConfigType, default: ConfigValue, doc: str, limits: Range | None = None
) -> ConfigKey:
    return ConfigKey(name, kind, default, doc, limits, DynamicMode.CLUSTER_WIDE)


def _default_doc(topic_key: str, unit: str = "") -> str:
    """Return the documentation of a broker key: what the topic key governs, and the relation."""
    governed = TOPIC_CONFIGS.key(topic_key).doc
    return f"{governed} Default of the topic's {topic_key}{unit and f', in {unit}'}."


def _default_of(name: str, topic_key: ConfigKey) -> ConfigKey:
    """Return the broker key that supplies the default of a topic key, with the same range."""
    doc = _default_doc(topic_key.name)
    mode = DynamicMode.CLUSTER_WIDE
    # A topic's list may contain duplicates; the broker's list may not.
    limits = each_once_of(*_POLICIES) if topic_key.distinct else topic_key.range
    return ConfigKey(name, topic_key.type, topic_key.default, doc, limits, mode)


def _defaults_of_topics() -> list[ConfigKey]:
    """Return a broker key for each topic key that has exactly one synonym."""
    return [
        _default_of(key.synonyms[0].name, key) for key in TOPIC_CONFIGS if len(key.synonyms) == 1
    ]


CLEANER_THREADS = "log.cleaner.threads"
CLEANER_MEMORY = "log.cleaner.dedupe.buffer.size"
# Cleaner keys that can change at runtime.
CLEANER_KEYS = (
    CLEANER_THREADS,
    "log.cleaner.io.max.bytes.per.second",
    CLEANER_MEMORY,
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.backoff.ms",
)

# Broker keys of the storage package; server/configs/config.py combines them with the others.
BROKER_CONFIGS = ConfigDefinition(
    [
        *_defaults_of_topics(),
        *REMOTE_KEYS,
        _dynamic_key("log.roll.ms", _LONG, None, _default_doc("segment.ms"), _POSITIVE),
        _broker_key("log.roll.hours", _INT, 168, _default_doc("segment.ms", "hours"), _POSITIVE),
        _dynamic_key("log.roll.jitter.ms", _LONG, None, _default_doc("segment.jitter.ms"),
                     _NOT_NEGATIVE),
        _broker_key("log.roll.jitter.hours", _INT, 0, _default_doc("segment.jitter.ms", "hours"),
                    _NOT_NEGATIVE),
        _dynamic_key("log.retention.ms", _LONG, None, _default_doc("retention.ms"), _LOG_RETENTION),
        _broker_key("log.retention.minutes", _INT, None, _default_doc("retention.ms", "minutes"),
                    _FROM_MINUS_ONE),
        _broker_key("log.retention.hours", _INT, 168, _default_doc("retention.ms", "hours"),
                    _FROM_MINUS_ONE),
        _dynamic_key("log.flush.interval.ms", _LONG, None, _default_doc("flush.ms"), _NOT_NEGATIVE),
        _broker_key("log.flush.scheduler.interval.ms", _LONG, LONG_MAX,
                    "Interval of the check for logs whose flush.ms has passed.", _POSITIVE),
        _broker_key("log.flush.offset.checkpoint.interval.ms", _INT, MINUTE_MS,
                    "Interval at which recovery points are written.", _NOT_NEGATIVE),
        _broker_key("log.flush.start.offset.checkpoint.interval.ms", _INT, MINUTE_MS,
                    "Interval at which log start offsets are written.", _NOT_NEGATIVE),
        _broker_key("log.retention.check.interval.ms", _LONG, 5 * MINUTE_MS,
                    "Interval at which retention is applied.", _POSITIVE),
        _broker_key("log.initial.task.delay.ms", _LONG, 30_000,
                    "Delay after the start before these tasks first run.", _NOT_NEGATIVE),
        _dynamic_key(HOLD_KEY, _LONG, RETENTION_HOLD_MS,
                     "Delay after a forward jump of the wall clock, or after a downtime "
                         "of more than a day, before records, producers and offsets expire "
                         "by the new time; 0 disables the delay. Not a key of Kafka.",
                     _NOT_NEGATIVE),
        _broker_key("log.cleaner.enable", _BOOLEAN, True,
                    "Whether topics with cleanup.policy=compact are compacted. Do not "
                        "disable it: Kafka 5.0 will not have this key."),
        _dynamic_key(CLEANER_THREADS, _INT, 1,
                     "Number of logs compacted at the same time, each by its own process.",
                     _POSITIVE),
        _dynamic_key("log.cleaner.io.max.bytes.per.second", _DOUBLE, DOUBLE_MAX,
                     "Bytes that compaction reads and writes per second, on average."),
        _dynamic_key(CLEANER_MEMORY, _LONG, 128 << 20,
                     "Memory for the keys of all logs that are being compacted."),
        _dynamic_key("log.cleaner.io.buffer.size", _INT, 512 << 10,
                     "Memory for reading and writing of all logs that are being compacted.",
                     _NOT_NEGATIVE),
        _dynamic_key("log.cleaner.io.buffer.load.factor", _DOUBLE, 0.9,
                     "Fraction of the memory for keys that may be used."),
        _dynamic_key("log.cleaner.backoff.ms", _LONG, 15_000,
                     "Pause after a check that found no log to compact.", _NOT_NEGATIVE),
        _dynamic_key(PRODUCER_EXPIRATION, _INT, DAY_MS,
                    "Time for which the state of an idle producer is kept.", _POSITIVE),
        _broker_key("producer.id.expiration.check.interval.ms", _INT, 10 * MINUTE_MS,
                    "Interval at which the state of idle producers is removed.", _POSITIVE),
        _dynamic_key(TRANSACTION_VERIFICATION, _BOOLEAN, True,
                     "Whether a partition accepts the first batch of a transaction only after "
                     "the transaction coordinator has confirmed it (KIP-890)."),
    ]
)  # fmt: skip


def topic_defaults(broker: ParsedConfig) -> dict[str, ConfigValue]:
    """Return the default of each topic key, from the broker configuration."""
    defaults: dict[str, ConfigValue] = {}
    for key in TOPIC_CONFIGS:
        for synonym in key.synonyms:
            value = broker.values.get(synonym.name)
            if value is not None:
                if isinstance(value, int) and not isinstance(value, bool):
                    value = synonym.convert(value)
                defaults[key.name] = value
                break
    return defaults


def log_config(
    properties: Mapping[str, str | None],
    defaults: Mapping[str, ConfigValue] | None = None,
    *,
    may_be_remote: bool = False,
) -> LogConfig:
    """Return the configuration of a topic's logs.

    Args:
        properties: the topic's own configs; keys that logs do not use are ignored.
        defaults: from `topic_defaults`.
        may_be_remote: whether the broker has a remote tier, and the topic is not in LOCAL_TOPICS.

    Raises:
        ConfigError: a value is not allowed.
    """
    parsed = TOPIC_CONFIGS.parse(properties, defaults)
    built = parsed.build(LogConfig)
    segment_bytes = parsed[INTERNAL_SEGMENT_BYTES]
    assert segment_bytes is None or isinstance(segment_bytes, int), segment_bytes
    policy = tuple(parsed.strings(CLEANUP_POLICY))
    return replace(
        built,
        cleanup_policy=policy,
        segment_bytes=segment_bytes or built.segment_bytes,
        remote_copy_disable=parsed.boolean(REMOTE_COPY_DISABLE),
        remote_delete_on_disable=parsed.boolean(REMOTE_DELETE_ON_DISABLE),
        is_remote=may_be_remote and built.remote_storage_enable and "compact" not in policy,
    )


def cleaner_config(broker: ParsedConfig) -> CleanerConfig:
    """Return the log cleaner's part of the broker configuration.

    Raises:
        ConfigError: the key memory is at most 1 MiB per cleaner thread.
    """
    config = broker.build(CleanerConfig)
    check_cleaner_memory(config.log_cleaner_dedupe_buffer_size, config.log_cleaner_threads)
    return config


def check_cleaner_memory(size: int, threads: int) -> None:
    """Check that the key memory suffices for the number of cleaner threads.

    Raises:
        ConfigError: it is too small.
    """
    if size <= threads << 20:
        words = f"more than 1 MiB for each of {CLEANER_THREADS}"
        raise ConfigError(CLEANER_MEMORY, str(size), words)


def storage_config(broker: ParsedConfig) -> StorageConfig:
    """Return the log manager's part of the broker configuration."""
    built = broker.build(StorageConfig)
    return replace(
        built,
        cleaner=cleaner_config(broker),
        log_defaults=log_config({}, topic_defaults(broker)),
    )
