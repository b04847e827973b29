"""Broker configuration of share groups (Kafka's GroupCoordinatorConfig and ShareGroupConfig)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.settings.definition import ConfigKey, ConfigType, DynamicMode
from barnabas.settings.range import at_least, between

if TYPE_CHECKING:
    from barnabas.settings.range import Range

SHARE_ASSIGNMENT_INTERVAL = "group.share.assignment.interval.ms"
DEAD_LETTER_AUTO_CREATE = "errors.deadletterqueue.auto.create.topics.enable"
DEAD_LETTER_PREFIX = "errors.deadletterqueue.topic.name.prefix"


def _key(name: str, default: int, doc: str, allowed: Range) -> ConfigKey:
    return ConfigKey(f"group.share.{name}", ConfigType.INT, default, doc, allowed)


SHARE_KEYS = [
    _key(
        "session.timeout.ms",
        45_000,
        "Time without a heartbeat after which a member of a share group is removed, in ms.",
        at_least(1),
    ),
    _key("min.session.timeout.ms", 45_000, "Lowest session timeout of a share group.", at_least(1)),
    _key(
        "max.session.timeout.ms", 60_000, "Highest session timeout of a share group.", at_least(1)
    ),
    _key(
        "heartbeat.interval.ms",
        5_000,
        "Heartbeat interval of members of share groups.",
        at_least(1),
    ),
    _key(
        "min.heartbeat.interval.ms",
        5_000,
        "Lowest heartbeat interval of a share group.",
        at_least(1),
    ),
    _key(
        "max.heartbeat.interval.ms",
        15_000,
        "Highest heartbeat interval of a share group.",
        at_least(1),
    ),
    ConfigKey(
        SHARE_ASSIGNMENT_INTERVAL,
        ConfigType.INT,
        1_000,
        "Minimum time between two target assignments of a share group, in ms.",
        at_least(0),
        DynamicMode.CLUSTER_WIDE,
    ),
    _key(
        "min.assignment.interval.ms", 0, "Lowest assignment interval of a share group.", at_least(0)
    ),
    _key(
        "max.assignment.interval.ms",
        15_000,
        "Highest assignment interval of a share group.",
        at_least(0),
    ),
    _key("max.size", 200, "Maximum number of members of a share group.", between(1, 1_000)),
    _key(
        "initialize.retry.interval.ms",
        30_000,
        "Time after which the coordinator initializes the state of a share partition again, in "
        "ms. It is at least offsets.commit.timeout.ms.",
        at_least(1),
    ),
    _key(
        "delivery.count.limit",
        5,
        "Maximum number of times that a share group delivers a record.",
        between(2, 10),
    ),
    _key(
        "min.delivery.count.limit",
        2,
        "Lowest delivery count limit of a share group.",
        between(2, 5),
    ),
    _key(
        "max.delivery.count.limit",
        10,
        "Highest delivery count limit of a share group.",
        between(5, 25),
    ),
    _key(
        "record.lock.duration.ms",
        30_000,
        "How long a member of a share group may process a record before it is delivered again, in "
        "ms.",
        between(1_000, 3_600_000),
    ),
    _key(
        "min.record.lock.duration.ms",
        15_000,
        "Lowest record lock duration of a share group, in ms.",
        between(1_000, 30_000),
    ),
    _key(
        "max.record.lock.duration.ms",
        60_000,
        "Highest record lock duration of a share group, in ms.",
        between(30_000, 3_600_000),
    ),
    _key(
        "partition.max.record.locks",
        2_000,
        "Maximum number of records of a partition that a share group has in flight.",
        between(100, 10_000),
    ),
    _key(
        "min.partition.max.record.locks",
        100,
        "Lowest number of record locks of a partition.",
        between(100, 2_000),
    ),
    _key(
        "max.partition.max.record.locks",
        4_000,
        "Highest number of record locks of a partition.",
        between(2_000, 10_000),
    ),
    _key(
        "max.share.sessions",
        2_000,
        "Maximum number of share sessions of a broker.",
        at_least(1),
    ),
    ConfigKey(
        DEAD_LETTER_AUTO_CREATE,
        ConfigType.BOOLEAN,
        False,
        "Whether the broker creates missing dead-letter topics of share groups (KIP-1191).",
        None,
        DynamicMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        DEAD_LETTER_PREFIX,
        ConfigType.STRING,
        "dlq.",
        "Required prefix of the names of dead-letter topics; empty for any name.",
        None,
        DynamicMode.CLUSTER_WIDE,
    ),
]


class ShareGroupConfig(msgspec.Struct, frozen=True):
    """Values of the keys above. Times are in ms."""

    group_share_session_timeout_ms: int = 45_000
    group_share_min_session_timeout_ms: int = 45_000
    group_share_max_session_timeout_ms: int = 60_000
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_min_heartbeat_interval_ms: int = 5_000
    group_share_max_heartbeat_interval_ms: int = 15_000
    group_share_assignment_interval_ms: int = 1_000
    group_share_min_assignment_interval_ms: int = 0
    group_share_max_assignment_interval_ms: int = 15_000
    group_share_max_size: int = 200
    group_share_initialize_retry_interval_ms: int = 30_000
    group_share_delivery_count_limit: int = 5
    group_share_min_delivery_count_limit: int = 2
    group_share_max_delivery_count_limit: int = 10
    group_share_record_lock_duration_ms: int = 30_000
    group_share_min_record_lock_duration_ms: int = 15_000
    group_share_max_record_lock_duration_ms: int = 60_000
    group_share_partition_max_record_locks: int = 2_000
    group_share_min_partition_max_record_locks: int = 100
    group_share_max_partition_max_record_locks: int = 4_000
    group_share_max_share_sessions: int = 2_000
