"""Calls for partitions: delete records, elect leaders, describe producers (KIP-107, 460, 664)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.client.admin.call import AdminCall, raise_error
from barnabas.client.errors import BrokerError, ClientError, broker_error
from barnabas.client.topic_partition import TopicPartition, by_topic, numbers_by_topic
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import describe_producers as producers, elect_leaders as elections
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.protocol.schema import Message

__all__ = [
    "ActiveProducer",
    "ElectionType",
    "delete_records",
    "describe_producers",
    "elect_leaders",
]


class ElectionType(enum.IntEnum):
    """Whether to elect the preferred replica, or any replica with possible data loss."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer known to the partition's leader; -1 means none, the timestamp is in ms."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_transaction_start_offset: int


def delete_records(
    offsets: Mapping[TopicPartition, int], timeout_ms: int
) -> AdminCall[dict[TopicPartition, int | ClientError]]:
    """Delete the records before an offset (-1: all) on the partitions' leader.

    The result is the new low watermark of each partition.
    """

    def build(_version: int) -> Message:
        entries = by_topic(
            (tp, DeleteRecordsPartition(partition_index=tp.partition, offset=offset))
            for tp, offset in offsets.items()
        )
        topics = [DeleteRecordsTopic(name=n, partitions=p) for n, p in entries.items()]
        return DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)

    def read(response: Message) -> dict[TopicPartition, int | ClientError]:
        assert isinstance(response, DeleteRecordsResponse)
        found: dict[TopicPartition, int | ClientError] = {}
        for topic in response.topics:
            for partition in topic.partitions:
                tp = TopicPartition(topic.name, partition.partition_index)
                found[tp] = partition.low_watermark
                if partition.error_code:
                    found[tp] = broker_error(partition.error_code, f"delete records of {tp}")
        return found

    return AdminCall(ApiKey.DELETE_RECORDS, build, read)


def elect_leaders(
    kind: ElectionType, partitions: Sequence[TopicPartition] | None, timeout_ms: int
) -> AdminCall[dict[TopicPartition, BrokerError | None]]:
    """Elect leaders, for all partitions if None; the result omits those that need no election."""

    def build(version: int) -> Message:
        topics = None
        if partitions is not None:
            numbers = numbers_by_topic(partitions)
            topics = [elections.TopicPartitions(topic=n, partitions=p) for n, p in numbers.items()]
        request = elections.ElectLeadersRequest(topic_partitions=topics, timeout_ms=timeout_ms)
        if version >= 1:
            request.election_type = kind
        return request

    def read(response: Message) -> dict[TopicPartition, BrokerError | None]:
        assert isinstance(response, elections.ElectLeadersResponse)
        raise_error(response.error_code, "elect leaders")
        found: dict[TopicPartition, BrokerError | None] = {}
        for topic in response.replica_election_results:
            for result in topic.partition_result:
                tp = TopicPartition(topic.topic, result.partition_id)
                code, detail = result.error_code, result.error_message
                found[tp] = broker_error(code, f"leader of {tp}", detail) if code else None
        return found

    return AdminCall(ApiKey.ELECT_LEADERS, build, read)


def describe_producers(
    partitions: Sequence[TopicPartition],
) -> AdminCall[dict[TopicPartition, list[ActiveProducer] | ClientError]]:
    """Describe the producers that the leader of the partitions knows."""

    def build(_version: int) -> Message:
        numbers = numbers_by_topic(partitions)
        topics = [producers.TopicRequest(name=n, partition_indexes=p) for n, p in numbers.items()]
        return producers.DescribeProducersRequest(topics=topics)

    def read(response: Message) -> dict[TopicPartition, list[ActiveProducer] | ClientError]:
        assert isinstance(response, producers.DescribeProducersResponse)
        found: dict[TopicPartition, list[ActiveProducer] | ClientError] = {}
        for topic in response.topics:
            for partition in topic.partitions:
                tp = TopicPartition(topic.name, partition.partition_index)
                code, detail = partition.error_code, partition.error_message
                if code:
                    found[tp] = broker_error(code, f"producers of {tp}", detail)
                else:
                    found[tp] = [_producer(state) for state in partition.active_producers]
        return found

    return AdminCall(ApiKey.DESCRIBE_PRODUCERS, build, read)


def _producer(state: producers.ProducerState) -> ActiveProducer:
    return ActiveProducer(
        state.producer_id,
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.coordinator_epoch,
        state.current_txn_start_offset,
    )
