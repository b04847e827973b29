"""A cluster of three processes with Kafka's server.properties, used by many clients.

With BARNABAS_CONFORMANCE_BOOTSTRAP=kafka, the nodes are those of Apache Kafka.
"""

from __future__ import annotations

import itertools
import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.admin import KafkaAdminClient, NewTopic as PythonTopic

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    PartitionDataRequest,
    TopicDataRequest,
)
from barnabas.protocol.messages.metadata import DescribeClusterRequest
from barnabas.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.transactions import InitProducerIdRequest
from barnabas.testing.cluster_process import CONTROLLER_LISTENER, ClusterProcess, NodeProcess
from conformance.kcat_command import kcat
from conformance.raw_client import RawClient
from waiting import eventually, eventually_equal

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

    Tools = Callable[..., subprocess.CompletedProcess[str]]

SECONDS = 60.0
TIMEOUT_MS = 50_000
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "2",
    "default.replication.factor": "3",
}

_numbers = itertools.count(1)


def node_type() -> type[NodeProcess]:
    if not os.environ.get("BARNABAS_CONFORMANCE_BOOTSTRAP"):
        return NodeProcess
    from jvm.kafka_node import KafkaNode

    return KafkaNode


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """Three nodes that are brokers and controllers; each test leaves all of them running."""
    directory = tmp_path_factory.mktemp("cluster")
    with ClusterProcess(3, 0, directory, SETTINGS, node_type=node_type()) as made:
        yield made


@pytest.fixture(scope="module")
def separate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """Two brokers, and three separate controllers."""
    directory = tmp_path_factory.mktemp("separate")
    with ClusterProcess(2, 3, directory, SETTINGS, node_type=node_type()) as made:
        yield made


def new_name() -> str:
    return f"cluster-{next(_numbers)}"


def creation(name: str, replicas: int = 3) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=name, num_partitions=3, replication_factor=replicas, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=False)


def send(node: NodeProcess, request: Any, version: int) -> Any:
    """Return the response of a node."""
    client = RawClient(node.address)
    try:
        return client.ask(request, version)
    finally:
        client.close()


def metadata(node: NodeProcess) -> Any:
    return AdminClient({"bootstrap.servers": node.address}).list_topics(timeout=SECONDS)


def leader_of(node: NodeProcess) -> int:
    """Return the leader of the metadata quorum according to a broker."""
    topic = TopicDataRequest(
        topic_name="__cluster_metadata", partitions=[PartitionDataRequest(partition_index=0)]
    )
    response = send(node, DescribeQuorumRequest(topics=[topic]), 1)
    leader: int = response.topics[0].partitions[0].leader_id
    return leader


def has_topic(node: NodeProcess, name: str) -> bool:
    return name in metadata(node).topics


def test_a_topic_created_at_any_node_exists_on_all_nodes(cluster: ClusterProcess) -> None:
    for node in cluster.brokers:
        name = new_name()
        assert send(node, creation(name), 7).topics[0].error_code == ErrorCode.NONE
        for other in cluster.brokers:
            eventually(lambda other=other, name=name: has_topic(other, name))
            found = metadata(other)
            assert set(found.brokers) == {1, 2, 3}
            partitions = found.topics[name].partitions.values()
            assert [sorted(each.replicas) for each in partitions] == [[1, 2, 3]] * 3


def test_kcat_lists_the_cluster_at_every_node(cluster: ClusterProcess) -> None:
    name = new_name()
    assert send(cluster.node(1), creation(name), 7).topics[0].error_code == ErrorCode.NONE
    for node in cluster.brokers:
        eventually(lambda node=node: has_topic(node, name))
        listed = json.loads(kcat(node.address, "-L", "-J"))
        assert {each["name"] for each in listed["brokers"]} == set(cluster.bootstrap.split(","))
        assert name in {each["topic"] for each in listed["topics"]}


