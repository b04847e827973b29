"""ApiVersions, DescribeQuorum, InitProducerId, OffsetForLeaderEpoch, DescribeLogDirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from differential.case import case
from differential.scene import Scene, batch

if TYPE_CHECKING:
    from differential.request import Values

VERSIONS, QUORUM = ApiKey.API_VERSIONS, ApiKey.DESCRIBE_QUORUM
INIT, EPOCHS = ApiKey.INIT_PRODUCER_ID, ApiKey.OFFSET_FOR_LEADER_EPOCH
LOG_DIRS, REPLICA_DIRS = ApiKey.DESCRIBE_LOG_DIRS, ApiKey.ALTER_REPLICA_LOG_DIRS


@case(VERSIONS, range(3, 6))
def invalid_software_names(scene: Scene) -> None:
    for name, version in (
        ("", ""),
        ("-a", "1"),
        ("a", "1-"),
        ("a b", "1"),
        ("a", ""),
        ("a" * 300, "1"),
        ("a\n", "1"),
        ("ä", "1"),
    ):
        scene.compare({"client_software_name": name, "client_software_version": version})


@case(VERSIONS, range(5, 6))
def another_cluster_or_node(scene: Scene) -> None:
    software = {"client_software_name": "a", "client_software_version": "1"}
    for cluster, node in (("other", 1), (None, 1), ("other", -1), ("", 1)):
        scene.compare({**software, "cluster_id": cluster, "node_id": node})


@case(QUORUM)
def the_metadata_quorum(scene: Scene) -> None:
    def of(name: str, *indexes: int) -> Values:
        partitions = [{"partition_index": index} for index in indexes]
        return {"topics": [{"topic_name": name, "partitions": partitions}]}

    scene.compare(of("__cluster_metadata", 0))
    scene.compare(of("__cluster_metadata", 1))
    scene.compare(of("__cluster_metadata"))
    scene.compare(of("__cluster_metadata", 0, 0))
    scene.compare(of("other", 0))
    scene.compare({"topics": []})


@case(INIT)
def a_producer_id(scene: Scene) -> None:
    scene.compare({"transactional_id": None})
    scene.compare({"transactional_id": None, "transaction_timeout_ms": -1})
    scene.compare({"transactional_id": None, "transaction_timeout_ms": 1 << 30})


@case(INIT, range(3, 6))
def a_producer_id_that_continues(scene: Scene) -> None:
    for number, epoch in ((0, 0), (5, -1), (-1, 5), (-2, 0), (0, -2), (1 << 40, 3)):
        scene.compare({"transactional_id": None, "producer_id": number, "producer_epoch": epoch})


@case(INIT)
def an_empty_transactional_id(scene: Scene) -> None:
    scene.compare({"transactional_id": "", "transaction_timeout_ms": 1000})


@case(EPOCHS)
def end_offsets_of_epochs(scene: Scene) -> None:
    topic = scene.topic()

    def of(epoch: int, current: int = -1, partition: int = 0, **more: Any) -> Values:
        requested = {"partition": partition, "leader_epoch": epoch, "current_leader_epoch": current}
        topics = [{"topic": more.pop("topic", topic), "partitions": [requested]}]
        return {"topics": topics, "replica_id": -1, **more}

    for epoch in (0, 1, -1, 99, -5):
        scene.compare(of(epoch))
    scene.produce(topic, batch(b"a", b"b"))
    for epoch in (0, 1, -1, 99, -5):
        for current in (-1, 0, 1):
            scene.compare(of(epoch, current))
    scene.compare(of(0, partition=5))
    scene.compare(of(0, partition=-1))
    for name in ("absent", "", "a/b"):
        scene.compare(of(0, topic=name))
    for replica in (-2, 1, 7):
        scene.compare(of(0, replica_id=replica))
    scene.compare({"topics": []})
    scene.compare({"topics": [{"topic": topic, "partitions": []}]})


@case(LOG_DIRS)
def log_directories(scene: Scene) -> None:
    topic = scene.topic(2)
    scene.produce(topic, batch(b"a"))
    scene.compare({"topics": [{"topic": topic, "partitions": [1, 0]}]})
    scene.compare({"topics": [{"topic": topic, "partitions": [9]}]})
    scene.compare({"topics": [{"topic": "absent", "partitions": [0]}]})
    scene.compare({"topics": []})


@case(REPLICA_DIRS)
def directories_that_replicas_cannot_move_to(scene: Scene) -> None:
    topic = scene.topic()

    def to(path: str, name: str, *partitions: int) -> Values:
        return {"dirs": [{"path": path, "topics": [{"name": name, "partitions": partitions}]}]}

    scene.compare(to("/no/such/directory", topic, 0))
    scene.compare(to("relative", topic, 0))
    scene.compare(to("", topic, 0))
    scene.compare(to("/no/such/directory", topic, 9))
    scene.compare(to("/no/such/directory", "absent", 0))
    scene.compare({"dirs": []})
