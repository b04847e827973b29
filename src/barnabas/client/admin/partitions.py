"""Calls for partitions: records, leaders, producers, reassignments, and offsets from one broker.

Sources: KIP-107, KIP-460, KIP-664 (records, leaders, producers), KIP-455, KIP-860 (reassignments),
KIP-79, KIP-392 (ListOffsets).

A replica accepts a ListOffsets request of a debugging consumer (replica id -2) even if it is not
the leader. For "latest" it returns its log end offset instead of the high watermark.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.client.admin.call import AdminCall, raise_error
from barnabas.client.errors import BrokerError, ClientError, broker_error
from barnabas.client.fetch.offset_lookups import ListedOffset
from barnabas.client.topic_partition import TopicPartition, by_topic, numbers_by_topic
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.describe_transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from barnabas.protocol.messages.log_offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.partition_changes import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.protocol.schema import Message

__all__ = ["ActiveProducer", "ElectionType", "Reassignment"]

CONSUMER = -1
DEBUGGING_CONSUMER = -2


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
            topics = [TopicPartitions(topic=n, partitions=p) for n, p in numbers.items()]
        request = ElectLeadersRequest(topic_partitions=topics, timeout_ms=timeout_ms)
        if version >= 1:
            request.election_type = kind
        return request

    def read(response: Message) -> dict[TopicPartition, BrokerError | None]:
        assert isinstance(response, ElectLeadersResponse)
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
        topics = [TopicRequest(name=n, partition_indexes=p) for n, p in numbers.items()]
        return DescribeProducersRequest(topics=topics)

    def read(response: Message) -> dict[TopicPartition, list[ActiveProducer] | ClientError]:
        assert isinstance(response, DescribeProducersResponse)
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


def _producer(state: ProducerState) -> ActiveProducer:
    return ActiveProducer(
        state.producer_id,
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.coordinator_epoch,
        state.current_txn_start_offset,
    )


@dataclass(frozen=True, slots=True)
class Reassignment:
    """An active reassignment; replicas are broker ids."""

    # All current replicas, including those being added and removed.
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)


def alter_reassignments(
    targets: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: int
) -> AdminCall[dict[TopicPartition, BrokerError | None]]:
    """Start reassignments to the given replicas; None cancels. Return an error or None each."""

    def build(_version: int) -> Message:
        entries = by_topic(
            (
                tp,
                ReassignablePartition(
                    partition_index=tp.partition,
                    replicas=None if replicas is None else list(replicas),
                ),
            )
            for tp, replicas in targets.items()
        )
        topics = [ReassignableTopic(name=n, partitions=p) for n, p in entries.items()]
        return AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=timeout_ms)

    def read(response: Message) -> dict[TopicPartition, BrokerError | None]:
        assert isinstance(response, AlterPartitionReassignmentsResponse)
        raise_error(response.error_code, "reassignment", response.error_message)
        found: dict[TopicPartition, BrokerError | None] = {}
        for topic in response.responses:
            for result in topic.partitions:
                tp = TopicPartition(topic.name, result.partition_index)
                code, detail = result.error_code, result.error_message
                found[tp] = broker_error(code, f"reassignment of {tp}", detail) if code else None
        return found

    return AdminCall(ApiKey.ALTER_PARTITION_REASSIGNMENTS, build, read)


def list_reassignments(
    partitions: Iterable[TopicPartition] | None, timeout_ms: int
) -> AdminCall[dict[TopicPartition, Reassignment]]:
    """List active reassignments; None means all partitions."""
    wanted = None if partitions is None else list(partitions)

    def build(_version: int) -> Message:
        topics = None
        if wanted is not None:
            topics = [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
                for name, numbers in numbers_by_topic(wanted).items()
            ]
        return ListPartitionReassignmentsRequest(topics=topics, timeout_ms=timeout_ms)

    def read(response: Message) -> dict[TopicPartition, Reassignment]:
        assert isinstance(response, ListPartitionReassignmentsResponse)
        raise_error(response.error_code, "list of reassignments", response.error_message)
        return {
            TopicPartition(topic.name, each.partition_index): Reassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in response.topics
            for each in topic.partitions
        }

    return AdminCall(ApiKey.LIST_PARTITION_REASSIGNMENTS, build, read)


def list_offsets(
    specs: Mapping[TopicPartition, int],
    timeout_ms: int,
    *,
    replica_id: int = CONSUMER,
    read_committed: bool = False,
) -> AdminCall[dict[TopicPartition, ListedOffset | ClientError]]:
    """List offsets by timestamp (ms) or special value; an offset or an error for each."""

    def build(_version: int) -> Message:
        entries = by_topic(
            (
                tp,
                ListOffsetsPartition(
                    partition_index=tp.partition, current_leader_epoch=-1, timestamp=spec
                ),
            )
            for tp, spec in specs.items()
        )
        return ListOffsetsRequest(
            replica_id=replica_id,
            isolation_level=int(read_committed),
            topics=[ListOffsetsTopic(name=n, partitions=p) for n, p in entries.items()],
            timeout_ms=timeout_ms,
        )

    def read(response: Message) -> dict[TopicPartition, ListedOffset | ClientError]:
        assert isinstance(response, ListOffsetsResponse)
        found: dict[TopicPartition, ListedOffset | ClientError] = {}
        for topic in response.topics:
            for p in topic.partitions:
                tp = TopicPartition(topic.name, p.partition_index)
                found[tp] = ListedOffset(p.offset, p.timestamp, p.leader_epoch)
                if p.error_code:
                    found[tp] = broker_error(p.error_code, f"offset of {tp}")
        return found

    return AdminCall(ApiKey.LIST_OFFSETS, build, read)