def test_kafka_python_administers_the_cluster(cluster: ClusterProcess) -> None:
    for node in cluster.brokers:
        name = new_name()
        admin = KafkaAdminClient(bootstrap_servers=node.address)
        admin.create_topics([PythonTopic(name, 1, 3)])
        eventually(lambda admin=admin, name=name: name in admin.list_topics())
        admin.delete_topics([name])
        eventually(lambda admin=admin, name=name: name not in admin.list_topics())
        admin.close()


def test_records_and_offsets_survive_the_death_of_their_node(cluster: ClusterProcess) -> None:
    name = new_name()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    config = {"min.insync.replicas": "2"}
    admin.create_topics([NewTopic(name, 3, 3, config=config)])[name].result(SECONDS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    failed: list[object] = []

    def produce(first: int) -> None:
        for number in range(first, first + 300):
            producer.produce(
                name, b"%d" % number, on_delivery=lambda error, _: error and failed.append(error)
            )
        assert producer.flush(SECONDS) == 0
        assert not failed

    def consume(first: int) -> set[int]:
        """Read at least the values from `first` on, commit them, and return all read values."""
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([name])
        values: set[int] = set()
        ends: dict[int, int] = {}

        def has_read() -> bool:
            for each in consumer.consume(500, 0.5):
                if not each.error():
                    values.add(int(each.value()))
                    ends[each.partition()] = max(each.offset() + 1, ends.get(each.partition(), 0))
            return values >= set(range(first, first + 300))

        def has_committed() -> bool:
            places = [TopicPartition(name, partition, end) for partition, end in ends.items()]
            try:
                consumer.commit(offsets=places, asynchronous=False)
            except KafkaException:
                # A rebalance is in progress; it continues when the member polls.
                consumer.poll(0)
                return False
            return True

        eventually(has_read)
        eventually(has_committed)
        consumer.close()
        return values

    produce(0)
    assert consume(0) == set(range(300))
    cluster.node(2).kill()
    produce(300)
    assert consume(300) == set(range(300, 600))
    cluster.node(2).start()


def test_producer_ids_of_several_brokers_differ(cluster: ClusterProcess) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)

    def new_id(node: NodeProcess) -> int:
        # Kafka returns a retriable error while it fetches its first block.
        response = eventually(lambda: (each := send(node, request, 4)).error_code == 0 and each)
        producer_id: int = response.producer_id
        return producer_id

    assert len({new_id(node) for node in cluster.brokers * 2}) == 6


def test_an_auto_created_topic_has_the_default_replication_factor(cluster: ClusterProcess) -> None:
    name = new_name()
    producer = Producer({"bootstrap.servers": cluster.node(3).address})
    producer.produce(name, b"first")
    assert producer.flush(SECONDS) == 0
    eventually(lambda: has_topic(cluster.node(1), name))
    partitions = metadata(cluster.node(1)).topics[name].partitions
    assert {number: sorted(each.replicas) for number, each in partitions.items()} == {
        0: [1, 2, 3],
        1: [1, 2, 3],
    }


def test_kafkas_tools_describe_the_quorum_at_brokers_and_controllers(
    cluster: ClusterProcess, kafka_tools: Tools
) -> None:
    controllers = ",".join(
        f"{host}:{port}"
        for host, port in (
            node.options.listeners[CONTROLLER_LISTENER] for node in cluster.controllers
        )
    )
    for words in (
        ("--bootstrap-server", cluster.bootstrap),
        ("--bootstrap-controller", controllers),
    ):

        def reported(words: tuple[str, ...] = words) -> list[tuple[int, str]]:
            done = kafka_tools("MetadataQuorumCommand", *words, "describe", "--replication")
            assert done.returncode == 0, done.stderr
            lines = [line.split() for line in done.stdout.splitlines()[1:]]
            return sorted((int(line[0]), line[-1]) for line in lines if line)

        def expected() -> list[tuple[int, str]]:
            leader = leader_of(cluster.node(1))
            return [(each, "Leader" if each == leader else "Follower") for each in (1, 2, 3)]

        # The leader may change between the two calls.
        eventually(
            lambda reported=reported: reported() == expected(),
            lambda reported=reported: (reported(), expected()),
        )


