"""Admin calls of the client against each kind of broker, beyond those of the command line."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer

import barnabas
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.admin.group_descriptions import GroupDescription, GroupMember
from barnabas.client.admin.groups import MemberToRemove
from barnabas.client.admin.partitions import ElectionType
from barnabas.client.admin.topics import NewPartitions, NewTopic
from barnabas.client.errors import (
    AdminResultsError,
    BrokerError,
    UnknownTopicError,
    UnsendableRequestError,
)
from barnabas.client.facade import Client
from barnabas.client.fetch.offset_lookups import ListedOffset
from barnabas.client.group.group_offsets import CommittedOffset
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.testing.broker_process import BrokerProcess
from conformance.client_brokers import KafkaProcess, broker
from waiting import PATIENCE_S, PAUSE_S, eventually, eventually_equal

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


def test_producers_of_a_partition_are_described(client: Client, partition: TopicPartition) -> None:
    found = client.admin.describe_producers([partition])[partition]
    assert isinstance(found, list)
    (producer,) = found
    assert producer.last_sequence == RECORDS - 1
    assert producer.current_transaction_start_offset == -1


def test_invalid_arguments_are_reported_at_once(client: Client) -> None:
    topics: Any = ["a-name-and-no-new-topic"]
    with pytest.raises(UnsendableRequestError, match="CREATE_TOPICS cannot be sent") as caught:
        client.admin.create_topics(topics)
    assert isinstance(caught.value, TypeError)
    assert client.admin.describe_cluster().brokers


def test_each_partition_has_its_own_result(client: Client, partition: TopicPartition) -> None:
    absent = TopicPartition(f"{partition.topic}-not-there", 0)
    found = client.admin.delete_records({partition: 4, absent: 1}, raise_errors=False)
    assert found[partition] == 4
    assert isinstance(found[absent], UnknownTopicError)
    beyond = client.admin.delete_records({partition: 1_000}, raise_errors=False)[partition]
    assert isinstance(beyond, BrokerError)
    assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_partitions_may_be_plain_tuples(client: Client, partition: TopicPartition) -> None:
    plain = tuple(partition)
    admin = client.admin
    assert admin.delete_records({plain: 2}) == {partition: 2}
    listed = admin.list_offsets({plain: "earliest"})[partition]
    assert isinstance(listed, ListedOffset)
    assert listed.offset == 2
    assert len(admin.describe_producers([plain])[partition]) == 1
    assert list(admin.elect_leaders(ElectionType.PREFERRED, [plain])) == [partition]
    assert admin.list_reassignments([plain]) == {}
    assert list(admin.alter_reassignments({plain: None}, raise_errors=False)) == [partition]
    (node,) = admin.describe_cluster().brokers
    (found,) = admin.describe_replica_log_dirs([(node.id, plain)])
    assert found == (node.id, partition)
    group = f"g-{partition.topic}"
    assert admin.alter_group_offsets(group, {plain: 5}) == {partition: None}
    assert admin.delete_offsets(group, [plain]) == {partition: None}
    wrong: Any = [partition.topic]
    with pytest.raises(TypeError, match="is not a partition"):
        admin.describe_producers(wrong)


def test_log_directories_are_described_with_sizes(
    client: Client, partition: TopicPartition
) -> None:
    (directories,) = client.admin.describe_log_dirs([1]).values()
    assert isinstance(directories, list)
    (directory,) = directories
    assert directory.error is None
    assert directory.replicas[partition].size > 60
    assert directory.total_bytes > directory.usable_bytes > 0


def test_the_quorum_and_the_api_versions_are_described(client: Client) -> None:
    quorum = client.admin.describe_quorum()
    assert quorum.leader_id == 1
    assert [voter.node_id for voter in quorum.voters] == [1]
    versions = client.admin.describe_versions(1)
    assert versions.apis[0][1] >= 12
    assert versions.finalized_features["metadata.version"] > 20


def test_preferred_leaders_need_no_election(client: Client, partition: TopicPartition) -> None:
    found = client.admin.elect_leaders(ElectionType.PREFERRED, [partition])[partition]
    assert found is not None
    assert found.error_code == ErrorCode.ELECTION_NOT_NEEDED


def test_many_groups_are_described_in_one_call(client: Client, partition: TopicPartition) -> None:
    names = [f"{partition.topic}-{number}" for number in range(20)]
    for name in names:
        client.commit_offsets(name, {partition: 3})
    described = client.admin.describe_groups(names)
    assert [getattr(group, "state", group) for group in described.values()] == ["Empty"] * 20
    listed = {group.group_id for group in client.admin.list_groups(["empty"])}
    assert set(names) <= listed
    assert not set(names) & {group.group_id for group in client.admin.list_groups(["Stable"])}
    deleted = client.admin.delete_groups([*names, "not-there"], raise_errors=False)
    assert all(deleted[name] is True for name in names)
    error = deleted["not-there"]
    assert isinstance(error, BrokerError)
    assert error.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_configs_of_several_resources_are_changed_in_one_call(client: Client) -> None:
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


def test_committed_offsets_are_set_and_listed_for_many_groups(
    client: Client, partition: TopicPartition
) -> None:
    names = [f"{partition.topic}-offsets-{number}" for number in range(3)]
    for number, name in enumerate(names):
        client.admin.alter_group_offsets(name, {partition: CommittedOffset(number, -1, "note")})
    found = client.admin.list_group_offsets([*names, "no-such-group"])
    assert [found[name] for name in names] == [
        {partition: CommittedOffset(number, -1, "note")} for number in range(3)
    ]
    assert found["no-such-group"] == {}


def test_one_partition_that_is_refused_does_not_hide_the_others(
    client: Client, partition: TopicPartition
) -> None:
    group = f"{partition.topic}-some"
    nowhere = TopicPartition(f"no-{partition.topic}", 0)
    found = client.admin.alter_group_offsets(group, {nowhere: 1, partition: 2}, raise_errors=False)
    error = found.pop(nowhere)
    assert error is not None
    assert error.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found == {partition: None}
    assert client.admin.list_group_offsets([group]) == {group: {partition: CommittedOffset(2)}}


def test_members_are_removed_from_a_group(client: Client, partition: TopicPartition) -> None:
    group = f"{partition.topic}-members"
    servers = ",".join(f"{host}:{port}" for host, port in client.config.bootstrap_servers)
    consumer = Consumer({
        "bootstrap.servers": servers,
        "group.id": group,
        "group.instance.id": "static-1",
    })  # fmt: skip
    try:
        consumer.subscribe([partition.topic])

        def has_joined() -> bool:
            consumer.poll(0.1)
            return bool(consumer.assignment())

        eventually(has_joined)
        (member,) = members(client, group)
        absent = MemberToRemove(instance_id="nobody")
        refused = client.admin.remove_members(group, [absent], raise_errors=False)[absent]
        assert isinstance(refused, BrokerError)
        assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        removed = client.admin.remove_members(group)
        assert [(each.instance_id, error) for each, error in removed.items()] == [
            ("static-1", None)
        ]
        # The consumer may have joined again, with another member id.
        assert member.member_id not in {each.member_id for each in members(client, group)}
    finally:
        consumer.close()


def members(client: Client, group: str) -> tuple[GroupMember, ...]:
    described = client.admin.describe_groups([group])[group]
    assert isinstance(described, GroupDescription)
    return described.members


def test_configs_that_are_lists_are_changed_in_part_and_all_are_replaced(
    client: Client, partition: TopicPartition
) -> None:
    resource = ConfigResource(ResourceType.TOPIC, partition.topic)

    def overridden() -> dict[str, str | None]:
        entries = client.admin.describe_configs([resource])[resource]
        assert isinstance(entries, list)
        return {each.name: each.value for each in entries if each.source == "topic"}

    # A broker applies a change a moment after the controller has committed it.
    client.admin.alter_configs(resource, {"cleanup.policy": "delete", "retention.ms": "1000"})
    client.admin.change_config_list(resource, append={"cleanup.policy": "compact"})
    eventually_equal(overridden, {"cleanup.policy": "delete,compact", "retention.ms": "1000"})
    client.admin.change_config_list(resource, subtract={"cleanup.policy": "delete"})
    eventually_equal(overridden, {"cleanup.policy": "compact", "retention.ms": "1000"})
    client.admin.replace_configs(resource, {"segment.bytes": "2000000"}, validate_only=True)
    client.admin.replace_configs(resource, {"segment.bytes": "1500000"})
    eventually_equal(overridden, {"segment.bytes": "1500000"})


def test_offsets_are_listed_by_all_specifications(
    client: Client, partition: TopicPartition
) -> None:
    specs = ("earliest", "latest", "max-timestamp", "earliest-local", "latest-tiered")
    found = [client.admin.list_offsets({partition: spec})[partition] for spec in specs]
    offsets = [getattr(each, "offset", each) for each in found]
    # The offset of the largest timestamp depends on how many milliseconds the writes took.
    assert offsets[:2] == [0, RECORDS]
    assert isinstance(offsets[2], int)
    assert offsets[3:] == [0, -1]


def test_partitions_are_added_with_an_assignment(client: Client, partition: TopicPartition) -> None:
    wider = {partition.topic: NewPartitions(3, [[1], [1]])}
    assert client.admin.create_partitions(wider, validate_only=True) == {partition.topic: None}
    assert client.partitions_for([partition.topic]) == {partition.topic: [0]}
    assert client.admin.create_partitions(wider) == {partition.topic: None}
    nowhere = {partition.topic: NewPartitions(4, [[99]])}
    with pytest.raises(AdminResultsError):
        client.admin.create_partitions(nowhere)


def test_topics_are_listed_and_described(client: Client, partition: TopicPartition) -> None:
    name = partition.topic
    client.commit_offsets(f"g-{name}", {partition: 1})
    listed = client.admin.list_topics()
    described = client.admin.describe_topics([name])
    assert list(described) == [name]
    assert listed[name].topic_id == described[name].topic_id != bytes(16)
    assert [(each.number, each.leader) for each in described[name].partitions.values()] == [(0, 1)]
    assert "__consumer_offsets" not in listed
    assert client.admin.list_topics(internal=True)["__consumer_offsets"].is_internal
    assert set(client.admin.describe_topics()) >= {name, "__consumer_offsets"}
    with pytest.raises(AdminResultsError) as failed:
        client.admin.describe_topics([name, "never-was"])
    assert failed.value.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert failed.value.results[name] == described[name]


def test_the_asyncio_admin_client_has_the_same_calls(broker: BrokerProcess | KafkaProcess) -> None:
    name = f"aio-{uuid.uuid4().hex[:8]}"

    async def administer() -> None:
        async with barnabas.aio.Admin(bootstrap_servers=broker.bootstrap) as admin:
            assert (await admin.create_topics([NewTopic(name, 2)]))[name] is None
            async with asyncio.timeout(PATIENCE_S):
                while name not in await admin.list_topics():
                    await asyncio.sleep(PAUSE_S)
            topics = await admin.describe_topics([name])
            assert sorted(topics[name].partitions) == [0, 1]
            with pytest.raises(AdminResultsError):
                await admin.create_topics([NewTopic(name, 2)])
            with pytest.raises(AdminResultsError):
                await admin.describe_topics(["never-was"])
            described = await admin.describe_cluster()
            assert [each.id for each in described.brokers] == [1]
            tp = TopicPartition(name, 0)
            # The broker has the new topic a moment after its creation.
            async with asyncio.timeout(PATIENCE_S):
                while await admin.alter_group_offsets(name, {tp: 0}, raise_errors=False) != {
                    tp: None
                }:
                    await asyncio.sleep(PAUSE_S)
            groups, offsets = await asyncio.gather(
                admin.list_groups(), admin.list_group_offsets([name])
            )
            assert name in [each.group_id for each in groups]
            assert offsets == {name: {tp: CommittedOffset(0)}}
            assert await admin.delete_groups([name]) == {name: True}
            with pytest.raises(BrokerError):
                await admin.describe_versions(99)
            assert (await admin.delete_topics([name]))[name] is None

    asyncio.run(administer())
