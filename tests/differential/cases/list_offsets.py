"""ListOffsets: by time and by the special times, with epochs, of unknown topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from differential.case import case
from differential.scene import NOW_MS, Scene, batch

if TYPE_CHECKING:
    from differential.request import Values

LIST_OFFSETS = ApiKey.LIST_OFFSETS
SPECIAL = (-1, -2, -3, -4, -5, -6, -7, -100)


def at(topic: str, *timestamps: int, partition: int = 0, **more: Any) -> Values:
    """Return a ListOffsets of one partition at several times."""
    epoch = more.pop("epoch", -1)
    partitions = [
        {"partition_index": partition, "timestamp": each, "current_leader_epoch": epoch}
        for each in timestamps
    ]
    topics = [{"name": topic, "partitions": partitions}]
    return {"replica_id": -1, "topics": topics, "timeout_ms": 1000, **more}


@case(LIST_OFFSETS)
def the_special_times(scene: Scene) -> None:
    topic = scene.topic()
    for timestamp in SPECIAL:
        scene.compare(at(topic, timestamp))
    scene.produce(topic, batch(b"a", b"b", b"c"))
    for timestamp in SPECIAL:
        scene.compare(at(topic, timestamp))


@case(LIST_OFFSETS)
def by_time(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, batch(b"a", b"b"))
    scene.produce(topic, batch(b"c"))
    for timestamp in (0, NOW_MS - 1, NOW_MS, NOW_MS + 1, 1 << 62):
        scene.compare(at(topic, timestamp))


@case(LIST_OFFSETS)
def read_committed(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, batch(b"a", b"b"))
    for timestamp in (-1, -2, -3, 0, NOW_MS):
        scene.compare(at(topic, timestamp, isolation_level=1))
    scene.compare(at(topic, -1, isolation_level=9))


@case(LIST_OFFSETS)
def unknown_topics_and_partitions(scene: Scene) -> None:
    topic = scene.topic()
    scene.compare(at("absent", -1))
    scene.compare(at("", -1))
    scene.compare(at("a/b", -1))
    for partition in (1, -1, 0x7FFFFFFF):
        scene.compare(at(topic, -1, partition=partition))


@case(LIST_OFFSETS)
def epochs(scene: Scene) -> None:
    topic = scene.topic()
    for epoch in (0, 1, 99, -2):
        scene.compare(at(topic, -1, epoch=epoch))


@case(LIST_OFFSETS)
def the_same_partition_twice(scene: Scene) -> None:
    topic = scene.topic()
    scene.compare(at(topic, -1, -2))


@case(LIST_OFFSETS)
def no_topics_or_partitions(scene: Scene) -> None:
    scene.compare({"replica_id": -1, "topics": []})
    scene.compare({"replica_id": -1, "topics": [{"name": "a", "partitions": []}]})


@case(LIST_OFFSETS)
def requests_of_replicas(scene: Scene) -> None:
    topic = scene.topic()
    for replica in (-2, 0, 1, 7):
        scene.compare(at(topic, -1, replica_id=replica))


@case(LIST_OFFSETS)
def many_topics_and_partitions(scene: Scene) -> None:
    first, second = scene.topic(3), scene.topic(2)
    partitions = [{"partition_index": index, "timestamp": -1} for index in (2, 0, 1)]
    topics = [{"name": name, "partitions": partitions} for name in (second, "absent", first)]
    scene.compare({"replica_id": -1, "topics": topics})
