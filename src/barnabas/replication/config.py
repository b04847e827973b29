"""Broker configuration of replication and of its fetchers (Kafka's ReplicationConfigs)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.settings.definition import ConfigDefinition, ConfigKey, ConfigType, DynamicMode
from barnabas.settings.key import at_least, one_of

if TYPE_CHECKING:
    from collections.abc import Callable


NUM_REPLICA_FETCHERS = "num.replica.fetchers"
LEADER_THROTTLED_RATE = "leader.replication.throttled.rate"
FOLLOWER_THROTTLED_RATE = "follower.replication.throttled.rate"
MOVES_THROTTLED_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
FETCH_LAST_TIERED = "follower.fetch.last.tiered.offset.enable"
# A throttled rate without a limit.
UNLIMITED = 0x7FFF_FFFF_FFFF_FFFF
# Values of `replica.selector.class`: the names of Kafka's own classes.
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

_FETCHER_KEYS = [
    ConfigKey(
        NUM_REPLICA_FETCHERS,
        ConfigType.INT,
        1,
        "Number of connections to each leader for replicas in the ISR. Other replicas share one.",
        at_least(1),
        DynamicMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        "replica.fetch.max.bytes",
        ConfigType.INT,
        1_048_576,
        "Maximum bytes of one partition in a fetch of a follower.",
        at_least(0),
        DynamicMode.READ_ONLY,
    ),
    ConfigKey(
        "replica.fetch.response.max.bytes",
        ConfigType.INT,
        10_485_760,
        "Maximum bytes of a fetch of a follower.",
        at_least(0),
        DynamicMode.READ_ONLY,
    ),
    ConfigKey(
        "replica.fetch.min.bytes",
        ConfigType.INT,
        1,
        "Minimum bytes of the response to a follower; the leader waits for them.",
        None,
        DynamicMode.READ_ONLY,
    ),
    ConfigKey(
        "replica.fetch.wait.max.ms",
        ConfigType.INT,
        500,
        "Longest time that a leader waits for the minimum bytes.",
        None,
        DynamicMode.READ_ONLY,
    ),
    ConfigKey(
        "replica.fetch.backoff.ms",
        ConfigType.INT,
        1_000,
        "Longest time after an error before a follower fetches the partition again. After errors"
        " that are usual during an election, it begins with 20 ms and doubles.",
        at_least(0),
        DynamicMode.READ_ONLY,
    ),
    ConfigKey(
        "replica.socket.timeout.ms",
        ConfigType.INT,
        30_000,
        "Longest time that a follower waits for a response.",
        None,
        DynamicMode.READ_ONLY,
    ),
    ConfigKey(
        FETCH_LAST_TIERED,
        ConfigType.BOOLEAN,
        False,
        "Whether a new replica of a tiered topic begins after the last remote segment instead of at"
        " the first local offset of the leader (KIP-1023).",
        None,
        DynamicMode.CLUSTER_WIDE,
    ),
]
_THROTTLE_KEYS = [
    ConfigKey(
        LEADER_THROTTLED_RATE,
        ConfigType.LONG,
        UNLIMITED,
        "Bytes per second of throttled partitions to followers that are not in sync.",
        at_least(0),
        DynamicMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        FOLLOWER_THROTTLED_RATE,
        ConfigType.LONG,
        UNLIMITED,
        "Bytes per second of throttled partitions that this broker fetches.",
        at_least(0),
        DynamicMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        MOVES_THROTTLED_RATE,
        ConfigType.LONG,
        UNLIMITED,
        "Bytes per second of moves between this broker's data directories.",
        at_least(0),
        DynamicMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        "alter.log.dirs.replication.quota.window.num",
        ConfigType.INT,
        11,
        "Number of windows for the rate of moves between data directories.",
        at_least(1),
        DynamicMode.READ_ONLY,
    ),
    ConfigKey(
        "alter.log.dirs.replication.quota.window.size.seconds",
        ConfigType.INT,
        1,
        "Length of a window.",
        at_least(1),
        DynamicMode.READ_ONLY,
    ),
    ConfigKey(
        "replication.quota.window.num",
        ConfigType.INT,
        11,
        "Number of windows for the rate of replication.",
        at_least(1),
        DynamicMode.READ_ONLY,
    ),
    ConfigKey(
        "replication.quota.window.size.seconds",
        ConfigType.INT,
        1,
        "Length of a window.",
        at_least(1),
        DynamicMode.READ_ONLY,
    ),
]

DEFINITION = ConfigDefinition(
    [
        ConfigKey(
            "replica.lag.time.max.ms",
            ConfigType.LONG,
            30_000,
            "Longest time that a follower may lag before it is removed from the ISR.",
            at_least(1),
        ),
        ConfigKey(
            "replica.high.watermark.checkpoint.interval.ms",
            ConfigType.LONG,
            5_000,
            "Interval of writing the high watermarks to disk.",
            at_least(1),
        ),
        ConfigKey(
            "max.incremental.fetch.session.cache.slots",
            ConfigType.INT,
            1_000,
            "Maximum number of incremental fetch sessions; other fetches use none.",
            at_least(0),
            DynamicMode.READ_ONLY,
        ),
        *_FETCHER_KEYS,
        *_THROTTLE_KEYS,
        ConfigKey(
            "replica.selector.class",
            ConfigType.STRING,
            None,
            "Class that selects the replica that consumers read from, by Kafka's name.",
            one_of(LEADER_SELECTOR, RACK_AWARE_SELECTOR),
            DynamicMode.READ_ONLY,
        ),
    ]
)

# A younger session is evicted only by a session of a higher kind. Kafka has no key for this.
FETCH_SESSION_EVICTION_MS = 120_000


class ReplicationConfig(msgspec.Struct, frozen=True):
    """Values of the configuration keys above. Times are in ms."""

    replica_lag_time_max_ms: int = 30_000
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    num_replica_fetchers: int = 1
    replica_fetch_max_bytes: int = 1_048_576
    replica_fetch_response_max_bytes: int = 10_485_760
    replica_fetch_min_bytes: int = 1
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_backoff_ms: int = 1_000
    replica_socket_timeout_ms: int = 30_000
    follower_fetch_last_tiered_offset_enable: bool = False
    # Bytes per second.
    leader_replication_throttled_rate: int = UNLIMITED
    follower_replication_throttled_rate: int = UNLIMITED
    replica_alter_log_dirs_io_max_bytes_per_second: int = UNLIMITED
    alter_log_dirs_replication_quota_window_num: int = 11
    alter_log_dirs_replication_quota_window_size_seconds: int = 1
    replication_quota_window_num: int = 11
    replication_quota_window_size_seconds: int = 1
    replica_selector_class: str | None = None


# The first version of Fetch in which the leader detects diverging logs (KIP-595).
_DIVERGING_SINCE = 12


class FetcherSettings(msgspec.Struct, frozen=True):
    """Identity, protocol version and configuration of the fetchers."""

    node_id: int
    # Returns the epoch of this broker's registration (KIP-903), or -1 while not registered.
    broker_epoch: Callable[[], int]
    # Returns the Fetch version that all brokers of the cluster support.
    fetch_version: Callable[[], int]
    config: ReplicationConfig

    @property
    def finds_divergence(self) -> bool:
        """Whether a fetch detects diverging logs. If not, OffsetForLeaderEpoch is sent first."""
        return self.fetch_version() >= _DIVERGING_SINCE


# (minimum metadata.version level, Fetch version that all brokers at this level support).
_FETCH_VERSIONS = ((27, 18), (21, 17), (19, 16), (10, 15), (9, 14))
_OLDEST_FETCH_VERSION = 13
# 4.2-IV1, the level at which Kafka sends version 11 of ListOffsets to brokers.
_PENDING_UPLOADS_SINCE = 29


def fetch_version(metadata_version: int) -> int:
    """Return the version of Fetch requests between brokers at that level, as in Kafka."""
    for level, version in _FETCH_VERSIONS:
        if metadata_version >= level:
            return version
    return _OLDEST_FETCH_VERSION


def lists_pending_uploads(metadata_version: int) -> bool:
    """Return whether brokers at that level list the first offset that is not in the tier."""
    return metadata_version >= _PENDING_UPLOADS_SINCE
