"""Requests with many items take several turns of the event loop, whatever the response."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.messages import alter_configs
from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from barnabas.protocol.messages.configs import (
    AlterClientQuotasRequest,
    AlterConfigsResource,
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    EntityDataRequest,
    EntryDataRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
    OpData,
)
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.log_offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata import (
    CursorRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.security import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from barnabas.protocol.messages.share_groups import ShareGroupDescribeRequest
from barnabas.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from barnabas.protocol.messages.streams_groups import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from barnabas.protocol.messages.transactions import ListTransactionsRequest
from barnabas.server.dispatch import slices
from barnabas.server.handlers.records import offsets
from barnabas.storage.topic_partition import TopicPartition
from unit.server.handlers.producer_ids import initialize
from unit.server.security.authorizer.secured_broker import SecuredBroker
from unit.server.simulated_broker import TIMEOUT_MS, SimulatedBroker

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message
    from unit.server.simulated_broker import SimulatedClient

ITEMS = 60
NUMBERS = range(ITEMS)
NAMES = [f"name-{number}" for number in NUMBERS]
BROKER, UNKNOWN_TYPE = 4, 99


def commit() -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=number, committed_offset=1, committed_metadata=""
        )
        for number in NUMBERS
    ]
    topic = OffsetCommitRequestTopic(name="t", partitions=partitions)
    return OffsetCommitRequest(group_id="g", topics=[topic])


def offsets_with_an_invalid_isolation_level() -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=each, timestamp=-1) for each in NUMBERS]
    topic = ListOffsetsTopic(name="t", partitions=partitions)
    return ListOffsetsRequest(replica_id=-1, isolation_level=5, topics=[topic])


def metadata_by_id() -> MetadataRequest:
    topics = [MetadataRequestTopic(topic_id=b"i" * 16, name=each) for each in NAMES]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def partitions_after_an_invalid_cursor() -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=each) for each in NAMES],
        cursor=CursorRequest(topic_name="absent", partition_index=0),
    )


def configs_of_an_unknown_type() -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=UNKNOWN_TYPE, resource_name=each, configuration_keys=None
            )
            for each in NAMES
        ]
    )


def changes_of_other_brokers() -> IncrementalAlterConfigsRequest:
    resource = AlterConfigsResource
    return IncrementalAlterConfigsRequest(
        resources=[
            resource(resource_type=BROKER, resource_name=each, configs=[]) for each in NAMES
        ],
        validate_only=True,
    )


def configs_of_other_brokers() -> alter_configs.AlterConfigsRequest:
    resource = alter_configs.AlterConfigsResource
    return alter_configs.AlterConfigsRequest(
        resources=[
            resource(resource_type=BROKER, resource_name=each, configs=[]) for each in NAMES
        ],
        validate_only=True,
    )


def heartbeat_with_invalid_topics() -> StreamsGroupHeartbeatRequest:
    subtopology = Subtopology(
        subtopology_id="0",
        source_topics=[f"{each}!" for each in NAMES],
        source_topic_regex=[],
        state_changelog_topics=[],
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )
    return StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        endpoint_information_epoch=0,
        topology=Topology(epoch=1, subtopologies=[subtopology]),
    )


# Request, version, and the number of turns for each item.
REQUESTS = {
    "offsets for ZooKeeper": (commit(), 0, 1),
    "offsets in ZooKeeper": (
        OffsetFetchRequest(
            group_id="g",
            topics=[OffsetFetchRequestTopic(name="t", partition_indexes=list(NUMBERS))],
        ),
        0,
        1,
    ),
    "an invalid isolation level": (offsets_with_an_invalid_isolation_level(), 6, 1),
    "topic ids before their version": (metadata_by_id(), 10, 4),
    "an invalid cursor": (partitions_after_an_invalid_cursor(), 0, 3),
    "configs of an unknown type": (configs_of_an_unknown_type(), 4, 1),
    "changes of other brokers": (changes_of_other_brokers(), 1, 2),
    "configs of other brokers": (configs_of_other_brokers(), 2, 2),
    "a topology with invalid topics": (heartbeat_with_invalid_topics(), 0, 2),
    "consumer groups": (
        ConsumerGroupDescribeRequest(group_ids=NAMES, include_authorized_operations=True),
        1,
        2,
    ),
    "share groups": (
        ShareGroupDescribeRequest(group_ids=NAMES, include_authorized_operations=True),
        1,
        2,
    ),
    "streams groups": (
        StreamsGroupDescribeRequest(group_ids=NAMES, include_authorized_operations=True),
        0,
        2,
    ),
}

# Requests that need a right on the cluster, and their versions.
REFUSED = {
    "moves to other directories": (
        AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path="/data",
                    topics=[AlterReplicaLogDirTopic(name="t", partitions=list(NUMBERS))],
                )
            ]
        ),
        1,
    ),
    "credentials": (
        DescribeUserScramCredentialsRequest(users=[UserName(name=each) for each in NAMES]),
        0,
    ),
}


def turns(
    broker: SimulatedBroker, request: Message, version: int, client: SimulatedClient | None = None
) -> int:
    """Return the number of turns of all loops until the response has arrived."""
    before = broker.world.scheduler.events_run
    (client or broker.client).ask(request, version)
    return broker.world.scheduler.events_run - before


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> SimulatedBroker:
    """A broker that ends each slice after one step."""
    made = SimulatedBroker()
    made.make_topic("t")
    monkeypatch.setattr(slices, "FIRST_SLICE_MS", -1.0)
    monkeypatch.setattr(slices, "SLICE_MS", -1.0)
    return made


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_served_item_by_item(broker: SimulatedBroker, name: str) -> None:
    request, version, turns_per_item = REQUESTS[name]
    assert turns(broker, request, version) >= turns_per_item * ITEMS


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_without_the_right_is_refused_item_by_item(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    broker = SecuredBroker()
    monkeypatch.setattr(slices, "FIRST_SLICE_MS", -1.0)
    monkeypatch.setattr(slices, "SLICE_MS", -1.0)
    request, version = REFUSED[name]
    assert turns(broker, request, version, broker.mary) >= ITEMS


def test_resources_with_configs_are_listed_one_by_one(broker: SimulatedBroker) -> None:
    for name in NAMES:
        broker.make_topic(name)
    assert turns(broker, ListConfigResourcesRequest(), 1) >= ITEMS


def test_client_quotas_are_listed_one_by_one(broker: SimulatedBroker) -> None:
    entries = [
        EntryDataRequest(
            entity=[EntityDataRequest(entity_type="user", entity_name=each)],
            ops=[OpData(key="consumer_byte_rate", value=1e9, remove=False)],
        )
        for each in NAMES
    ]
    broker.ask(AlterClientQuotasRequest(entries=entries, validate_only=False), 1)
    request = DescribeClientQuotasRequest(components=[], strict=False)
    assert turns(broker, request, 1) >= ITEMS


def test_transactional_ids_are_matched_one_by_one(broker: SimulatedBroker) -> None:
    for name in NAMES:
        initialize(broker, name)
    request = ListTransactionsRequest(
        state_filters=[], producer_id_filters=[], transactional_id_pattern="name-(1|2).*"
    )
    assert turns(broker, request, 2) >= ITEMS
    found = broker.ask(request, 2).transaction_states
    assert {each.transactional_id for each in found} == {
        each for each in NAMES if each.startswith(("name-1", "name-2"))
    }


def test_a_turn_deletes_records_of_some_partitions(broker: SimulatedBroker) -> None:
    broker.make_topic("many", ITEMS)
    batches = [PartitionProduceData(index=each, records=broker.batch(b"x")) for each in NUMBERS]
    topics = [TopicProduceData(name="many", partition_data=batches)]
    broker.ask(ProduceRequest(acks=1, timeout_ms=TIMEOUT_MS, topic_data=topics), 9)
    deleted = DeleteRecordsTopic(
        name="many",
        partitions=[DeleteRecordsPartition(partition_index=each, offset=1) for each in NUMBERS],
    )
    outcome = broker.client.send(DeleteRecordsRequest(topics=[deleted], timeout_ms=TIMEOUT_MS), 2)
    replicas = broker.node.broker.replicas
    counts = []

    def is_done() -> bool:
        logs = [replicas.partition(TopicPartition("many", each)).log for each in NUMBERS]
        counts.append(sum(log.log_start_offset for log in logs))
        return bool(outcome)

    assert broker.world.run_until(is_done)
    assert {each.low_watermark for each in outcome[0][0].topics[0].partitions} == {1}
    assert counts[-1] == ITEMS
    growth = [after - before for before, after in pairwise(counts)]
    assert max(growth) == offsets._AT_ONCE
