"""The configuration keys of consumer, share and streams groups, with their assignors and limits."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from barnabas.settings.definition import ConfigError, ConfigKey, ConfigType, DynamicMode
from barnabas.settings.key import at_least, between, different_names, satisfying

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.settings.definition import ParsedConfig
    from barnabas.settings.key import ConfigValue, Range


CONSUMER_ASSIGNORS = ("uniform", "range")
SHARE_ASSIGNORS = ("simple",)
# Kafka takes the names of its classes as well.
_CLASSES = {
    f"org.apache.kafka.coordinator.group.assignor.{name.capitalize()}Assignor": name
    for name in CONSUMER_ASSIGNORS + SHARE_ASSIGNORS
}


def consumer_assignors(config: ParsedConfig) -> tuple[str, ...]:
    """Return the names of the assignors that members may choose. The first one is the default."""
    return _assignor_names(tuple(config.strings("group.consumer.assignors")))


@lru_cache(16)
def _assignor_names(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of assignors, each given by its name or by the name of Kafka's class."""
    return tuple(_CLASSES.get(word, word) for word in words)


def _assignors(known: Collection[str]) -> Range:
    """Allow a list of these assignors, each at most once, and at least one."""

    def accepts(value: ConfigValue) -> bool:
        assert isinstance(value, list), value
        names = _assignor_names(tuple(value))
        return bool(names) and len(set(names)) == len(names) and set(names) <= set(known)

    text = (
        f"one or more of {', '.join(known)}, each once, also by the names of Kafka's classes; "
        "remove other assignors from the list, since Barnabas runs no Java classes"
    )
    return satisfying(text, accepts)


ASSIGNOR_KEYS = [
    ConfigKey(
        "group.consumer.assignors",
        ConfigType.LIST,
        list(CONSUMER_ASSIGNORS),
        "Server-side assignors that members of consumer groups may choose. The first one is for "
        "groups whose members choose none.",
        _assignors(CONSUMER_ASSIGNORS),
    ),
    ConfigKey(
        "group.share.assignors",
        ConfigType.LIST,
        list(SHARE_ASSIGNORS),
        "The server-side assignor of share groups.",
        _assignors(SHARE_ASSIGNORS),
    ),
]

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


ASSIGNMENT_INTERVALS = tuple(
    f"group.{kind}.assignment.interval.ms" for kind in ("consumer", "share", "streams")
)
_INT_MAX = 0x7FFF_FFFF


def _integer(kind: str, name: str, default: int, doc: str, allowed: Range) -> ConfigKey:
    return ConfigKey(f"group.{kind}.{name}", ConfigType.INT, default, doc, allowed)


def _with_limits(
    key: ConfigKey, what: str, lowest: tuple[int, Range], highest: tuple[int, Range]
) -> list[ConfigKey]:
    """Return a key, and the keys of its lowest and its highest value in the configs of groups.

    Args:
        key: the key.
        what: the value, for the documentation.
        lowest: the default of the lowest value, and its range.
        highest: the default of the highest value, and its range.
    """
    _, kind, name = key.name.split(".", 2)
    return [
        key,
        _integer(kind, f"min.{name}", lowest[0], f"Lowest {what}.", lowest[1]),
        _integer(kind, f"max.{name}", highest[0], f"Highest {what}.", highest[1]),
    ]


def _member_keys(kind: str, size_max: int, sizes: Range) -> list[ConfigKey]:
    """Return the keys for the members of groups, which differ by kind only in `max.size`.

    Args:
        kind: the kind of group.
        size_max: the default of `max.size`.
        sizes: the range of `max.size`.
    """
    positive, any_time = at_least(1), at_least(0)
    removed = f"Time without a heartbeat after which a member of a {kind} group is removed, in ms."
    between_two = f"Minimum time between two target assignments of a {kind} group, in ms."
    often = f"Heartbeat interval of members of {kind} groups."
    timeout = _integer(kind, "session.timeout.ms", 45_000, removed, positive)
    heartbeats = _integer(kind, "heartbeat.interval.ms", 5_000, often, positive)
    assignments = ConfigKey(
        f"group.{kind}.assignment.interval.ms",
        ConfigType.INT,
        1_000,
        between_two,
        any_time,
        DynamicMode.CLUSTER_WIDE,
    )
    one = f"of a {kind} group"
    return [
        *_with_limits(timeout, f"session timeout {one}", (45_000, positive), (60_000, positive)),
        *_with_limits(
            heartbeats, f"heartbeat interval {one}", (5_000, positive), (15_000, positive)
        ),
        *_with_limits(assignments, f"assignment interval {one}", (0, any_time), (15_000, any_time)),
        _integer(kind, "max.size", size_max, f"Maximum number of members {one}.", sizes),
    ]


