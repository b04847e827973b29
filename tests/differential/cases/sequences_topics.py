"""The lifecycle of a topic: created, deleted, and created again with the same name.

At each stage all requests that name a topic are compared, by name, by its id, and by the id of the
deleted topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from differential.case import case
from differential.cases.configs import TOPIC, describing
from differential.cases.list_offsets import at
from differential.cases.offsets import commit, fetched
from differential.cases.produce import sequenced
from differential.cases.topics import creating, cutting, growing, new
from differential.scene import Scene, batch, exchange, produce

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.request import Values
    from differential.side import Side

CREATE, DELETE = ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS
PRODUCE, FETCH = ApiKey.PRODUCE, ApiKey.FETCH
METADATA, COMMIT = ApiKey.METADATA, ApiKey.OFFSET_COMMIT
OLD = "the deleted topic"


class Life:
    """A topic, and a group that reads it."""

    def __init__(self, scene: Scene, partitions: int = 2) -> None:
        self.scene = scene
        self.topic = scene.topic(partitions, retention_ms="86400000")
        self.group = scene.name("group")
        scene.remember(OLD, *(side.topic_id(self.topic) for side in scene.pair.sides()))
        scene.producer()

    def delete(self, **more: Any) -> None:
        """Delete the topic by name, and wait until it is gone."""
        self.scene.compare({"topic_names": [self.topic], "timeout_ms": 5000, **more}, DELETE, 5)
        self.scene.settle()

    def recreate(self, partitions: int = 1, **more: Any) -> None:
        """Create a topic with the same name, which from now on refers to the new id."""
        requested = creating(new(self.topic, partitions, **more))
        made = self.scene.do(CREATE, 7, requested)
        self.scene.remember(f"id of {self.topic}", *(each.topics[0].topic_id for each in made))
        self.scene.await_leaders(self.topic, partitions)

    def compare_all(self) -> None:
        """Compare all requests about the topic: by name, by id, and by its former id."""
        scene, topic = self.scene, self.topic
        for name in (OLD, f"id of {topic}"):
            for partition in (0, 1):
                scene.compare(self.producing(name, partition), PRODUCE, 13)
                scene.compare(self.fetching(name, partition), FETCH, 18)
            scene.compare(
                lambda side, name=name: {"topics": [{"name": None, "topic_id": side[name]}]},
                METADATA,
                13,
            )
        for partition in (0, 1):
            scene.compare(produce(topic, batch(b"by name"), partition), PRODUCE, 9)
            scene.compare(self.fetching("", partition), FETCH, 12)
            for timestamp in (-1, -2, -3):
                scene.compare(at(topic, timestamp, partition=partition), ApiKey.LIST_OFFSETS, 8)
        requested = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        scene.compare(requested, METADATA, 12)
        scene.compare({"topics": [{"name": topic}]}, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0)
        scene.compare(describing(TOPIC, topic, "retention.ms"), ApiKey.DESCRIBE_CONFIGS, 4)
        named = {"topics": [{"name": topic, "partition_indexes": [0, 1]}]}
        scene.compare(named, ApiKey.DESCRIBE_PRODUCERS, 0)
        epochs = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]
        requested = {"replica_id": -1, "topics": [{"topic": topic, "partitions": epochs}]}
        scene.compare(requested, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4)
        scene.compare(fetched(self.group, topic, 0, 1), ApiKey.OFFSET_FETCH, 9)

    def producing(self, name: str, partition: int) -> Callable[[Side], Values]:
        return lambda side: produce("", batch(b"by id"), partition, topic_id=side[name])

    def fetching(self, name: str, partition: int) -> Callable[[Side], Values]:
        requested = {"partition": partition, "fetch_offset": 1, "partition_max_bytes": 1 << 20}

        def values(side: Side) -> Values:
            named = {"topic": self.topic, "topic_id": side[name] if name else bytes(16)}
            return {"max_wait_ms": 0, "topics": [{**named, "partitions": [requested]}]}

        return values


@case(CREATE, [7])
def lifecycle_of_a_topic(scene: Scene) -> None:
    life = Life(scene)
    scene.compare(sequenced(life.topic, 0, 0), PRODUCE, 9)
    scene.compare(commit(life.group, life.topic), COMMIT, 9)
    life.compare_all()
    life.delete()
    scene.until(lambda side: has_no_offsets(side, life))
    life.compare_all()
    life.delete()
    life.recreate(configs=[{"name": "retention.ms", "value": "172800000"}])
    # No records, configs, offsets or producers of the deleted topic remain.
    life.compare_all()
    scene.compare(sequenced(life.topic, 2, 0), PRODUCE, 9)
    scene.compare(sequenced(life.topic, 4, 0), PRODUCE, 9)
    life.compare_all()


def has_no_offsets(side: Side, life: Life) -> bool:
    """Return whether the committed offsets of the group were deleted with the topic."""
    response = exchange(side, ApiKey.OFFSET_FETCH, 8, {"groups": [{"group_id": life.group}]})
    return not response.groups[0].topics


@case(DELETE, [6])
def a_stale_id_deletes_nothing(scene: Scene) -> None:
    life = Life(scene, 1)
    life.delete()
    life.recreate()

    def delete_the_old_topic(side: Side) -> Values:
        return {"topics": [{"name": None, "topic_id": side[OLD]}], "timeout_ms": 5000}

    for _ in range(2):
        scene.compare(delete_the_old_topic)
        life.compare_all()

    def delete_the_new_topic(side: Side) -> Values:
        named = {"name": None, "topic_id": side.topic_id(life.topic)}
        return {"topics": [named], "timeout_ms": 5000}

    scene.compare(delete_the_new_topic)
    scene.settle()
    life.compare_all()
    scene.compare(delete_the_new_topic)


@case(CREATE, [7])
def changes_of_a_deleted_topic(scene: Scene) -> None:
    life = Life(scene, 1)
    for recreate in (False, True):
        life.delete()
        scene.compare(growing(life.topic, 3), ApiKey.CREATE_PARTITIONS, 3)
        scene.compare(cutting(life.topic, 0), ApiKey.DELETE_RECORDS, 2)
        partitions = [{"topic": life.topic, "partitions": [0]}]
        requested = {"election_type": 0, "topic_partitions": partitions, "timeout_ms": 5000}
        scene.compare(requested, ApiKey.ELECT_LEADERS, 2)
        replicas = [{"partition_index": 0, "replicas": [1]}]
        moved = {"topics": [{"name": life.topic, "partitions": replicas}], "timeout_ms": 5000}
        scene.compare(moved, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0)
        config = [{"name": "retention.ms", "config_operation": 0, "value": "5"}]
        changed = [{"resource_type": TOPIC, "resource_name": life.topic, "configs": config}]
        scene.compare({"resources": changed}, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)
        scene.compare(commit(life.group, life.topic), COMMIT, 10)
        scene.compare(commit(life.group, life.topic), COMMIT, 9)
        if not recreate:
            life.recreate(3)
            life.compare_all()


@case(CREATE, [7])
def a_topic_grows_while_it_is_used(scene: Scene) -> None:
    life = Life(scene, 1)
    life.compare_all()
    scene.compare(growing(life.topic, 2), ApiKey.CREATE_PARTITIONS, 3)
    scene.await_leaders(life.topic, 2)
    life.compare_all()


@case(CREATE, [7])
def names_that_collide_until_a_deletion(scene: Scene) -> None:
    """Names that differ only by dots and underscores collide until the other topic is deleted."""
    life = Life(scene, 1)
    other = life.topic.replace("-", ".")
    collides = life.topic.replace("-", "_")
    scene.compare(creating(new(other)))
    scene.compare(creating(new(collides)))
    scene.compare({"topic_names": [other], "timeout_ms": 5000}, DELETE, 5)
    scene.settle()
    scene.compare(creating(new(collides)))
    scene.compare(creating(new(other)))
    scene.compare(creating(new(life.topic)))
    life.delete()
    scene.compare(creating(new(life.topic), validate_only=True))
