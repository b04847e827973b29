"""Two things wrong at once: which of them is told. Found by mutations of valid requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.api_table import ApiKey
from differential.case import case
from differential.cases.produce import to
from differential.scene import batch

if TYPE_CHECKING:
    from differential.scene import Scene


@case(ApiKey.PRODUCE, [5, 9, 13])
def a_wrong_partition_comes_before_wrong_acks_and_records(scene: Scene) -> None:
    topic = scene.topic()
    for partition in (0, 7, -1):
        for acks in (2, -2, 1):
            for records in (batch(b"a"), b"", b"\0"):
                scene.compare(to(topic, records, partition=partition, acks=acks))


@case(ApiKey.OFFSET_DELETE)
def a_wrong_group_comes_before_no_topics(scene: Scene) -> None:
    topic = scene.topic()
    for group in (scene.name("group"), ""):
        for partitions in ([], [{"partition_index": 0}], [{"partition_index": 9}]):
            named = [{"name": topic, "partitions": partitions}]
            for topics in ([], named):
                scene.compare({"group_id": group, "topics": topics})


@case(ApiKey.ELECT_LEADERS)
def no_partitions_come_before_a_wrong_election(scene: Scene) -> None:
    for kind in (0, 1, 2, -1):
        scene.compare({"election_type": kind, "topic_partitions": [], "timeout_ms": 1000})


@case(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def a_wrong_cursor_for_topics_named_twice(scene: Scene) -> None:
    topic, other = scene.topic(), scene.topic()
    for names in ([topic, topic], [other, topic], [topic, other, topic]):
        for name, partition in (("a b", 0), (topic, -1), ("a b", -1)):
            cursor = {"topic_name": name, "partition_index": partition}
            scene.compare({"topics": [{"name": each} for each in names], "cursor": cursor})