def test_kafkas_tools_create_topics_and_describe_configs_at_the_controllers(
    cluster: ClusterProcess, kafka_tools: Tools
) -> None:
    name = new_name()
    topics = ("TopicCommand", "--bootstrap-server", cluster.bootstrap)
    made = kafka_tools(*topics, "--create", "--topic", name, "--replication-factor", "3")
    assert made.returncode == 0, made.stderr
    described = (*topics, "--describe", "--topic", name)
    eventually(lambda: "ReplicationFactor: 3" in kafka_tools(*described).stdout)
    host, port = cluster.node(2).options.listeners[CONTROLLER_LISTENER]
    words = ("--bootstrap-controller", f"{host}:{port}", "--entity-type", "brokers")
    configs = ("kafka.admin.ConfigCommand", *words, "--entity-name", "1")
    altered = kafka_tools(*configs, "--alter", "--add-config", "log.retention.ms=123456789")
    assert altered.returncode == 0, altered.stderr
    own = ("--bootstrap-server", cluster.node(1).address, *words[2:], "--entity-name", "1")
    shown = ("kafka.admin.ConfigCommand", *own, "--describe")
    eventually(lambda: "log.retention.ms=123456789" in kafka_tools(*shown).stdout)


def test_controllers_describe_their_endpoints(cluster: ClusterProcess) -> None:
    host, port = cluster.node(3).options.listeners[CONTROLLER_LISTENER]
    client = RawClient(f"{host}:{port}")
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2)

    def all_known() -> bool:
        response: Any = client.ask(request, 1)
        assert response.error_code == ErrorCode.NONE
        found = {each.broker_id: (each.host, each.port) for each in response.brokers}
        return found == {
            node.node_id: node.options.listeners[CONTROLLER_LISTENER]
            for node in cluster.nodes.values()
        }

    eventually(all_known)
    client.close()


def test_requests_succeed_after_the_active_controller_dies(cluster: ClusterProcess) -> None:
    dead = cluster.node(leader_of(cluster.node(1)))
    others = [node for node in cluster.brokers if node is not dead]
    dead.kill()
    for node in others:
        response = send(node, creation(new_name(), 2), 7)
        assert response.topics[0].error_code == ErrorCode.NONE, response
    eventually(lambda: set(metadata(others[0]).brokers) == {node.node_id for node in others})
    eventually(lambda: leader_of(others[0]) in {node.node_id for node in others})
    dead.start()
    for node in cluster.brokers:
        eventually_equal(lambda node=node: set(metadata(node).brokers), {1, 2, 3})


def test_nodes_are_restarted_in_turn(cluster: ClusterProcess) -> None:
    names = []
    for node in cluster.brokers:
        # Java ends with the signal's number.
        assert node.stop() in (0, 143), node.log()
        other = next(each for each in cluster.brokers if each is not node)
        names.append(new_name())
        assert send(other, creation(names[-1], 2), 7).topics[0].error_code == ErrorCode.NONE
        node.start()
        eventually(lambda node=node: set(metadata(node).brokers) == {1, 2, 3})
    for node in cluster.brokers:
        eventually(lambda node=node: set(names) <= set(metadata(node).topics))


def test_brokers_and_controllers_are_separate_processes(separate: ClusterProcess) -> None:
    name = new_name()
    first, second = separate.brokers
    assert send(first, creation(name, 2), 7).topics[0].error_code == ErrorCode.NONE
    eventually(lambda: has_topic(second, name))
    dead = separate.node(leader_of(first))
    assert dead in separate.controllers
    dead.kill()
    assert send(second, creation(new_name(), 2), 7).topics[0].error_code == ErrorCode.NONE
    second.kill()
    eventually(lambda: set(metadata(first).brokers) == {1})
    second.start()
    dead.start()
    eventually(lambda: set(metadata(first).brokers) == {1, 2})
