"""Unusual requests get the responses of Apache Kafka; found by `tests/differential`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.groups import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.log_offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata import FindCoordinatorRequest
from barnabas.protocol.messages.partition_changes import (
    ListPartitionReassignmentsRequest,
)
from barnabas.protocol.messages.topics import DeletableTopicResult, DeleteTopicsResponse
from barnabas.protocol.primitives import STRING_BYTES_MAX
from barnabas.server.dispatch.request import RequestContext, RequestDependencies
from barnabas.server.dispatch.request_statistics import ApiStatistics
from unit.server.simulated_broker import SimulatedBroker, SimulatedClient, produce_request

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message

SET, TOPIC = 0, 2
DELETE_TOPICS = 20


@pytest.fixture
def broker() -> SimulatedBroker:
    made = SimulatedBroker()
    made.make_topic("t", 2)
    return made


def ask_coordinator(broker: SimulatedBroker, request: Message, version: int) -> Any:
    """Send a request once the group coordinator is available."""
    find = FindCoordinatorRequest(key="g")
    broker.ask(find, 0)
    assert broker.world.run_until(lambda: broker.ask(find, 0).error_code == ErrorCode.NONE)
    return broker.ask(request, version)


def test_a_duplicate_topic_of_produce_is_appended_and_answered_once(
    broker: SimulatedBroker,
) -> None:
    request = produce_request("t", broker.batch(b"a"))
    other = produce_request("t", broker.batch(b"b", b"c")).topic_data[0]
    last = produce_request("t", broker.batch(b"d")).topic_data[0]
    last.partition_data[0].index = 1
    request.topic_data += [other, last]
    (topic,) = broker.ask(request, 9).responses
    answers = [
        (each.index, each.error_code, each.base_offset) for each in topic.partition_responses
    ]
    assert answers == [(0, 0, 0), (1, 0, 0)]
    # Of a partition that is named twice the last counts.
    assert broker.produce("t", b"e").base_offset == 2


def test_a_duplicate_topic_of_offsets_or_deletions_is_answered_once(
    broker: SimulatedBroker,
) -> None:
    asked = [
        ListOffsetsTopic(
            name="t", partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1)]
        )
        for index in (0, 1, 0)
    ]
    (topic,) = broker.ask(ListOffsetsRequest(replica_id=-1, topics=asked), 5).topics
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [
        (0, ErrorCode.INVALID_REQUEST),
        (1, ErrorCode.NONE),
    ]
    cut = [
        DeleteRecordsTopic(
            name="t", partitions=[DeleteRecordsPartition(partition_index=index, offset=0)]
        )
        for index in (0, 1, 0)
    ]
    (deleted,) = broker.ask(DeleteRecordsRequest(topics=cut, timeout_ms=1000), 2).topics
    assert [each.partition_index for each in deleted.partitions] == [0, 1]


def test_an_epoch_below_minus_one_is_fenced_as_in_kafka(broker: SimulatedBroker) -> None:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-2)
    topics = [ListOffsetsTopic(name="t", partitions=[partition])]
    (topic,) = broker.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 5).topics
    assert topic.partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_error_messages_too_long_for_a_response_are_truncated(broker: SimulatedBroker) -> None:
    config = AlterableConfig(name="x" * STRING_BYTES_MAX, config_operation=SET, value="1")
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (answer,) = broker.ask(request, 1).responses
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert len(answer.error_message) == STRING_BYTES_MAX
    assert answer.error_message.endswith("...")


def test_a_response_that_cannot_be_encoded_closes_the_connection(
    broker: SimulatedBroker,
) -> None:
    assert broker.node.broker is not None
    (connection,) = broker.node.broker.listeners[0].connections
    shared = broker.node.shared
    context = RequestContext(
        connection,
        connection.reserve(),
        (DELETE_TOPICS, 5, 1, None, 0),
        0,
        RequestDependencies(
            "PLAINTEXT",
            shared.runtime.clock,
            shared.quotas,
            shared.runtime.watch,
            shared.slices,
            shared.missing_features,
        ),
        ApiStatistics(DELETE_TOPICS, "DeleteTopics", 6, DeleteTopicsResponse),
    )
    words = "x" * (STRING_BYTES_MAX + 1)
    result = DeletableTopicResult(name="t", error_code=0, error_message=words)
    context.respond(DeleteTopicsResponse(responses=[result], throttle_time_ms=1 << 40))
    assert not connection.is_open


def test_an_instance_id_too_long_for_a_member_id_is_refused(
    broker: SimulatedBroker,
) -> None:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        group_instance_id="x" * STRING_BYTES_MAX,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    assert ask_coordinator(broker, request, 7).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_retention_time_beyond_the_largest_timestamp_is_accepted(broker: SimulatedBroker) -> None:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=None
    )
    request = OffsetCommitRequest(
        group_id="g",
        retention_time_ms=(1 << 63) - 1,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
    )
    (topic,) = ask_coordinator(broker, request, 3).topics
    assert topic.partitions[0].error_code == ErrorCode.NONE


def test_a_list_of_reassignments_has_no_time_limit(broker: SimulatedBroker) -> None:
    request = ListPartitionReassignmentsRequest(timeout_ms=-1, topics=None)
    assert broker.ask(request, 0).error_code == ErrorCode.NONE


def test_a_response_that_cannot_be_encoded_logs_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    key = "max.connections.per.ip.overrides"
    addresses = ",".join(f"10.1.{n // 250}.{n % 250}:1" for n in range(4_000))
    broker = SimulatedBroker(**{key: addresses})
    wanted = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=[key])
    other = SimulatedClient(broker.world, "other")
    with caplog.at_level(logging.INFO):
        for client in (broker.client, other):
            outcome = client.send(DescribeConfigsRequest(resources=[wanted]), 4)
            assert broker.world.run_until(lambda client=client: bool(client.closed))
            assert outcome[0][1] is not None, "no answer"
    lines = [
        each for each in caplog.records if each.name == "barnabas.server.dispatch.failed_responses"
    ]
    assert len(lines) == 2
    assert "Response cannot be encoded" in lines[0].getMessage()
    assert "api=DescribeConfigs version=4" in lines[0].getMessage()
    assert lines[0].exc_info is None
