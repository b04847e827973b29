"""Broker configuration of replication (Kafka's ReplicationConfigs and related keys)."""

from __future__ import annotations

import msgspec

from barnabas.replication.replica_selector import LEADER_SELECTOR, RACK_AWARE_SELECTOR
from barnabas.replication.replication_throttle import UNLIMITED
from barnabas.settings.definition import ConfigDefinition, ConfigKey, ConfigType, DynamicMode
from barnabas.settings.range import at_least, one_of

NUM_REPLICA_FETCHERS = "num.replica.fetchers"
LEADER_THROTTLED_RATE = "leader.replication.throttled.rate"
FOLLOWER_THROTTLED_RATE = "follower.replication.throttled.rate"
MOVES_THROTTLED_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"

_FETCHER_KEYS = [
    ConfigKey(
        NUM_REPLICA_FETCHERS,
        ConfigType.INT,
        1,
        "Connections per leader by which this broker follows it.",
        at_least(1),
        DynamicMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        "replica.fetch.max.bytes",
        ConfigType.INT,
        1_048_576,
        "What a follower asks for of one partition at once.",
        at_least(0),
        DynamicMode.READ_ONLY,
    ),
    ConfigKey(
        "replica.fetch.response.max.bytes",
        ConfigType.INT,
        10_485_760,
        "What a follower asks for at once.",
        at_least(0),
        DynamicMode.READ_ONLY,
    ),
    ConfigKey(
        "replica.fetch.min.bytes",
        ConfigType.INT,
        1,
        "What a leader waits for before it answers a follower.",
        None,
        DynamicMode.READ_ONLY,
    ),
    ConfigKey(
        "replica.fetch.wait.max.ms",
        ConfigType.INT,
        500,
        "How long a leader waits for it.",
        None,
        DynamicMode.READ_ONLY,
    ),
    ConfigKey(
        "replica.fetch.backoff.ms",
        ConfigType.INT,
        1_000,
        "How long a follower leaves a partition alone after an error.",
        at_least(0),
        DynamicMode.READ_ONLY,
    ),
    ConfigKey(
        "replica.socket.timeout.ms",
        ConfigType.INT,
        30_000,
        "How long a follower waits for an answer.",
        None,
        DynamicMode.READ_ONLY,
    ),
]
_THROTTLE_KEYS = [
    ConfigKey(
        LEADER_THROTTLED_RATE,
        ConfigType.LONG,
        UNLIMITED,
        "Bytes per second that followers get of throttled partitions, those in sync apart.",
        at_least(0),
        DynamicMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        FOLLOWER_THROTTLED_RATE,
        ConfigType.LONG,
        UNLIMITED,
        "Bytes per second that this broker fetches of throttled partitions.",
        at_least(0),
        DynamicMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        MOVES_THROTTLED_RATE,
        ConfigType.LONG,
        UNLIMITED,
        "Bytes per second that moves between this broker's data directories copy.",
        at_least(0),
        DynamicMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        "alter.log.dirs.replication.quota.window.num",
        ConfigType.INT,
        11,
        "Windows over which bytes of moves between data directories are counted.",
        at_least(1),
        DynamicMode.READ_ONLY,
    ),
    ConfigKey(
        "alter.log.dirs.replication.quota.window.size.seconds",
        ConfigType.INT,
        1,
        "The length of one of them.",
        at_least(1),
        DynamicMode.READ_ONLY,
    ),
    ConfigKey(
        "replication.quota.window.num",
        ConfigType.INT,
        11,
        "Windows over which replicated bytes are counted.",
        at_least(1),
        DynamicMode.READ_ONLY,
    ),
    ConfigKey(
        "replication.quota.window.size.seconds",
        ConfigType.INT,
        1,
        "The length of one of them.",
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
            "A follower that has not caught up with its leader for this long leaves the ISR.",
            at_least(1),
        ),
        ConfigKey(
            "replica.high.watermark.checkpoint.interval.ms",
            ConfigType.LONG,
            5_000,
            "How often the high watermarks are written to disk.",
            at_least(1),
        ),
        ConfigKey(
            "max.incremental.fetch.session.cache.slots",
            ConfigType.INT,
            1_000,
            "Incremental fetch sessions kept at most; beyond, fetches work without one.",
            at_least(0),
            DynamicMode.READ_ONLY,
        ),
        *_FETCHER_KEYS,
        *_THROTTLE_KEYS,
        ConfigKey(
            "replica.selector.class",
            ConfigType.STRING,
            None,
            "Who tells consumers to read from another replica than the leader, by Kafka's name.",
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
    max_incremental_fetch_session_cache_slots: int = 1_000
    num_replica_fetchers: int = 1
    replica_fetch_max_bytes: int = 1_048_576
    replica_fetch_response_max_bytes: int = 10_485_760
    replica_fetch_min_bytes: int = 1
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_backoff_ms: int = 1_000
    replica_socket_timeout_ms: int = 30_000
    # Bytes per second.
    leader_replication_throttled_rate: int = UNLIMITED
    follower_replication_throttled_rate: int = UNLIMITED
    replica_alter_log_dirs_io_max_bytes_per_second: int = UNLIMITED
    alter_log_dirs_replication_quota_window_num: int = 11
    alter_log_dirs_replication_quota_window_size_seconds: int = 1
    replication_quota_window_num: int = 11
    replication_quota_window_size_seconds: int = 1
    replica_selector_class: str | None = None
