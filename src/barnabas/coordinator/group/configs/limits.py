"""Checks that the keys of share and streams groups do not contradict each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.settings.definition import ConfigError

if TYPE_CHECKING:
    from barnabas.settings.definition import ParsedConfig

# (lower key, higher key, whether they must differ), without the prefix of the group type.
_BOTH = (
    ("min.heartbeat.interval.ms", "heartbeat.interval.ms", False),
    ("heartbeat.interval.ms", "max.heartbeat.interval.ms", False),
    ("min.session.timeout.ms", "session.timeout.ms", False),
    ("session.timeout.ms", "max.session.timeout.ms", False),
    ("heartbeat.interval.ms", "session.timeout.ms", True),
    ("min.assignment.interval.ms", "assignment.interval.ms", False),
    ("assignment.interval.ms", "max.assignment.interval.ms", False),
)
_ORDERED = {
    "group.share.": (
        *_BOTH,
        ("min.delivery.count.limit", "delivery.count.limit", False),
        ("delivery.count.limit", "max.delivery.count.limit", False),
        ("min.record.lock.duration.ms", "record.lock.duration.ms", False),
        ("record.lock.duration.ms", "max.record.lock.duration.ms", False),
        ("min.partition.max.record.locks", "partition.max.record.locks", False),
        ("partition.max.record.locks", "max.partition.max.record.locks", False),
        ("max.size", "max.share.sessions", False),
    ),
    "group.streams.": (
        *_BOTH,
        ("num.standby.replicas", "max.standby.replicas", False),
        ("min.task.offset.interval.ms", "task.offset.interval.ms", False),
        ("num.warmup.replicas", "max.warmup.replicas", False),
    ),
}


def check_group_limits(config: ParsedConfig) -> None:
    """Check that no value is outside of its limits.

    Raises:
        ConfigError: a value is outside of its limits, or a heartbeat interval is not below the
            session timeout.
    """
    for prefix, ordered in _ORDERED.items():
        for lower, higher, must_differ in ordered:
            low_key, high_key = prefix + lower, prefix + higher
            low, high = config.integer(low_key), config.integer(high_key)
            if low > high or (must_differ and low == high):
                relation = "less than" if must_differ else "at most"
                raise ConfigError(low_key, str(low), f"{relation} {high_key} ({high})")
