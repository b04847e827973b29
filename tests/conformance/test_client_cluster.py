"""The client with three brokers of each kind: requests reach the responsible brokers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.admin.topics import NewTopic
from barnabas.client.errors import BrokerError, UnknownTopicError
from barnabas.client.facade import Client
from barnabas.client.topic_partition import TopicPartition
from barnabas.testing.cluster_process import ClusterProcess
from conformance.leader_moves import leaders, move_leaders, set_replica_order
from waiting import eventually

pytestmark = pytest.mark.conformance

PARTITIONS = 6
BROKERS = (1, 2, 3)
# Each broker is the preferred leader in one of these orders.
ORDERS = ([1, 2, 3], [2, 3, 1], [3, 1, 2])


@pytest.fixture(scope="module")
def client(three_brokers: ClusterProcess) -> Iterator[Client]:
    """A client whose first bootstrap server does not exist."""
    with Client(f"127.0.0.1:1,{three_brokers.bootstrap}") as made:
        made.create_topic("coordinated", 1, 3)
        made.commit_offsets("coordinated", {TopicPartition("coordinated", 0): 0})
        yield made


@pytest.fixture
def other(three_brokers: ClusterProcess) -> Iterator[Client]:
    """A second client that changes the cluster."""
    with Client(three_brokers.bootstrap) as made:
        yield made


@pytest.fixture
def partitions(client: Client) -> list[TopicPartition]:
    """Partitions with five records each, led by all brokers."""
    name = f"cluster-{uuid.uuid4().hex[:8]}"
    orders = {number: ORDERS[number % 3] for number in range(PARTITIONS)}
    assert client.create_topics([NewTopic(name, assignments=orders)]) == {name: None}
    made = [TopicPartition(name, number) for number in orders]
    # Otherwise a broker that was fenced for a moment would not lead.
    set_replica_order(client, {tp: orders[tp.partition] for tp in made})
    produce(client, made)
    eventually(lambda: replica_ends(client, made) == {5}, lambda: replica_ends(client, made))
    return made


def replica_ends(client: Client, partitions: list[TopicPartition]) -> set[object]:
    """Return the end offsets of the replicas on all brokers, or errors."""
    requests = {node: dict.fromkeys(partitions, "latest") for node in BROKERS}
    ends: set[object] = set()
    for found in client.admin.list_replica_offsets(requests).values():
        if isinstance(found, dict):
            ends.update(getattr(each, "offset", each) for each in found.values())
        else:
            ends.add(found)
    return ends


def produce(client: Client, partitions: list[TopicPartition]) -> None:
    producer = client.producer()
    for tp in partitions:
        producer.send_batch(tp.topic, [(None, b"x", [], None)] * 5, tp.partition)
    producer.close()


def test_requests_are_split_by_broker_and_responses_are_merged(
    client: Client, partitions: list[TopicPartition]
) -> None:
    assert set(leaders(client, partitions).values()) == set(BROKERS)
    ends = client.list_offsets(dict.fromkeys(partitions, "latest"))
    assert {found.offset for found in ends.values()} == {5}
    assert set(client.admin.delete_records(dict.fromkeys(partitions, 2)).values()) == {2}
    producers = client.admin.describe_producers(partitions)
    assert all(isinstance(found, list) and len(found) == 1 for found in producers.values())
    for directories in client.admin.describe_log_dirs([1, 2, 3]).values():
        assert isinstance(directories, list)
        assert set(partitions) <= set(directories[0].replicas)
    for directories in client.admin.describe_log_dirs([1, 2, 3], partitions[:1]).values():
        assert isinstance(directories, list)
        assert set(directories[0].replicas) == set(partitions[:1])
    brokers = [ConfigResource(ResourceType.BROKER, str(node)) for node in (1, 2, 3)]
    for resource, entries in client.admin.describe_configs(brokers).items():
        assert isinstance(entries, list)
        assert next(e.value for e in entries if e.name == "node.id") == resource.name


def test_groups_of_all_coordinators_are_listed(
    client: Client, partitions: list[TopicPartition]
) -> None:
    names = [f"{partitions[0].topic}-{number}" for number in range(9)]
    set_replica_order(
        client, {TopicPartition("__consumer_offsets", n): ORDERS[n] for n in range(3)}
    )
    # Brokers learn the coordinators at different times.
    eventually(lambda: set(client.admin.coordinators(names).values()) == set(BROKERS))
    for name in names:
        client.commit_offsets(name, {partitions[0]: 3})
    assert set(names) <= {group.group_id for group in client.admin.list_groups()}
    described = client.admin.describe_groups(names)
    assert {getattr(group, "state", group) for group in described.values()} == {"Empty"}
    assert set(client.admin.delete_groups(names).values()) == {True}


def test_each_replica_reports_its_own_log_end_offset(
    client: Client, partitions: list[TopicPartition]
) -> None:
    requests = {node: dict.fromkeys(partitions, "latest") for node in BROKERS}
    results = client.admin.list_replica_offsets(requests)
    assert set(results) == set(BROKERS)
    for found in results.values():
        assert isinstance(found, dict)
        assert {tp: getattr(each, "offset", each) for tp, each in found.items()} == dict.fromkeys(
            partitions, 5
        )


def test_topics_are_described_page_by_page_with_their_eligible_leaders(
    client: Client, partitions: list[TopicPartition]
) -> None:
    name = partitions[0].topic
    topic = client.admin.describe_topic_partitions([name])[name]
    assert not isinstance(topic, Exception)
    assert sorted(topic.partitions) == list(range(PARTITIONS))
    assert {state.elr for state in topic.partitions.values()} == {()}
    assert name in client.admin.describe_topic_partitions()
    absent = client.admin.describe_topic_partitions(["not-there"])["not-there"]
    assert isinstance(absent, UnknownTopicError)


def test_moved_leaders_are_found(
    client: Client, other: Client, partitions: list[TopicPartition]
) -> None:
    move_leaders(other, partitions)
    produce(client, partitions)
    move_leaders(other, partitions)
    assert set(client.admin.delete_records(dict.fromkeys(partitions, 3)).values()) == {3}
    move_leaders(other, partitions)
    ends = client.list_offsets(dict.fromkeys(partitions, "latest"))
    assert {found.offset for found in ends.values()} == {10}
    move_leaders(other, partitions)
    read = dict.fromkeys(partitions, 3)
    for records in client.fetch_range(dict.fromkeys(partitions, (3, 10))):
        read[TopicPartition(records.topic, records.partition)] = records.end_offset
    assert set(read.values()) == {10}


def test_moved_coordinators_are_found(
    client: Client, other: Client, partitions: list[TopicPartition]
) -> None:
    names = [f"{partitions[0].topic}-{number}" for number in range(3)]
    for name in names:
        client.commit_offsets(name, {partitions[0]: 3})
    move_coordinators(client, other, names, partitions)
    move_coordinators(client, other, names, partitions)
    found = client.admin.describe_groups(names)
    assert {getattr(group, "state", group) for group in found.values()} == {"Empty"}
    move_coordinators(client, other, names, partitions)
    assert set(client.admin.delete_groups(names).values()) == {True}


def move_coordinators(
    client: Client, other: Client, names: list[str], partitions: list[TopicPartition]
) -> None:
    """Move the coordinator of each group, and wait until it returns the offset of partition 0.

    A new coordinator of Apache Kafka may return an old state until another offset is committed
    through it.
    """
    move_leaders(other, [TopicPartition("__consumer_offsets", number) for number in range(3)])

    def is_shown() -> bool:
        for name in names:
            client.commit_offsets(name, {partitions[1]: 1})
        offsets = [client.committed(name).get(partitions[0]) for name in names]
        return [found is not None and found.offset for found in offsets] == [3, 3, 3]

    eventually(is_shown)


def test_replicas_are_moved_and_moves_are_canceled(
    client: Client, partitions: list[TopicPartition]
) -> None:
    first = partitions[0]
    state = client.describe_topics([first.topic])[first.topic].partitions[0]
    assert client.admin.alter_reassignments({first: state.replicas[:2]}) == {first: None}
    eventually(lambda: not client.admin.list_reassignments([first]))
    error = client.admin.alter_reassignments({first: None}, raise_errors=False)[first]
    assert isinstance(error, BrokerError)
    assert error.error_code.name == "NO_REASSIGNMENT_IN_PROGRESS"
    error = client.admin.alter_reassignments({first: [1, 99]}, raise_errors=False)[first]
    assert isinstance(error, BrokerError)
    assert error.error_code.name == "INVALID_REPLICA_ASSIGNMENT"


def test_calls_succeed_without_a_killed_broker(
    three_brokers: ClusterProcess, client: Client, partitions: list[TopicPartition]
) -> None:
    groups = [f"{partitions[0].topic}-{number}" for number in range(3)]
    for name in groups:
        client.commit_offsets(name, {partitions[0]: 3})
    node = three_brokers.node(client.admin.describe_quorum().leader_id)
    node.kill()
    try:
        produce(client, partitions)
        ends = client.list_offsets(dict.fromkeys(partitions, "latest"))
        assert {found.offset for found in ends.values()} == {10}
        for name in groups:
            client.commit_offsets(name, {partitions[0]: 4})
        assert set(groups) <= {group.group_id for group in client.admin.list_groups()}

        def is_fenced() -> bool:
            described = client.describe_cluster()
            living = {broker.id for broker in described.brokers}
            fenced = {broker.id for broker in described.fenced}
            return living == set(BROKERS) - {node.node_id} and node.node_id in fenced

        # Brokers learn of the failure at different times.
        eventually(is_fenced, client.describe_cluster)
        client.create_topic(f"{partitions[0].topic}-after", 1, 2)
    finally:
        node.start()
    eventually(lambda: len(client.describe_cluster().brokers) == len(BROKERS))
