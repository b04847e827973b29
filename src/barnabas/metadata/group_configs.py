"""Configs of a group, which override the broker's `group.*` defaults (KIP-848, 932, 1043).

`share.auto.offset.reset` says where a share group begins to read a partition (KIP-932).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from barnabas.settings.definition import ConfigDefinition, ConfigKey, ConfigType
from barnabas.settings.key import (
    DynamicMode,
    Synonym,
    at_least,
    different_names,
    one_of,
    satisfying,
)

if TYPE_CHECKING:
    from barnabas.settings.key import ConfigValue, Range


_EARLIEST, _LATEST = -2, -1
_WORDS = {"earliest": _EARLIEST, "latest": _LATEST}
_BY_DURATION = "by_duration:"
# ISO 8601 durations as Java's Duration.parse reads them. Each part may have a sign.
_DURATION = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?[0-9]+)D)?"
    r"(?:T(?=[-+0-9])(?:(?P<hours>[-+]?[0-9]+)H)?(?:(?P<minutes>[-+]?[0-9]+)M)?"
    r"(?:(?P<seconds>[-+]?[0-9]+)(?:[.,](?P<fraction>[0-9]{0,9}))?S)?)?",
    re.IGNORECASE,
)
_UNITS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}
# Java counts the seconds in 64 bits.
_MS_MAX = ((1 << 63) - 1) * 1_000


class ShareOffsetReset(msgspec.Struct, frozen=True):
    """The strategy that chooses the first offset of a share partition."""

    # Timestamp for ListOffsets: -2 earliest, -1 latest. None if it depends on the current time.
    fixed_timestamp: int | None
    # How far before the current time reading begins, in ms.
    duration_ms: int = 0

    @classmethod
    def parse(cls, text: str) -> ShareOffsetReset:
        """Parse "earliest", "latest" or "by_duration:PnDTnHnMn.nS".

        Raises:
            ValueError: the text is none of these, or the duration is negative.
        """
        if text in _WORDS:
            return cls(_WORDS[text])
        if text.startswith(_BY_DURATION):
            return cls(None, _duration_ms(text.removeprefix(_BY_DURATION)))
        raise ValueError(f"{text!r} is no offset reset strategy of share groups")

    def timestamp(self, now_ms: int) -> int:
        """Return the timestamp for ListOffsets: -2, -1 or ms since the epoch."""
        return now_ms - self.duration_ms if self.fixed_timestamp is None else self.fixed_timestamp


def is_offset_reset(text: object) -> bool:
    """Return whether the text is an offset reset strategy of share groups."""
    try:
        ShareOffsetReset.parse(str(text))
    except ValueError:
        return False
    return True


def _duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text)
    parts = {} if found is None else found.groupdict()
    if not any(parts.get(unit) for unit in _UNITS_MS):
        raise ValueError(f"{text!r} is no duration of the form PnDTnHnMn.nS")
    total = sum(int(parts[unit] or 0) * size for unit, size in _UNITS_MS.items())
    fraction_ms = int((parts["fraction"] or "").ljust(9, "0")) // 1_000_000
    total += -fraction_ms if (parts["seconds"] or "").startswith("-") else fraction_ms
    if parts["sign"] == "-":
        total = -total
    if not 0 <= total <= _MS_MAX:
        raise ValueError(f"the duration {text!r} is negative or too long")
    return total


# Configs of dead-letter topics (KIP-1191).
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
COPY_DEAD_LETTERS = "errors.deadletterqueue.copy.record.enable"


def _is_dead_letter_topic(value: ConfigValue) -> bool:
    return isinstance(value, str) and not value.startswith("__")


def _integer(
    name: str, default: int, doc: str, allowed: Range, *, internal: bool = False
) -> ConfigKey:
    return ConfigKey(
        name,
        ConfigType.INT,
        default,
        doc,
        allowed,
        DynamicMode.CLUSTER_WIDE,
        (Synonym(f"group.{name}"),),
        internal=internal,
    )


_STREAMS = [
    _integer(
        "streams.session.timeout.ms",
        45_000,
        "Time without a heartbeat after which a member of a streams group is removed.",
        at_least(1),
    ),
    _integer(
        "streams.heartbeat.interval.ms",
        5_000,
        "Heartbeat interval of members of a streams group.",
        at_least(1),
    ),
    _integer(
        "streams.assignment.interval.ms",
        1_000,
        "Minimum time between two target assignments of a streams group.",
        at_least(0),
    ),
    _integer(
        "streams.num.standby.replicas",
        0,
        "Number of standby tasks of each task with state.",
        at_least(0),
    ),
    _integer(
        "streams.initial.rebalance.delay.ms",
        3_000,
        "How long the first rebalance of the empty group waits for more members.",
        at_least(0),
    ),
    _integer(
        "streams.task.offset.interval.ms",
        60_000,
        "Interval in which members report the offsets of their tasks.",
        at_least(1),
        internal=True,
    ),
    _integer(
        "streams.num.warmup.replicas",
        2,
        "Number of warm-up tasks. Kafka 4.4 has the config, but assigns no warm-up tasks.",
        at_least(0),
        internal=True,
    ),
    ConfigKey(
        "streams.acceptable.recovery.lag",
        ConfigType.LONG,
        10_000,
        "Lag below which a member reports that it has caught up with a task, in offsets.",
        at_least(0),
        DynamicMode.CLUSTER_WIDE,
        (Synonym("group.streams.acceptable.recovery.lag"),),
        internal=True,
    ),
    ConfigKey(
        "streams.rack.aware.assignment.tags",
        ConfigType.LIST,
        [],
        "Keys of client tags that all members must have. Members without them get a status.",
        different_names(),
        DynamicMode.CLUSTER_WIDE,
        (Synonym("group.streams.rack.aware.assignment.tags"),),
    ),
    ConfigKey(
        "streams.assignor.name",
        ConfigType.STRING,
        None,
        "The task assignor of a streams group.",
        one_of("sticky"),
        DynamicMode.CLUSTER_WIDE,
        (Synonym("group.streams.assignors"),),
    ),
]

GROUP_CONFIGS = ConfigDefinition([
    _integer(
        "consumer.session.timeout.ms",
        45_000,
        "Time without a heartbeat after which a member of the consumer protocol is removed.",
        at_least(1),
    ),
    _integer(
        "consumer.heartbeat.interval.ms",
        5_000,
        "Heartbeat interval of members of the consumer protocol.",
        at_least(1),
    ),
    _integer(
        "consumer.assignment.interval.ms",
        1_000,
        "Minimum time between two target assignments of the group.",
        at_least(0),
    ),
    _integer(
        "share.session.timeout.ms",
        45_000,
        "Time without a heartbeat after which a member of a share group is removed.",
        at_least(1),
    ),
    _integer(
        "share.heartbeat.interval.ms",
        5_000,
        "Heartbeat interval of members of a share group.",
        at_least(1),
    ),
    _integer(
        "share.assignment.interval.ms",
        1_000,
        "Minimum time between two target assignments of a share group.",
        at_least(0),
    ),
    _integer(
        "share.record.lock.duration.ms",
        30_000,
        "How long a member of a share group may process a record before it is delivered again.",
        at_least(1_000),
    ),
    _integer(
        "share.delivery.count.limit",
        5,
        "Maximum number of times that a share group delivers a record.",
        at_least(2),
    ),
    _integer(
        "share.partition.max.record.locks",
        2_000,
        "Maximum number of records of a partition that a share group has in flight.",
        at_least(100),
    ),
    ConfigKey(
        "share.auto.offset.reset",
        ConfigType.STRING,
        "latest",
        "Where a share group begins to read a partition.",
        satisfying("earliest, latest or by_duration:PnDTnHnMn.nS", is_offset_reset),
        DynamicMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        "share.isolation.level",
        ConfigType.STRING,
        "read_uncommitted",
        "Whether a share group reads records of transactions that are open or aborted.",
        one_of("read_committed", "read_uncommitted"),
        DynamicMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        "share.renew.acknowledge.enable",
        ConfigType.BOOLEAN,
        True,
        "Whether members of a share group may prolong the locks of their records.",
        None,
        DynamicMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        DEAD_LETTER_TOPIC,
        ConfigType.STRING,
        "",
        "Dead-letter topic of a share group: it gets the records that the group rejects or that"
        " reach the delivery count limit. Empty for none.",
        satisfying("no name that begins with __", _is_dead_letter_topic),
        DynamicMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        COPY_DEAD_LETTERS,
        ConfigType.BOOLEAN,
        False,
        "Whether the dead-letter topic gets the keys and values of the records too.",
        None,
        DynamicMode.CLUSTER_WIDE,
    ),
    *_STREAMS,
])  # fmt: skip


class GroupLimits(msgspec.Struct, frozen=True):
    """The keys of the broker with the limits of a group's config, or None without a limit."""

    lowest: str | None
    highest: str | None


