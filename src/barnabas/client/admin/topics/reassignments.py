"""Reassignments of replicas: start, cancel and list them (KIP-455, KIP-860)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.client.admin.call import AdminCall, raise_error
from barnabas.client.errors import broker_error
from barnabas.client.topic_partition import TopicPartition, by_topic, numbers_by_topic
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.errors import BrokerError
    from barnabas.protocol.schema import Message

__all__ = ["Reassignment", "alter_reassignments", "list_reassignments"]


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
