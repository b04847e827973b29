"""Broker configuration of the transaction coordinator (Kafka's TransactionStateManagerConfig)."""

from __future__ import annotations

import msgspec

from barnabas.settings.definition import ConfigDefinition, ConfigKey, ConfigType
from barnabas.settings.key import at_least

_DAY_MS = 86_400_000

DEFINITION = ConfigDefinition(
    [
        ConfigKey(
            "transactional.id.expiration.ms",
            ConfigType.INT,
            7 * _DAY_MS,
            "How long the state of an unused transactional id is kept, in ms.",
            at_least(1),
        ),
        ConfigKey(
            "transaction.max.timeout.ms",
            ConfigType.INT,
            900_000,
            "Longest transaction timeout that a producer may request, in ms.",
            at_least(1),
        ),
        ConfigKey(
            "transaction.state.log.num.partitions",
            ConfigType.INT,
            50,
            "Number of partitions of __transaction_state. It must not change once the topic "
            "exists.",
            at_least(1),
        ),
        ConfigKey(
            "transaction.state.log.replication.factor",
            ConfigType.SHORT,
            3,
            "Number of replicas of __transaction_state. Its creation waits for that many brokers.",
            at_least(1),
        ),
        ConfigKey(
            "transaction.state.log.min.isr",
            ConfigType.INT,
            2,
            "Minimum number of in-sync replicas for writes to __transaction_state.",
            at_least(1),
        ),
        ConfigKey(
            "transaction.state.log.segment.bytes",
            ConfigType.INT,
            104_857_600,
            "Segment size of __transaction_state, in bytes. Smaller segments are compacted sooner.",
            at_least(1),
        ),
        ConfigKey(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms",
            ConfigType.INT,
            10_000,
            "Interval of the search for transactions that exceed their timeout, in ms.",
            at_least(1),
        ),
        ConfigKey(
            "transaction.remove.expired.transaction.cleanup.interval.ms",
            ConfigType.INT,
            3_600_000,
            "Interval of the removal of expired transactional ids, in ms.",
            at_least(1),
        ),
        ConfigKey(
            "transaction.two.phase.commit.enable",
            ConfigType.BOOLEAN,
            False,
            "Whether producers may use two-phase commit (KIP-939). Such transactions never time "
            "out. Requests for it need unstable.api.versions.enable=true.",
        ),
    ]
)


class TransactionConfig(msgspec.Struct, frozen=True):
    """Values of the configuration keys above that the coordinator uses. Times are in ms."""

    transactional_id_expiration_ms: int = 7 * _DAY_MS
    transaction_max_timeout_ms: int = 900_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transaction_two_phase_commit_enable: bool = False
