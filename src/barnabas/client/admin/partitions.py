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

from barnabas.client.admin.sender import (
    AdminCall,
    checked,
    each_partition,
    fixed_call,
    raise_error,
)
from barnabas.client.connections.cluster import CONTROLLER
from barnabas.client.errors import error_or_none
from barnabas.client.fetch.offset_lookups import ListedOffset, offset_spec
from barnabas.client.topic_partition import (
    K,
    TopicPartition,
    as_partitions,
    by_partition,
    by_topic,
    numbers_by_topic,
)
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import (
    describe_transactions as producers,
    partition_changes as elections,
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
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.admin.sender import AdminSender, Plan
    from barnabas.client.errors import BrokerError, ClientError
    from barnabas.protocol.messages.describe_transactions import ProducerState
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
    sender: AdminSender, before: Mapping[K, int], *, raise_errors: bool = True
) -> Plan[dict[TopicPartition, int | ClientError]]:
    """Delete the records before an offset; an offset of -1 deletes all records.

    Returns:
        The new log start offset, or an error, for each partition.

    Raises:
        AdminResultsError: a partition failed; not raised with `raise_errors=False`.
    """
    offsets = by_partition(before)

    def read(response: DeleteRecordsResponse) -> dict[TopicPartition, int | ClientError]:
        return {
            tp: error_or_none(each.error_code, f"delete records of {tp}") or each.low_watermark
            for tp, each in each_partition((t.name, t.partitions) for t in response.topics)
        }

    def call_for(part: list[TopicPartition]) -> AdminCall[dict[TopicPartition, int | ClientError]]:
        entries = by_topic(
            (tp, DeleteRecordsPartition(partition_index=tp.partition, offset=offsets[tp]))
            for tp in part
        )
        topics = [DeleteRecordsTopic(name=n, partitions=p) for n, p in entries.items()]
        return fixed_call(DeleteRecordsRequest(topics=topics, timeout_ms=sender.timeout_ms), read)

    return checked(sender.send_to_leaders(offsets, call_for), raise_errors=raise_errors)


def elect_leaders(
    sender: AdminSender,
    kind: ElectionType = ElectionType.PREFERRED,
    wanted: Sequence[tuple[str, int]] | None = None,
    *,
    raise_errors: bool = True,
) -> Plan[dict[TopicPartition, BrokerError | None]]:
    """Elect leaders; None means all partitions that need an election.

    Returns:
        An error or None for each partition; a named partition that needs no election gets
        ELECTION_NOT_NEEDED.

    Raises:
        AdminResultsError: an election failed; not raised with `raise_errors=False` or for
            ELECTION_NOT_NEEDED.
    """
    chosen = None if wanted is None else as_partitions(wanted)

    def build(version: int) -> Message:
        topics = None
        if chosen is not None:
            numbers = numbers_by_topic(chosen)
            topics = [elections.TopicPartitions(topic=n, partitions=p) for n, p in numbers.items()]
        request = elections.ElectLeadersRequest(
            topic_partitions=topics, timeout_ms=sender.timeout_ms
        )
        if version >= 1:
            request.election_type = kind
        return request

    def read(response: elections.ElectLeadersResponse) -> dict[TopicPartition, BrokerError | None]:
        raise_error(response.error_code, "elect leaders")
        return {
            (tp := TopicPartition(topic.topic, each.partition_id)): error_or_none(
                each.error_code, f"leader of {tp}", each.error_message
            )
            for topic in response.replica_election_results
            for each in topic.partition_result
        }

    call = AdminCall(ApiKey.ELECT_LEADERS, build, read)
    return checked(sender.send(CONTROLLER, call), raise_errors=raise_errors)


