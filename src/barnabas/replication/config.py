"""Broker configuration of replication (Kafka's ReplicationConfigs and its neighbours)."""

from __future__ import annotations

import msgspec

from barnabas.settings.definition import ConfigDefinition, ConfigKey, ConfigType, DynamicMode
from barnabas.settings.range import at_least

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
    ]
)

# Kafka has no key for it: a session younger than this does not give way to its like.
FETCH_SESSION_EVICTION_MS = 120_000


class ReplicationConfig(msgspec.Struct, frozen=True):
    """Values of the keys above; times in ms."""

    replica_lag_time_max_ms: int = 30_000
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    max_incremental_fetch_session_cache_slots: int = 1_000