_NO_LIMITS = GroupLimits(None, None)
# Configs that do not have a lower and an upper limit.
_SPECIAL_LIMITS = {
    "streams.num.standby.replicas": GroupLimits(None, "group.streams.max.standby.replicas"),
    "streams.num.warmup.replicas": GroupLimits(None, "group.streams.max.warmup.replicas"),
    "streams.task.offset.interval.ms": GroupLimits(
        "group.streams.min.task.offset.interval.ms", None
    ),
    "streams.initial.rebalance.delay.ms": _NO_LIMITS,
    "streams.acceptable.recovery.lag": _NO_LIMITS,
    "streams.rack.aware.assignment.tags": _NO_LIMITS,
    "streams.assignor.name": _NO_LIMITS,
}


def limits_of(key: str) -> GroupLimits:
    """Return the limits of a config that has a key of the broker as synonym."""
    special = _SPECIAL_LIMITS.get(key)
    if special is not None:
        return special
    protocol, _, rest = key.partition(".")
    return GroupLimits(f"group.{protocol}.min.{rest}", f"group.{protocol}.max.{rest}")


# (session timeout, heartbeat interval) of each protocol. The first one must be greater.
SESSIONS = (
    ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"),
    ("share.session.timeout.ms", "share.heartbeat.interval.ms"),
    ("streams.session.timeout.ms", "streams.heartbeat.interval.ms"),
)
