"""Changes of configs: each operation on each key, and the effects of the changes.

The keys are those that Barnabas describes. Every key is set, appended to, subtracted from and
deleted, with valid and wrong values. The descriptions are compared after each round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from differential.case import case
from differential.cases.configs import (
    ALTER,
    APPEND,
    BROKER,
    CLIENT_METRICS,
    DELETE,
    DESCRIBE,
    GROUP,
    INCREMENTAL,
    SET,
    SUBTRACT,
    TOPIC,
    changing,
    describing,
)
from differential.cases.produce import to
from differential.cases.sequences_offsets import offset_at, timed
from differential.cases.sequences_produce import DAY_MS, compare_log, keyed
from differential.rules import HOUR_MS, NOT_IN_KAFKA
from differential.scene import NOW_MS, Scene, batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from differential.response import Flat

    Change = tuple[str, int, str | None]


PRODUCE = ApiKey.PRODUCE
BOOLEAN, TEXT, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = range(1, 10)
ALL_BROKERS = ""
# Values of keys that are not numbers, with their defaults.
WORDS = {
    "cleanup.policy": "compact",
    "compression.type": "lz4",
    "message.timestamp.type": "LogAppendTime",
    "follower.replication.throttled.replicas": "0:1,1:1",
    "leader.replication.throttled.replicas": "*",
}
NUMBERS = {"segment.bytes": "2097152", "compression.gzip.level": "5", "compression.lz4.level": "7"}


def keys_of(scene: Scene, kind: int, name: str) -> list[tuple[str, int, bool, str | None]]:
    """Return name, type, read-only flag and value of each key that both brokers describe."""
    responses = scene.do(DESCRIBE, 4, describing(kind, name))
    kafka, barnabas = ({each.name: each for each in a.results[0].configs} for a in responses)
    absent = NOT_IN_KAFKA["DescribeConfigs.results[].configs"]
    return [
        (name, each.config_type, each.read_only, each.value)
        for name, each in sorted(barnabas.items())
        if name in kafka and name not in absent
    ]


def other_value(name: str, kind: int, value: str | None) -> str:
    """Return a valid value of the key, other than its current value."""
    if kind == BOOLEAN:
        return "false" if value == "true" else "true"
    if kind == DOUBLE:
        return "0.25"
    if kind in (INT, SHORT, LONG):
        return NUMBERS.get(name, "2")
    return WORDS.get(name, "something")


def wrong_values(kind: int) -> Iterator[str]:
    """Yield values that most keys of a type refuse."""
    if kind in (INT, SHORT, LONG):
        yield from ("", "x", "1.5", "-7", "99999999999999999999", " 3 ")
    elif kind == DOUBLE:
        yield from ("", "x", "-0.5", "1.5", "NaN")
    elif kind == BOOLEAN:
        yield from ("", "yes", "TRUE", "0")
    else:
        yield from ("", "no such thing", ",", "delete,delete", " compact , delete ")


@case(INCREMENTAL, [1])
def each_operation_on_each_key_of_a_topic(scene: Scene) -> None:
    topic = scene.topic()
    look_at = describing(TOPIC, topic, include_synonyms=True)
    keys = keys_of(scene, TOPIC, topic)
    assert len(keys) > 20
    for operation in (SET, APPEND, SUBTRACT, DELETE):
        for name, kind, _, value in keys:
            text = None if operation == DELETE else other_value(name, kind, value)
            change = (name, operation, text)
            for validate_only in (True, False):
                scene.compare(changing(TOPIC, topic, change, validate_only=validate_only))
        scene.settle()
        scene.compare(look_at, DESCRIBE, 4)


@case(INCREMENTAL, [1])
def wrong_values_of_each_key_of_a_topic(scene: Scene) -> None:
    topic = scene.topic()
    changes = [
        (topic, (name, SET, text))
        for name, kind, _, _ in keys_of(scene, TOPIC, topic)
        for text in wrong_values(kind)
    ]
    compare_error_codes(scene, TOPIC, changes)


@case(INCREMENTAL, [1])
def each_key_of_a_broker(scene: Scene) -> None:
    """Compare which keys of a broker are dynamic, for one broker and for all, and their values."""
    changes: list[tuple[str, Change]] = []
    for name, kind, read_only, value in keys_of(scene, BROKER, "1"):
        texts = [value] if read_only else [value, *wrong_values(kind)]
        changes += [("1", (name, SET, text)) for text in texts if text is not None]
        # Configs of all brokers are parsed like those of one broker.
        changes += [(ALL_BROKERS, (name, SET, text)) for text in texts[:1] if text is not None]
        changes.append((ALL_BROKERS, (name, DELETE, None)))
    compare_error_codes(scene, BROKER, changes)


def compare_error_codes(scene: Scene, kind: int, changes: list[tuple[str, Change]]) -> None:
    """Compare the error codes of each change, with validate_only."""
    kafka: Flat = {}
    barnabas: Flat = {}
    for resource, change in changes:
        name, operation, text = change
        requested = changing(kind, resource, change, validate_only=True)
        for flat, response in zip(
            (kafka, barnabas), scene.do(INCREMENTAL, 1, requested), strict=True
        ):
            of = f"{resource} " if kind == BROKER else ""
            where = f"{of}{name}, {'delete' if operation == DELETE else 'set'} {text!r}"
            flat[where] = ErrorCode(response.responses[0].error_code).name
    scene.note(kafka, barnabas)


@case(INCREMENTAL, [1])
def several_changes_at_once(scene: Scene) -> None:
    """The changes of a resource are atomic; resources are independent."""
    topic, other = scene.topic(), scene.topic()
    good, bad = ("retention.ms", SET, "5000"), ("segment.ms", SET, "never")
    scene.compare(changing(TOPIC, topic, good, bad))
    scene.compare(changing(TOPIC, topic, bad, good))
    first = changing(TOPIC, topic, good)["resources"]
    second = changing(TOPIC, other, bad)["resources"]
    third = changing(TOPIC, "absent", good)["resources"]
    scene.compare({"resources": [*second, *first, *third]})
    scene.compare(
        changing(
            TOPIC,
            other,
            ("min.insync.replicas", SET, "2"),
            ("retention.ms", DELETE, None),
            ("cleanup.policy", APPEND, "compact"),
        )
    )
    scene.settle()
    for name in (topic, other):
        scene.compare(describing(TOPIC, name, include_synonyms=True), DESCRIBE, 4)


@case(INCREMENTAL, [1])
def keys_that_limit_each_other(scene: Scene) -> None:
    topic = scene.topic()
    for changes in (
        [("min.compaction.lag.ms", SET, "100"), ("max.compaction.lag.ms", SET, "50")],
        [("max.compaction.lag.ms", SET, "50")],
        [("min.compaction.lag.ms", SET, "100")],
        [("max.compaction.lag.ms", DELETE, None), ("min.compaction.lag.ms", SET, "100")],
        [("cleanup.policy", SET, "compact"), ("cleanup.policy", APPEND, "delete")],
        [("cleanup.policy", SET, "")],
        [("cleanup.policy", SUBTRACT, "delete")],
        [("cleanup.policy", SUBTRACT, "compact,delete")],
        [("cleanup.policy", APPEND, "compact,delete")],
        [("segment.bytes", SET, "1048576"), ("max.message.bytes", SET, "5000000")],
    ):
        scene.compare(changing(TOPIC, topic, *changes))
    scene.settle()
    scene.compare(describing(TOPIC, topic, include_synonyms=True), DESCRIBE, 4)


# Unusual spellings of values.
SPELLINGS = (
    (TOPIC, "retention.ms", (" 3000 ", "+3000", "003000", "-1")),
    (TOPIC, "retention.bytes", ("-7", " 5")),
    (TOPIC, "unclean.leader.election.enable", (" TRUE ", "True")),
    (TOPIC, "min.cleanable.dirty.ratio", (".5", "5e-1", "0.50", "1", "0.5f", "1e-5", "0", "1D")),
    (TOPIC, "compression.type", (" gzip ",)),
    (TOPIC, "cleanup.policy", (" compact , delete ", "delete,delete", "compact,,delete", ",")),
    (TOPIC, "follower.replication.throttled.replicas", (" 1:1 , 2:2 ", " * ", ",", "1:1,,1:1")),
    # Long enough for the records of the other cases.
    (BROKER, "log.retention.ms", (" 90000000 ", "+90000000", "-1", "-7", "0")),
    (BROKER, "log.retention.bytes", (" 3000000000 ", "-7")),
    (BROKER, "log.message.timestamp.type", (" LogAppendTime ",)),
    (BROKER, "log.cleanup.policy", (" compact , delete ", "delete,delete", "compact,,delete", ",")),
    (BROKER, "log.cleaner.min.cleanable.ratio", (".5", "5e-1", "1e-5", "1d")),
    (BROKER, "log.cleaner.io.max.bytes.per.second", ("1e400", "1e6", "1e7", "123456789.5", "1e-4")),
    (GROUP, "consumer.session.timeout.ms", (" 50000 ", "+50000")),
    (CLIENT_METRICS, "interval.ms", (" 60000 ",)),
    (CLIENT_METRICS, "metrics", (" a , b,a", "*", "")),
    (CLIENT_METRICS, "match", (" client_id=a , client_id=a", "client_id=a,client_id=b")),
)
# Topic key whose default is a key of the broker.
TOPIC_KEYS = {
    "log.retention.ms": "retention.ms",
    "log.retention.bytes": "retention.bytes",
    "log.message.timestamp.type": "message.timestamp.type",
    "log.cleanup.policy": "cleanup.policy",
    "log.cleaner.min.cleanable.ratio": "min.cleanable.dirty.ratio",
}


@case(INCREMENTAL, [1], is_nightly=True)
def spellings_of_values(scene: Scene) -> None:
    """Compare the descriptions of values that are set in unusual spellings."""
    topic = scene.topic()
    names = {TOPIC: (topic,), BROKER: ("1", ALL_BROKERS)}
    for kind, key, texts in SPELLINGS:
        for name in names.get(kind, (scene.name(),)):
            for text in texts:
                scene.compare(changing(kind, name, (key, SET, text)))
                scene.settle()
                scene.compare(describing(kind, name, key, include_synonyms=True), DESCRIBE, 4)
                if key in TOPIC_KEYS:
                    requested = describing(TOPIC, topic, TOPIC_KEYS[key], include_synonyms=True)
                    scene.compare(requested, DESCRIBE, 4)
            scene.compare(changing(kind, name, (key, DELETE, None)))


@case(INCREMENTAL, [1], is_nightly=True)
def sizes_that_grow_by_halves(scene: Scene) -> None:
    """A change may at most double or halve a size, for one broker and for all brokers."""
    for key in ("log.cleaner.threads", "num.replica.fetchers"):
        for name, texts in ((ALL_BROKERS, ("3", "2", "4")), ("1", ("9", "8", "3", "4"))):
            for text in texts:
                change_of = changing(BROKER, name, (key, SET, text))
                scene.compare({**change_of, "validate_only": True})
                scene.compare(change_of)
                scene.settle()
                requested = describing(BROKER, "1", key, include_synonyms=True)
                scene.compare(requested, DESCRIBE, 4)
        # The value of one broker has precedence, then that of all brokers, then the static value.
        for name, operation, text in (
            (ALL_BROKERS, DELETE, None),
            (ALL_BROKERS, SET, "100"),
            (ALL_BROKERS, SET, "1"),
            ("1", DELETE, None),
            ("1", SET, "2"),
            ("1", SET, "x"),
            (ALL_BROKERS, SET, "4"),
            ("1", DELETE, None),
            (ALL_BROKERS, DELETE, None),
            (ALL_BROKERS, SET, "2"),
            (ALL_BROKERS, DELETE, None),
        ):
            scene.compare(changing(BROKER, name, (key, operation, text)))
            scene.settle()
        configs = [{"name": key, "value": "9"}]
        replaced = {"resource_type": BROKER, "resource_name": "1", "configs": configs}
        scene.compare({"resources": [replaced], "validate_only": True}, ALTER, 2)


@case(INCREMENTAL, [1])
def configs_of_groups_and_of_client_metrics(scene: Scene) -> None:
    group, metrics = scene.name("group"), scene.name("metrics")
    for kind, name, changes in (
        (
            GROUP,
            group,
            [
                ("consumer.session.timeout.ms", SET, "50000"),
                ("consumer.heartbeat.interval.ms", SET, "6000"),
                ("consumer.session.timeout.ms", SET, "1"),
                ("consumer.heartbeat.interval.ms", SET, "x"),
                ("consumer.heartbeat.interval.ms", APPEND, "1"),
                ("no.such.key", SET, "1"),
                ("consumer.session.timeout.ms", DELETE, None),
                ("consumer.heartbeat.interval.ms", DELETE, None),
            ],
        ),
        (
            CLIENT_METRICS,
            metrics,
            [
                ("interval.ms", SET, "60000"),
                ("interval.ms", SET, "1"),
                ("metrics", SET, "a.b,c"),
                ("metrics", APPEND, "d"),
                ("metrics", SUBTRACT, "c"),
                ("match", SET, "client_id=a.*"),
                ("match", APPEND, "client_software_name=b"),
                ("match", SET, "no_such_key=a"),
                ("match", SET, "client_id=["),
                ("no.such.key", SET, "1"),
                ("interval.ms", DELETE, None),
                ("metrics", DELETE, None),
                ("match", DELETE, None),
            ],
        ),
    ):
        for change in changes:
            scene.compare(changing(kind, name, change, validate_only=True))
            scene.compare(changing(kind, name, change))
            scene.settle()
            scene.compare(describing(kind, name, include_synonyms=True), DESCRIBE, 4)


# Effects of changes.


def change(scene: Scene, name: str, key: str, value: str | None, kind: int = TOPIC) -> None:
    """Set a key, or delete it (None), and wait until the change is effective."""
    operation = DELETE if value is None else SET
    scene.compare(changing(kind, name, (key, operation, value)), INCREMENTAL, 1)
    scene.settle()


@case(PRODUCE, [13])
def the_largest_batch_changes(scene: Scene) -> None:
    topic = scene.topic()
    for value in ("100", "1000", "0", None):
        change(scene, topic, "max.message.bytes", value)
        for size in (1, 200, 2000):
            scene.compare(to(topic, batch(b"a" * size)))
    for value in ("100", None):
        change(scene, ALL_BROKERS, "message.max.bytes", value, BROKER)
        scene.compare(
            describing(TOPIC, topic, "max.message.bytes", include_synonyms=True), DESCRIBE, 4
        )
        scene.compare(to(topic, batch(b"a" * 200)))
    compare_log(scene, topic)


@case(PRODUCE, [13])
def the_timestamp_type_changes(scene: Scene) -> None:
    topic = scene.topic()
    for value in (None, "LogAppendTime", "CreateTime", None):
        change(scene, topic, "message.timestamp.type", value)
        scene.compare(to(topic, keyed(NOW_MS, NOW_MS + 1)))
        compare_log(scene, topic)
    for value in ("LogAppendTime", None):
        change(scene, ALL_BROKERS, "log.message.timestamp.type", value, BROKER)
        scene.compare(to(topic, keyed(NOW_MS, NOW_MS + 1)))
        compare_log(scene, topic)


@case(PRODUCE, [13])
def limits_of_time_change(scene: Scene) -> None:
    topic = scene.topic()
    for key in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"):
        for value in (str(HOUR_MS), str(4 * HOUR_MS), None):
            change(scene, topic, key, value)
            for delta in (-DAY_MS, 0, 6 * HOUR_MS):
                scene.compare(to(topic, keyed(NOW_MS + delta)))
    compare_log(scene, topic)


@case(PRODUCE, [13])
def the_cleanup_policy_changes(scene: Scene) -> None:
    topic = scene.topic()
    for value in ("compact", "compact,delete", "delete", "", None):
        change(scene, topic, "cleanup.policy", value)
        scene.compare(to(topic, batch(b"a")))
    compare_log(scene, topic)


@case(PRODUCE, [13])
def min_insync_replicas_changes(scene: Scene) -> None:
    topic = scene.topic()
    for value in ("2", "1", None):
        change(scene, topic, "min.insync.replicas", value)
        for acks in (-1, 1):
            scene.compare(to(topic, batch(b"a"), acks=acks))
    # With eligible leader replicas the minimum of the cluster can be changed, but not deleted.
    for value in ("2", None, "1"):
        change(scene, ALL_BROKERS, "min.insync.replicas", value, BROKER)
        scene.compare(to(topic, batch(b"a")))
    compare_log(scene, topic)


@case(PRODUCE, [13])
def the_compression_type_changes(scene: Scene) -> None:
    """The broker stores the records of a batch uncompressed as if the client had sent them so."""
    topic = scene.topic()
    for value in (None, "uncompressed", "producer"):
        change(scene, topic, "compression.type", value)
        for code in range(5):
            scene.compare(to(topic, batch(b"a" * 100, b"b" * 100, compression=code)))
    compare_log(scene, topic)


@case(PRODUCE, [13])
def retention_changes(scene: Scene) -> None:
    """Segments are deleted by size, then by time: the records are three hours old."""
    topic = scene.topic(segment_bytes="1048576")
    for index in range(5):
        scene.compare(to(topic, timed((index,), size=400_000)))
    for key, value, start in (
        ("retention.bytes", "500000", 2),
        ("retention.ms", str(HOUR_MS), 5),
    ):
        change(scene, topic, key, value)
        scene.until(lambda side, start=start: offset_at(side, topic, -2) == start)
        compare_log(scene, topic)
    scene.compare(to(topic, keyed(NOW_MS + 2 * HOUR_MS + HOUR_MS)))
    compare_log(scene, topic)


@case(PRODUCE, [13])
def defaults_of_brokers_and_topics(scene: Scene) -> None:
    """The topic's value has precedence over the broker's, and that over the one of all brokers."""
    topic, own = scene.topic(), scene.topic(retention_ms="777")

    def described(name: str) -> None:
        requested = describing(TOPIC, name, "retention.ms", include_synonyms=True)
        scene.compare(requested, DESCRIBE, 4)

    for broker, value in (
        (ALL_BROKERS, "90000000"),
        ("1", "80000000"),
        (ALL_BROKERS, None),
        ("1", None),
    ):
        change(scene, broker, "log.retention.ms", value, BROKER)
        for name in (topic, own):
            described(name)
        requested = describing(BROKER, "1", "log.retention.ms", include_synonyms=True)
        scene.compare(requested, DESCRIBE, 4)