def describe_producers(
    sender: AdminSender, wanted: Iterable[tuple[str, int]], *, once: bool = False
) -> Plan[dict[TopicPartition, list[ActiveProducer] | ClientError]]:
    """Describe the active producers of partitions; `once` makes one attempt only.

    Returns:
        The producers known to the partition's leader, or an error, for each partition.
    """

    def read(
        response: producers.DescribeProducersResponse,
    ) -> dict[TopicPartition, list[ActiveProducer] | ClientError]:
        return {
            tp: error_or_none(each.error_code, f"producers of {tp}", each.error_message)
            or [_producer(state) for state in each.active_producers]
            for tp, each in each_partition((t.name, t.partitions) for t in response.topics)
        }

    def call_for(
        part: list[TopicPartition],
    ) -> AdminCall[dict[TopicPartition, list[ActiveProducer] | ClientError]]:
        numbers = numbers_by_topic(part)
        topics = [producers.TopicRequest(name=n, partition_indexes=p) for n, p in numbers.items()]
        return fixed_call(producers.DescribeProducersRequest(topics=topics), read)

    return sender.send_to_leaders(as_partitions(wanted), call_for, once=once)


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
    sender: AdminSender, targets: Mapping[K, Sequence[int] | None], *, raise_errors: bool = True
) -> Plan[dict[TopicPartition, BrokerError | None]]:
    """Start reassignments to the given replicas (broker ids); None cancels a reassignment.

    Returns:
        An error or None for each partition. A started reassignment continues in the cluster.

    Raises:
        AdminResultsError: a partition failed; not raised with `raise_errors=False`.
    """
    entries = by_topic(
        (
            tp,
            ReassignablePartition(
                partition_index=tp.partition,
                replicas=None if replicas is None else list(replicas),
            ),
        )
        for tp, replicas in by_partition(targets).items()
    )
    topics = [ReassignableTopic(name=n, partitions=p) for n, p in entries.items()]
    request = AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=sender.timeout_ms)

    def read(
        response: AlterPartitionReassignmentsResponse,
    ) -> dict[TopicPartition, BrokerError | None]:
        raise_error(response.error_code, "reassignment", response.error_message)
        return {
            tp: error_or_none(each.error_code, f"reassignment of {tp}", each.error_message)
            for tp, each in each_partition((t.name, t.partitions) for t in response.responses)
        }

    return checked(sender.send(CONTROLLER, fixed_call(request, read)), raise_errors=raise_errors)


def list_reassignments(
    sender: AdminSender, wanted: Iterable[tuple[str, int]] | None = None, *, once: bool = False
) -> Plan[dict[TopicPartition, Reassignment]]:
    """List active reassignments; None means all partitions. `once` makes one attempt only."""
    topics = None
    if wanted is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
            for name, numbers in numbers_by_topic(as_partitions(wanted)).items()
        ]
    request = ListPartitionReassignmentsRequest(topics=topics, timeout_ms=sender.timeout_ms)

    def read(response: ListPartitionReassignmentsResponse) -> dict[TopicPartition, Reassignment]:
        raise_error(response.error_code, "list of reassignments", response.error_message)
        return {
            tp: Reassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for tp, each in each_partition((t.name, t.partitions) for t in response.topics)
        }

    return sender.send(CONTROLLER, fixed_call(request, read), once=once)


def _list_offsets(
    specs: Mapping[TopicPartition, int],
    timeout_ms: int,
    *,
    replica_id: int = CONSUMER,
    read_committed: bool = False,
) -> AdminCall[dict[TopicPartition, ListedOffset | ClientError]]:
    """List offsets by timestamp (ms) or special value; an offset or an error for each."""

    entries = by_topic(
        (
            tp,
            ListOffsetsPartition(
                partition_index=tp.partition, current_leader_epoch=-1, timestamp=spec
            ),
        )
        for tp, spec in specs.items()
    )
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=int(read_committed),
        topics=[ListOffsetsTopic(name=n, partitions=p) for n, p in entries.items()],
        timeout_ms=timeout_ms,
    )

    def read(response: ListOffsetsResponse) -> dict[TopicPartition, ListedOffset | ClientError]:
        return {
            tp: error_or_none(each.error_code, f"offset of {tp}")
            or ListedOffset(each.offset, each.timestamp, each.leader_epoch)
            for tp, each in each_partition((t.name, t.partitions) for t in response.topics)
        }

    return fixed_call(request, read)


def list_offsets(
    sender: AdminSender, specs: Mapping[K, str | int], *, read_committed: bool = False
) -> Plan[dict[TopicPartition, ListedOffset | ClientError]]:
    """List offsets of partitions from their leaders, in one attempt.

    See `Client.list_offsets` for `specs`; that method retries until all offsets are known.

    Returns:
        The offset, or an error, for each partition.
    """
    times = {tp: offset_spec(spec) for tp, spec in by_partition(specs).items()}

    def call_for(
        part: list[TopicPartition],
    ) -> AdminCall[dict[TopicPartition, ListedOffset | ClientError]]:
        wanted = {tp: times[tp] for tp in part}
        return _list_offsets(wanted, sender.timeout_ms, read_committed=read_committed)

    return sender.send_to_leaders(times, call_for, once=True)


def list_replica_offsets(
    sender: AdminSender, specs: Mapping[int, Mapping[K, str | int]]
) -> Plan[dict[int, dict[TopicPartition, ListedOffset | ClientError] | ClientError]]:
    """List offsets from individual replicas, by node id, in one attempt.

    "latest" is the log end offset and "earliest" the log start offset of the replica, on leaders
    and on followers.

    Returns:
        For each node an error, or the offset or error for each partition.
    """
    yield from sender.refresh()
    calls = {
        node: _list_offsets(
            {tp: offset_spec(spec) for tp, spec in by_partition(wanted).items()},
            sender.timeout_ms,
            replica_id=DEBUGGING_CONSUMER,
        )
        for node, wanted in specs.items()
    }
    return (yield from sender.send_each(calls, once=True))
