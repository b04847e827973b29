"""CreateTopics, CreatePartitions, DeleteTopics, DeleteRecords, and other requests of admins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from differential.case import case
from differential.scene import Scene, batch
from differential.side import Side

if TYPE_CHECKING:
    from differential.request import Values

CREATE, DELETE = ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS
GROW, DELETE_RECORDS = ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_RECORDS


def new(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> dict[str, Any]:
    """Return one topic of a CreateTopics."""
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas, **more}


def creating(*topics: Values, **more: Any) -> Values:
    return {"topics": topics, "timeout_ms": 10_000, **more}


def created(scene: Scene, name: str, request: Values) -> None:
    """Create a topic, and compare the responses without the generated id."""
    scene.compare({**request, "validate_only": True})
    scene.compare(request)
    found = scene.do(ApiKey.METADATA, 12, {"topics": [{"name": name}]})
    scene.remember(f"id of {name}", *(response.topics[0].topic_id for response in found))


@case(CREATE)
def a_topic(scene: Scene) -> None:
    name = scene.name()
    created(scene, name, creating(new(name, 3)))
    scene.compare(creating(new(name, 3)))
    scene.compare(creating(new(name, 3), validate_only=True))


@case(CREATE, range(4, 8))
def a_topic_of_the_broker_s_defaults(scene: Scene) -> None:
    name = scene.name()
    created(scene, name, creating(new(name, -1, -1)))


@case(CREATE)
def a_topic_with_configs(scene: Scene) -> None:
    name = scene.name()
    configs = [
        {"name": "retention.ms", "value": "12345"},
        {"name": "compression.type", "value": "zstd"},
    ]
    created(scene, name, creating(new(name, configs=configs)))


@case(CREATE)
def invalid_configs(scene: Scene) -> None:
    for key, value in (
        ("no.such.key", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("retention.ms", None),
        ("retention.ms", ""),
        ("segment.bytes", "1"),
        ("cleanup.policy", "burn"),
        ("cleanup.policy", ""),
        ("min.insync.replicas", "0"),
        ("compression.type", "rar"),
        ("message.timestamp.type", "Whenever"),
        ("", "1"),
        ("log.retention.ms", "1"),
        ("message.format.version", "3.0"),
        ("message.downconversion.enable", "true"),
        ("follower.replication.throttled.replicas", "1"),
        ("follower.replication.throttled.replicas", "0:1"),
    ):
        configs = [{"name": key, "value": value}]
        topic = new(scene.name(), configs=configs)
        scene.compare(creating(topic, validate_only=True))


@case(CREATE)
def one_key_twice(scene: Scene) -> None:
    configs = [{"name": "retention.ms", "value": value} for value in ("1000", "2000")]
    scene.compare(creating(new(scene.name(), configs=configs), validate_only=True))


@case(CREATE)
def invalid_names(scene: Scene) -> None:
    for name in ("", ".", "..", "a/b", "a b", "ä", "a" * 250):
        scene.compare(creating(new(name), validate_only=True))


@case(CREATE)
def a_name_that_collides(scene: Scene) -> None:
    name = scene.topic()
    scene.compare(creating(new(name.replace("-", "."), 1)))
    underlined = name.replace("-", "_")
    scene.do(CREATE, 7, creating(new(underlined)))
    scene.compare(creating(new(underlined.replace("_", "."))))


@case(CREATE)
def invalid_counts(scene: Scene) -> None:
    for partitions, replicas in (
        (0, 1),
        (-2, 1),
        (1, 0),
        (1, 2),
        (1, -2),
        (20_000, 1),
        (1, 32767),
    ):
        topic = new(scene.name(), partitions, replicas)
        scene.compare(creating(topic, validate_only=True))


@case(CREATE)
def assignments(scene: Scene) -> None:
    for count, lists in (
        (-1, [(0, [1]), (1, [1])]),
        (2, [(0, [1]), (1, [1])]),
        (-1, [(0, [9])]),
        (-1, [(0, [1, 1])]),
        (-1, [(0, [])]),
        (-1, [(1, [1])]),
        (-1, [(0, [1]), (0, [1])]),
        (-1, [(0, [1]), (1, [1, 2])]),
        (-1, [(-1, [1])]),
        (-1, [(0, [-1])]),
    ):
        given = [{"partition_index": index, "broker_ids": ids} for index, ids in lists]
        topic = new(scene.name(), count, count, assignments=given)
        scene.compare(creating(topic, validate_only=True))


@case(CREATE)
def several_topics_and_one_twice(scene: Scene) -> None:
    twice, good = scene.name(), scene.name()
    topics = (new(twice), new(good), new("a/b"), new(twice))
    scene.compare(creating(*topics, validate_only=True))
    scene.compare(creating(validate_only=True))


@case(CREATE)
def the_internal_topic(scene: Scene) -> None:
    scene.compare(creating(new("__consumer_offsets")))
    scene.compare(creating(new("__cluster_metadata"), validate_only=True))


@case(CREATE)
def timeouts_of_0_and_below(scene: Scene) -> None:
    for timeout_ms in (0, -1):
        name = scene.name()
        scene.compare({"topics": [new(name)], "timeout_ms": timeout_ms, "validate_only": True})


def growing(name: str, count: int, assignments: Any = None, **more: Any) -> Values:
    topic = {"name": name, "count": count, "assignments": assignments}
    return {"topics": [topic], "timeout_ms": 10_000, **more}


@case(GROW)
def more_partitions(scene: Scene) -> None:
    topic = scene.topic()
    scene.compare(growing(topic, 3, validate_only=True))
    scene.compare(growing(topic, 3))
    scene.await_leaders(topic, 3)
    requested = {"topics": [{"name": topic}]}
    scene.compare(requested, ApiKey.METADATA, 12)


@case(GROW)
def counts_that_do_not_grow(scene: Scene) -> None:
    topic = scene.topic(2)
    for count in (2, 1, 0, -1, 50_000):
        scene.compare(growing(topic, count, validate_only=True))


@case(GROW)
def topics_that_cannot_grow(scene: Scene) -> None:
    for name in ("absent", "", "a/b"):
        scene.compare(growing(name, 3))
    topic = scene.topic()
    two = {"name": topic, "count": 3, "assignments": None}
    scene.compare({"topics": [two, two], "timeout_ms": 1000})
    scene.compare({"topics": [], "timeout_ms": 1000})


@case(GROW)
def assignments_of_new_partitions(scene: Scene) -> None:
    topic = scene.topic()
    for lists in ([[1]], [[1], [1]], [[9]], [[]], [[1, 1]], [[1, 9]], []):
        given = [{"broker_ids": ids} for ids in lists]
        scene.compare(growing(topic, 2, given, validate_only=True))


def deleting(*names: str, timeout_ms: int = 10_000) -> Values:
    return {
        "topics": [{"name": name, "topic_id": bytes(16)} for name in names],
        "topic_names": names,
        "timeout_ms": timeout_ms,
    }


@case(DELETE)
def topics_are_deleted(scene: Scene) -> None:
    first, second = scene.topic(), scene.topic()
    scene.compare(deleting(first, "absent", second))
    scene.compare(deleting(first))


@case(DELETE)
def topics_that_cannot_be_deleted(scene: Scene) -> None:
    for name in ("absent", "", "a/b"):
        scene.compare(deleting(name))
    topic = scene.topic()
    scene.compare(deleting(topic, topic))
    scene.compare(deleting())


@case(DELETE, range(6, 7))
def topics_by_id(scene: Scene) -> None:
    topic, other = scene.topic(), scene.topic()

    def one(**values: Any) -> Values:
        return {"topics": [values], "timeout_ms": 10_000}

    scene.compare(one(name=None, topic_id=b"\x07" * 16))
    scene.compare(one(name=None, topic_id=bytes(16)))
    scene.compare(lambda side: one(name=topic, topic_id=side.topic_id(topic)))
    scene.compare(
        lambda side: {
            "topics": [
                {"name": None, "topic_id": side.topic_id(other)},
                {"name": other, "topic_id": bytes(16)},
            ],
            "timeout_ms": 10_000,
        }
    )
    scene.compare(lambda side: one(name=None, topic_id=side.topic_id(topic)))


def cutting(topic: str, offset: int, partition: int = 0, timeout_ms: int = 5000) -> Values:
    partitions = [{"partition_index": partition, "offset": offset}]
    topics = [{"name": topic, "partitions": partitions}]
    return {"topics": topics, "timeout_ms": timeout_ms}


@case(DELETE_RECORDS)
def records_are_deleted(scene: Scene) -> None:
    topic = scene.topic()
    for _ in range(4):
        scene.produce(topic, batch(b"a"))
    for offset in (1, 0, 5, -2, 99, 2, -1, -1):
        scene.compare(cutting(topic, offset))
    requested = [{"partition_index": 0, "timestamp": stamp} for stamp in (-2, -1)]
    scene.compare(
        {"replica_id": -1, "topics": [{"name": topic, "partitions": requested}]},
        ApiKey.LIST_OFFSETS,
        5,
    )


@case(DELETE_RECORDS)
def records_that_cannot_be_deleted(scene: Scene) -> None:
    topic = scene.topic()
    scene.compare(cutting("absent", 0))
    scene.compare(cutting("", 0))
    scene.compare(cutting("a/b", 0))
    scene.compare(cutting(topic, 0, 7))
    scene.compare(cutting(topic, 0, -1))
    scene.compare(cutting("__consumer_offsets", 0))
    scene.compare({"topics": [], "timeout_ms": 1000})
    scene.compare({"topics": [{"name": topic, "partitions": []}], "timeout_ms": 1000})


@case(DELETE_RECORDS)
def records_deleted_without_a_timeout(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, batch(b"a", b"b"))
    scene.compare(cutting(topic, 1, timeout_ms=0))
    scene.compare(cutting(topic, 2, timeout_ms=-1))


@case(DELETE_RECORDS)
def a_topic_that_is_only_compacted(scene: Scene) -> None:
    topic = scene.topic(cleanup_policy="compact")
    scene.compare(cutting(topic, 0))


@case(ApiKey.DESCRIBE_PRODUCERS)
def producers_of_a_partition(scene: Scene) -> None:
    topic = scene.topic(2)
    scene.producer()

    def values(side: Side) -> Values:
        number = side.number("producer")
        records = batch(b"a", b"b", producer_id=number, producer_epoch=0, base_sequence=0)
        data = [{"index": 0, "records": records}]
        named = {"name": topic, "partition_data": data}
        return {"acks": -1, "timeout_ms": 1000, "topic_data": [named]}

    scene.do(ApiKey.PRODUCE, 9, values)
    for indexes in ([0], [1], [0, 1], [5], [-1], []):
        scene.compare({"topics": [{"name": topic, "partition_indexes": indexes}]})
    for name in ("absent", "", "a/b"):
        scene.compare({"topics": [{"name": name, "partition_indexes": [0]}]})
    scene.compare({"topics": []})


@case(ApiKey.ELECT_LEADERS)
def elections(scene: Scene) -> None:
    topic = scene.topic(2)

    def of(name: str, *partitions: int, kind: int = 0) -> Values:
        requested = [{"topic": name, "partitions": partitions}]
        return {"election_type": kind, "topic_partitions": requested, "timeout_ms": 5000}

    scene.compare(of(topic, 0, 1))
    scene.compare(of(topic, 0, kind=1))
    scene.compare(of(topic, 7))
    scene.compare(of("absent", 0))
    scene.compare(of(topic))
    scene.compare(of(topic, 0, 0))
    for kind in (2, -1):
        scene.compare(of(topic, 0, kind=kind))
    scene.compare({"topic_partitions": [], "timeout_ms": 1000})


@case(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
def reassignments(scene: Scene) -> None:
    topic = scene.topic(2)

    def to(name: str, partition: int, replicas: Any, **more: Any) -> Values:
        partitions = [{"partition_index": partition, "replicas": replicas}]
        topics = [{"name": name, "partitions": partitions}]
        return {"timeout_ms": 5000, "topics": topics, **more}

    for replicas in ([1], None, [], [9], [1, 1], [1, 9], [-1]):
        scene.compare(to(topic, 0, replicas))
        scene.compare(to(topic, 0, replicas, allow_replication_factor_change=False))
    scene.compare(to(topic, 9, [1]))
    scene.compare(to("absent", 0, [1]))
    scene.compare(to("", 0, [1]))
    scene.compare({"timeout_ms": 5000, "topics": []})


@case(ApiKey.LIST_PARTITION_REASSIGNMENTS)
def listed_reassignments(scene: Scene) -> None:
    topic = scene.topic()
    scene.compare({"topics": None})
    scene.compare({"topics": []})
    scene.compare({"topics": [{"name": topic, "partition_indexes": [0, 7]}]})
    scene.compare({"topics": [{"name": "absent", "partition_indexes": [0]}]})
