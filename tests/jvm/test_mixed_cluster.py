"""A cluster of Barnabas and Apache Kafka brokers, with a controller of each kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.cluster_process import ClusterProcess, NodeOptions, NodeProcess
from jvm.kafka_node import KafkaNode
from selection import nightly_unless
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SECONDS = 180.0
OURS, KAFKAS, CONTROLLER = 1, 2, 101
RECORDS = 400
SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    # A slow node keeps its leaderships; no node dies in this test.
    "broker.session.timeout.ms": "60000",
}


@pytest.fixture(
    params=nightly_unless("our controller".__eq__, ["our controller", "Apache Kafka's controller"])
)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClusterProcess]:
    """Broker 1 is Barnabas, broker 2 is Apache Kafka."""
    java = {KAFKAS} if request.param == "our controller" else {KAFKAS, CONTROLLER}

    class EitherNode(NodeProcess):
        """Creates a node of Barnabas or of Apache Kafka."""

        def __new__(cls, options: NodeOptions, settings: Mapping[str, str]) -> NodeProcess:
            kind = KafkaNode if options.node_id in java else NodeProcess
            return kind(options, settings)

    made = ClusterProcess(2, 1, tmp_path, SETTINGS, node_type=EitherNode)
    try:
        # The nodes of Barnabas wait for a controller, which may be a slow Java process.
        yield made.start(SECONDS)
    finally:
        made.close()


def test_brokers_of_both_kinds_replicate_and_coordinate(cluster: ClusterProcess) -> None:
    for node in cluster.brokers:
        # Each broker forwards the request to the controller.
        admin = AdminClient({"bootstrap.servers": node.address})
        name = f"asked-{node.node_id}"
        topic = NewTopic(name, 4, 2, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[name].result(SECONDS)
        produce(cluster, name)
        # Four groups, so that coordinators of both kinds serve some.
        for number in range(4):
            assert len(consume(cluster, name, f"group-{node.node_id}-{number}")) == RECORDS
        eventually(lambda admin=admin, name=name: is_shared(admin, name), f"{name} is not shared")


def is_shared(admin: AdminClient, topic: str) -> bool:
    """Return whether both brokers lead partitions of a topic, and follow each other."""
    found = admin.list_topics(topic, SECONDS)
    partitions = found.topics[topic].partitions.values()
    return (
        set(found.brokers) == {OURS, KAFKAS}
        and {each.leader for each in partitions} == {OURS, KAFKAS}
        and all(sorted(each.isrs) == [OURS, KAFKAS] for each in partitions)
    )


def produce(cluster: ClusterProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    failed: list[object] = []
    for number in range(RECORDS):
        producer.produce(
            topic,
            b"%d" % number,
            partition=number % 4,
            on_delivery=lambda error, _: error and failed.append(error),
        )
    assert producer.flush(SECONDS) == 0
    assert not failed


def consume(cluster: ClusterProcess, topic: str, group: str) -> set[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    values: set[bytes] = set()

    def has_all() -> bool:
        values.update(each.value() for each in consumer.consume(500, 0.5) if not each.error())
        return len(values) >= RECORDS

    eventually(has_all, lambda: f"{group}: {len(values)} records\n{cluster.log()}", SECONDS)
    consumer.commit(asynchronous=False)
    consumer.close()
    return values
