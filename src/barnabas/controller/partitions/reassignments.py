"""Reassigning partitions (Alter- and ListPartitionReassignments APIs 45, 46; KIP-455).

During a reassignment the partition has the old and the new replicas. Once all added replicas are in
the ISR, the replicas to be removed are dropped (`partition_change.Assignment`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.partitions.new_partitions import NewPartitions
from barnabas.controller.partitions.partition_change import (
    Assignment,
    Candidates,
    Election,
    changed_partition,
)
from barnabas.controller.result import ControllerResult, Refusal
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.partition_changes import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from barnabas.waiting.steps import gradually

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from barnabas.controller.partitions.elections import Elections
    from barnabas.controller.result import ControllerView, VersionedRecord
    from barnabas.metadata.image import ClusterImage
    from barnabas.metadata.partition_registration import PartitionRegistration
    from barnabas.metadata.topics import TopicImage
    from barnabas.protocol.messages.partition_changes import ReassignablePartition


class ReassignmentControl:
    """Handles reassignment requests, and lists pending reassignments."""

    def __init__(self, elections: Elections) -> None:
        self._elections = elections

    def alter(
        self, view: ControllerView, request: AlterPartitionReassignmentsRequest
    ) -> Generator[None, None, ControllerResult[AlterPartitionReassignmentsResponse]]:
        """Start, change or (if the replicas are null) cancel the reassignment of each partition.

        Yields before each partition.
        """
        if not request.topics:
            # Kafka's response then has default values, including an empty error message.
            nothing = AlterPartitionReassignmentsResponse(
                error_code=ErrorCode.NONE, error_message="", responses=[]
            )
            return ControllerResult([], nothing, at_once=True)
        image = view.image
        records: list[VersionedRecord] = []
        topics: list[ReassignableTopicResponse] = []
        for topic in request.topics:
            results: list[ReassignablePartitionResponse] = []
            for wanted in topic.partitions:
                yield
                try:
                    records += self._alter_one(
                        image,
                        topic.name,
                        wanted,
                        may_change_factor=request.allow_replication_factor_change,
                    )
                    results.append(_result(wanted.partition_index, ErrorCode.NONE, None))
                except Refusal as refusal:
                    results.append(
                        _result(wanted.partition_index, refusal.error_code, refusal.message or None)
                    )
            topics.append(ReassignableTopicResponse(name=topic.name, partitions=results))
            yield
        response = AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_code=ErrorCode.NONE,
            error_message=None,
            responses=topics,
        )
        return ControllerResult(records, response)

    def _alter_one(
        self,
        image: ClusterImage,
        name: str,
        wanted: ReassignablePartition,
        *,
        may_change_factor: bool,
    ) -> list[VersionedRecord]:
        partition = wanted.partition_index
        topic = image.topics.by_name(name)
        before = None if topic is None else topic.partitions.get(partition)
        if topic is None or before is None:
            raise Refusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{partition}"
            )
        if wanted.replicas is None:
            return self._cancel(image, topic, partition, before)
        NewPartitions(image).check_replicas(wanted.replicas)
        target = _target(before, tuple(wanted.replicas))
        if not may_change_factor and len(wanted.replicas) != len(_settled(before)):
            raise Refusal(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{name}-{partition} has {len(_settled(before))} replicas, and the "
                f"request does not allow a change to {len(wanted.replicas)}",
            )
        rules = self._elections.strict_rules(
            image, name, Candidates(image.brokers), Election.ONLINE
        )
        change = changed_partition(partition, topic.id, before, before.isr, rules, target)
        return [] if change is None else [change]

    def _cancel(
        self, image: ClusterImage, topic: TopicImage, partition: int, before: PartitionRegistration
    ) -> list[VersionedRecord]:
        if not _is_moving(before):
            # Kafka sends no message with this error either.
            raise Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        replicas = _settled(before)
        isr = tuple(replica for replica in before.isr if replica in replicas)
        rules = self._elections.rules(image, topic.name, Candidates(image.brokers))
        if not isr:
            # Only replicas to be removed are in the ISR, so the new leader would be out of sync.
            if rules.election is not Election.UNCLEAN:
                raise Refusal(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    "no remaining replica is in sync, and the topic does not allow "
                    "unclean elections",
                )
            isr = replicas[:1]
        change = changed_partition(partition, topic.id, before, isr, rules, Assignment(replicas))
        return [] if change is None else [change]

    def list(
        self, view: ControllerView, request: ListPartitionReassignmentsRequest
    ) -> ControllerResult[ListPartitionReassignmentsResponse]:
        """List the pending reassignments of the named partitions, or of all partitions."""
        image = view.image
        wanted: Iterable[tuple[str, list[int] | None]] = (
            [(topic.name, None) for topic in image.topics]
            if request.topics is None
            else [(each.name, each.partition_indexes) for each in request.topics]
        )
        topics: list[OngoingTopicReassignment] = []
        for name, indexes in wanted:
            topic = image.topics.by_name(name)
            if topic is None:
                continue
            moving = [
                _ongoing(index, topic.partitions[index])
                for index in (sorted(topic.partitions) if indexes is None else indexes)
                if index in topic.partitions and _is_moving(topic.partitions[index])
            ]
            if moving:
                topics.append(OngoingTopicReassignment(name=name, partitions=moving))
        response = ListPartitionReassignmentsResponse(
            error_code=ErrorCode.NONE, error_message=None, topics=topics
        )
        return ControllerResult([], response)


def _is_moving(partition: PartitionRegistration) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def _settled(partition: PartitionRegistration) -> tuple[int, ...]:
    """Return the replicas without those that a reassignment adds."""
    return tuple(each for each in partition.replicas if each not in partition.adding_replicas)


def _target(before: PartitionRegistration, wanted: tuple[int, ...]) -> Assignment:
    """Return the assignment that leads to `wanted`; replicas being added stay so."""
    settled = _settled(before)
    removing = tuple(sorted(set(before.replicas) - set(wanted)))
    adding = tuple(sorted(set(wanted) - set(settled)))
    return Assignment((*wanted, *removing), adding, removing)


def _ongoing(index: int, partition: PartitionRegistration) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding_replicas),
        removing_replicas=list(partition.removing_replicas),
    )


def _result(partition: int, error: ErrorCode, message: str | None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=partition, error_code=error, error_message=message
    )


def refuse_alter_reassignments(
    request: AlterPartitionReassignmentsRequest, error: Refusal
) -> Generator[None, None, AlterPartitionReassignmentsResponse]:
    """Make the error response for all partitions of a request."""
    responses: list[ReassignableTopicResponse] = []
    for topic in request.topics:
        partitions = yield from gradually(
            _result(each.partition_index, error.error_code, error.message or None)
            for each in topic.partitions
        )
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=partitions))
    return AlterPartitionReassignmentsResponse(
        error_code=error.error_code, error_message=error.message or None, responses=responses
    )


def refuse_list_reassignments(
    request: ListPartitionReassignmentsRequest, error: Refusal
) -> Generator[None, None, ListPartitionReassignmentsResponse]:
    """Make the error response, which has the requested partitions without replicas, as in Kafka."""
    topics: list[OngoingTopicReassignment] = []
    for topic in request.topics or ():
        partitions = yield from gradually(
            OngoingPartitionReassignment(
                partition_index=index, replicas=[], adding_replicas=[], removing_replicas=[]
            )
            for index in topic.partition_indexes
        )
        topics.append(OngoingTopicReassignment(name=topic.name, partitions=partitions))
        yield
    return ListPartitionReassignmentsResponse(
        error_code=error.error_code, error_message=error.message or None, topics=topics
    )
