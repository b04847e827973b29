"""Metadata, DescribeTopicPartitions and DescribeCluster: the cluster as clients see it."""

from __future__ import annotations

from barnabas.protocol.api_table import ApiKey
from differential.case import case
from differential.scene import Scene

METADATA = ApiKey.METADATA
DESCRIBE = ApiKey.DESCRIBE_TOPIC_PARTITIONS
CLUSTER = ApiKey.DESCRIBE_CLUSTER


@case(METADATA)
def some_topics(scene: Scene) -> None:
    first, second = scene.topic(3), scene.topic()
    requested = [{"name": second}, {"name": first}]
    scene.compare({"topics": requested, "allow_auto_topic_creation": False})


@case(METADATA)
def authorized_operations(scene: Scene) -> None:
    topic = scene.topic()
    scene.compare(
        {
            "topics": [{"name": topic}],
            "include_cluster_authorized_operations": True,
            "include_topic_authorized_operations": True,
        }
    )


@case(METADATA, range(1, 14))
def no_topics(scene: Scene) -> None:
    scene.compare({"topics": []})


@case(METADATA, range(4, 14))
def unknown_topics(scene: Scene) -> None:
    names = ("absent", "a/b", "", ".", "..", "a" * 249, "a" * 250, "ä", "a b")
    for name in names:
        scene.compare({"topics": [{"name": name}], "allow_auto_topic_creation": False})
    requested = [{"name": name} for name in names]
    scene.compare({"topics": requested, "allow_auto_topic_creation": False})


@case(METADATA)
def a_topic_named_twice(scene: Scene) -> None:
    topic = scene.topic()
    requested = [{"name": topic}, {"name": topic}]
    scene.compare({"topics": requested, "allow_auto_topic_creation": False})


@case(METADATA, range(10, 14))
def by_id(scene: Scene) -> None:
    topic = scene.topic()
    scene.compare(lambda side: {"topics": [{"topic_id": side.topic_id(topic), "name": None}]})
    scene.compare(lambda side: {"topics": [{"topic_id": side.topic_id(topic), "name": topic}]})
    scene.compare(lambda side: {"topics": [{"topic_id": side.topic_id(topic), "name": "other"}]})
    scene.compare({"topics": [{"topic_id": b"\x07" * 16, "name": None}]})
    scene.compare({"topics": [{"topic_id": bytes(16), "name": None}]})
    scene.compare({"topics": [{"topic_id": b"\x07" * 16, "name": None}, {"name": topic}]})


@case(METADATA)
def a_metadata_request_creates_a_topic(scene: Scene) -> None:
    name = scene.name("made")
    requested = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
    scene.compare(requested)
    scene.await_leaders(name, 1)
    for side in scene.pair.sides():
        from differential.scene import exchange

        found = exchange(side, METADATA, 12, requested).topics[0]
        side.remember(f"id of {name}", found.topic_id)
    scene.compare(requested)


@case(METADATA)
def invalid_names_are_not_created(scene: Scene) -> None:
    for name in ("a/b", "", ".", "a" * 250):
        scene.compare({"topics": [{"name": name}], "allow_auto_topic_creation": True})


@case(METADATA)
def the_internal_topic(scene: Scene) -> None:
    requested = {"topics": [{"name": "__consumer_offsets"}]}
    for side, response in zip(scene.pair.sides(), scene.do(METADATA, 12, requested), strict=True):
        side.remember("id of offsets", response.topics[0].topic_id)
    scene.compare(requested)


@case(DESCRIBE)
def topics_by_name(scene: Scene) -> None:
    first, second = scene.topic(3), scene.topic(2)
    scene.compare({"topics": [{"name": second}, {"name": first}]})
    scene.compare({"topics": [{"name": first}, {"name": "absent"}, {"name": "a/b"}]})
    scene.compare({"topics": [{"name": first}, {"name": first}]})
    scene.compare({"topics": [{"name": ""}]})


@case(DESCRIBE)
def limits_and_cursors(scene: Scene) -> None:
    first, second = scene.topic(3), scene.topic(2)
    requested = [{"name": first}, {"name": second}]
    for limit in (1, 2, 3, 4, 5, 0, -1, 100_000):
        scene.compare({"topics": requested, "response_partition_limit": limit})
    for name, index in (
        (first, 1),
        (first, 3),
        (first, 9),
        (second, 0),
        ("absent", 0),
        (first, -1),
    ):
        cursor = {"topic_name": name, "partition_index": index}
        scene.compare({"topics": requested, "response_partition_limit": 3, "cursor": cursor})


@case(CLUSTER)
def the_cluster(scene: Scene) -> None:
    scene.compare({})
    scene.compare({"include_cluster_authorized_operations": True})
    scene.compare({"include_fenced_brokers": True})


@case(CLUSTER)
def endpoint_types(scene: Scene) -> None:
    for kind in (0, 2, 3, -1):
        scene.compare({"endpoint_type": kind})
