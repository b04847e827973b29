"""The client's admin calls against each kind of broker: what the command line does not show."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.admin.partitions import ElectionType
from barnabas.client.errors import BrokerError, UnknownTopicError
from barnabas.client.facade import Client
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.testing.broker_process import BrokerProcess
from conformance.client_brokers import KafkaProcess, broker

pytestmark = pytest.mark.conformance
__all__ = ["broker"]

RECORDS = 10


@pytest.fixture(scope="module")
def client(broker: BrokerProcess | KafkaProcess) -> Iterator[Client]:
    with Client(broker.bootstrap) as made:
        yield made


@pytest.fixture
def partition(client: Client) -> TopicPartition:
    """A partition with ten records of an idempotent producer."""
    name = f"admin-{uuid.uuid4().hex[:8]}"
    client.create_topic(name, 1)
    producer = client.producer()
    producer.send_batch(name, [(None, b"x", [], None)] * RECORDS, 0)
    producer.close()
    return TopicPartition(name, 0)


def test_producers_of_a_partition(client: Client, partition: TopicPartition) -> None:
    found = client.admin.describe_producers([partition])[partition]
    assert isinstance(found, list)
    (producer,) = found
    assert producer.last_sequence == RECORDS - 1
    assert producer.current_transaction_start_offset == -1


def test_each_partition_has_its_own_result(client: Client, partition: TopicPartition) -> None:
    absent = TopicPartition(f"{partition.topic}-not-there", 0)
    found = client.admin.delete_records({partition: 4, absent: 1})
    assert found[partition] == 4
    assert isinstance(found[absent], UnknownTopicError)
    beyond = client.admin.delete_records({partition: 1_000})[partition]
    assert isinstance(beyond, BrokerError)
    assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_log_directories_tell_sizes(client: Client, partition: TopicPartition) -> None:
    (directories,) = client.admin.describe_log_dirs([1]).values()
    assert isinstance(directories, list)
    (directory,) = directories
    assert directory.error is None
    assert directory.replicas[partition].size > 60
    assert directory.total_bytes > directory.usable_bytes > 0


def test_the_quorum_and_what_a_broker_speaks(client: Client) -> None:
    quorum = client.admin.describe_quorum()
    assert quorum.leader_id == 1
    assert [voter.node_id for voter in quorum.voters] == [1]
    versions = client.admin.describe_versions(1)
    assert versions.apis[0][1] >= 12
    assert versions.finalized_features["metadata.version"] > 20


def test_leaders_that_lead_already_need_no_election(
    client: Client, partition: TopicPartition
) -> None:
    found = client.admin.elect_leaders(ElectionType.PREFERRED, [partition])[partition]
    assert found is not None
    assert found.error_code == ErrorCode.ELECTION_NOT_NEEDED


def test_many_groups_are_asked_at_once(client: Client, partition: TopicPartition) -> None:
    names = [f"{partition.topic}-{number}" for number in range(20)]
    for name in names:
        client.commit_offsets(name, {partition: 3})
    described = client.admin.describe_groups(names)
    assert [getattr(group, "state", group) for group in described.values()] == ["Empty"] * 20
    listed = {group.group_id for group in client.admin.list_groups(["empty"])}
    assert set(names) <= listed
    assert not set(names) & {group.group_id for group in client.admin.list_groups(["Stable"])}
    deleted = client.admin.delete_groups([*names, "not-there"])
    assert all(deleted[name] is True for name in names)
    error = deleted["not-there"]
    assert isinstance(error, BrokerError)
    assert error.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_configs_of_several_resources_in_one_call(client: Client) -> None:
    resources = [
        ConfigResource(ResourceType.BROKER, "1"),
        ConfigResource(ResourceType.BROKER, ""),
        ConfigResource(ResourceType.TOPIC, "not-there"),
    ]
    found = client.admin.describe_configs(resources, synonyms=True, documentation=True)
    entries = found[resources[0]]
    assert isinstance(entries, list)
    entry = next(each for each in entries if each.name == "node.id")
    assert (entry.value, entry.is_read_only, entry.type) == ("1", True, "int")
    assert entry.documentation
    assert isinstance(found[resources[1]], list)
    assert isinstance(found[resources[2]], BrokerError)
