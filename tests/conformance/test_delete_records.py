"""DeleteRecords and DescribeProducers, by raw request and through clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_transactions import (
    DescribeProducersRequest,
    PartitionResponse,
    TopicRequest,
)
from barnabas.protocol.messages.log_offsets import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from group_offsets import commit_offsets

if TYPE_CHECKING:
    from conformance.raw_client import RawClient

WAIT_S = 60.0


def fill(bootstrap: str, topic: str, count: int) -> None:
    """Write `count` records to partition 0."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, b"%d" % number, b"key", partition=0)
    assert producer.flush(WAIT_S) == 0


def delete(
    raw: RawClient, topic: str, offset: int, partition: int = 0, version: int = 2
) -> DeleteRecordsPartitionResult:
    deletion = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[deletion])], timeout_ms=50_000
    )
    (topic_result,) = raw.ask(request, version).topics
    assert topic_result.name == topic
    (result,) = topic_result.partitions
    assert result.partition_index == partition
    return result


def describe(raw: RawClient, topic: str, partition: int) -> PartitionResponse:
    topics = [TopicRequest(name=topic, partition_indexes=[partition])]
    return raw.ask(DescribeProducersRequest(topics=topics), 0).topics[0].partitions[0]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_records_below_an_offset_are_deleted(
    raw: RawClient, bootstrap: str, topic: str, admin: AdminClient, version: int
) -> None:
    fill(bootstrap, topic, 20)
    result = delete(raw, topic, 7, version=version)
    assert (result.error_code, result.low_watermark) == (0, 7)
    where = TopicPartition(topic, 0)
    earliest = admin.list_offsets({where: OffsetSpec.earliest()})[where].result(WAIT_S)
    assert earliest.offset == 7
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none",
                         "auto.offset.reset": "earliest"})  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(WAIT_S)
    consumer.close()
    assert (message.offset(), message.value()) == (7, b"7")


def test_minus_one_means_the_high_watermark_and_the_start_never_decreases(
    raw: RawClient, bootstrap: str, topic: str
) -> None:
    fill(bootstrap, topic, 20)
    assert delete(raw, topic, -1).low_watermark == 20
    again = delete(raw, topic, 5)
    assert (again.error_code, again.low_watermark) == (0, 20)
    fill(bootstrap, topic, 5)
    assert delete(raw, topic, -1).low_watermark == 25


@pytest.mark.parametrize("offset", [21, -2])
def test_an_offset_outside_the_log_is_refused(
    raw: RawClient, bootstrap: str, topic: str, offset: int
) -> None:
    fill(bootstrap, topic, 20)
    result = delete(raw, topic, offset)
    assert (result.error_code, result.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_records_of_an_unknown_partition_are_not_deleted(raw: RawClient, topic: str) -> None:
    for name, partition in ((topic, 3), ("conformance-nowhere", 0)):
        result = delete(raw, name, 0, partition)
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_deleting_records_of_an_internal_topic_is_refused(
    raw: RawClient, bootstrap: str, topic: str
) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"group-{topic}"})
    commit_offsets(consumer, TopicPartition(topic, 0, 1))
    consumer.close()
    result = delete(raw, "__consumer_offsets", 0)
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_admin_client_deletes_records(bootstrap: str, topic: str, admin: AdminClient) -> None:
    fill(bootstrap, topic, 10)
    where = TopicPartition(topic, 0, 4)
    deleted = admin.delete_records([where])[where].result(WAIT_S)
    assert deleted.low_watermark == 4


def test_active_producers_are_described(raw: RawClient, bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 20)
    fill(bootstrap, topic, 3)
    found = describe(raw, topic, 0)
    assert (found.error_code, found.error_message) == (0, None)
    producers = sorted(found.active_producers, key=lambda each: each.producer_id)
    assert [each.last_sequence for each in producers] == [19, 2]
    assert {each.producer_epoch for each in producers} == {0}
    assert {each.coordinator_epoch for each in producers} == {-1}
    assert {each.current_txn_start_offset for each in producers} == {-1}
    assert all(each.last_timestamp > 1_600_000_000_000 for each in producers)


def test_describing_producers_of_a_missing_partition_is_an_error(
    raw: RawClient, topic: str
) -> None:
    no_partition = describe(raw, topic, 9)
    assert no_partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert no_partition.error_message is None
    no_topic = describe(raw, "conformance-nowhere", 0)
    assert no_topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert no_topic.error_message