CONSUMER_KEYS = [
    *_member_keys("consumer", _INT_MAX, at_least(1)),
    _integer(
        "consumer",
        "regex.refresh.interval.ms",
        600_000,
        "How often a consumer group matches the topics with its regular expressions, in ms. New "
        "topics are matched at the next heartbeat.",
        at_least(10_000),
    ),
]


DEAD_LETTER_AUTO_CREATE = "errors.deadletterqueue.auto.create.topics.enable"
DEAD_LETTER_PREFIX = "errors.deadletterqueue.topic.name.prefix"


SHARE_KEYS = [
    *_member_keys("share", 200, between(1, 1_000)),
    _integer(
        "share",
        "initialize.retry.interval.ms",
        30_000,
        "Time after which the coordinator initializes the state of a share partition again, in "
        "ms. It is at least offsets.commit.timeout.ms.",
        at_least(1),
    ),
    *_with_limits(
        _integer(
            "share",
            "delivery.count.limit",
            5,
            "Maximum number of times that a share group delivers a record.",
            between(2, 10),
        ),
        "delivery count limit of a share group",
        (2, between(2, 5)),
        (10, between(5, 25)),
    ),
    *_with_limits(
        _integer(
            "share",
            "record.lock.duration.ms",
            30_000,
            "How long a member of a share group may process a record before it is delivered again,"
            " in ms.",
            between(1_000, 3_600_000),
        ),
        "record lock duration of a share group, in ms",
        (15_000, between(1_000, 30_000)),
        (60_000, between(30_000, 3_600_000)),
    ),
    *_with_limits(
        _integer(
            "share",
            "partition.max.record.locks",
            2_000,
            "Maximum number of records of a partition that a share group has in flight.",
            between(100, 10_000),
        ),
        "number of record locks of a partition",
        (100, between(100, 2_000)),
        (4_000, between(2_000, 10_000)),
    ),
    _integer(
        "share",
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


_RACK_TAGS = "group.streams.rack.aware.assignment.tags"


STREAMS_KEYS = [
    *_member_keys("streams", _INT_MAX, at_least(1)),
    _integer(
        "streams",
        "num.standby.replicas",
        0,
        "Number of standby tasks of each task with state.",
        at_least(0),
    ),
    _integer(
        "streams",
        "max.standby.replicas",
        2,
        "Highest number of standby tasks of a streams group.",
        at_least(0),
    ),
    _integer(
        "streams",
        "num.warmup.replicas",
        2,
        "Number of warm-up tasks. Kafka 4.4 has the key, but assigns no warm-up tasks.",
        at_least(0),
    ),
    _integer(
        "streams",
        "max.warmup.replicas",
        20,
        "Highest number of warm-up tasks of a streams group.",
        at_least(0),
    ),
    _integer(
        "streams",
        "initial.rebalance.delay.ms",
        3_000,
        "How long the first rebalance of an empty streams group waits for more members, in ms.",
        at_least(0),
    ),
    _integer(
        "streams",
        "task.offset.interval.ms",
        60_000,
        "Interval in which members report the offsets of their tasks, in ms.",
        at_least(1),
    ),
    _integer(
        "streams",
        "min.task.offset.interval.ms",
        15_000,
        "Lowest task offset interval of a streams group.",
        at_least(1),
    ),
    ConfigKey(
        "group.streams.acceptable.recovery.lag",
        ConfigType.LONG,
        10_000,
        "Lag below which a member reports that it has caught up with a task, in offsets.",
        at_least(0),
    ),
    ConfigKey(
        "group.streams.assignors",
        ConfigType.LIST,
        ["sticky"],
        "Task assignors of streams groups.",
        satisfying(
            "sticky; remove other assignors from the list, since Barnabas runs no Java classes",
            lambda value: value == ["sticky"],
        ),
    ),
    ConfigKey(
        _RACK_TAGS,
        ConfigType.LIST,
        [],
        "Keys of client tags that all members must have. Members without them get a status.",
        different_names(),
    ),
]
