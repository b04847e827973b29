"""DescribeTopicPartitions (key 75, v0): describe topics in pages, with ELR (KIP-966)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.topic_names import INTERNAL_TOPICS, problem_of
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import (
    CursorResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from barnabas.protocol.resources import AclOperation, AclResourceType
from barnabas.protocol.schema import ZERO_UUID
from barnabas.server.dispatch.slices import sorted_gradually
from barnabas.server.handlers.authorized_operations import TOPIC_OPERATIONS
from barnabas.waiting.steps import count_gradually, gradually

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.metadata.partition_registration import PartitionRegistration
    from barnabas.metadata.topics import TopicImage
    from barnabas.server.dispatch.access import Access
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies

_DESCRIBE, _TOPIC = int(AclOperation.DESCRIBE), int(AclResourceType.TOPIC)


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that describes topics in pages."""
    return DescribeTopicPartitionsHandler(dependencies).handle_describe_topic_partitions


class DescribeTopicPartitionsHandler:
    """Builds responses from the metadata image, with topics in the order of their names."""

    __slots__ = ("_cluster", "_partitions_max")

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._cluster = dependencies.cluster
        self._partitions_max = dependencies.config.integer("max.request.partition.size.limit")

    def handle_describe_topic_partitions(
        self,
        context: RequestContext,
        request: DescribeTopicPartitionsRequest,
    ) -> DescribeTopicPartitionsResponse | None:
        """Describe partitions from the cursor on, up to the limits of request and broker."""
        return context.in_slices(self._build_response(request, context.access))

    def _build_response(
        self, request: DescribeTopicPartitionsRequest, access: Access | None
    ) -> Generator[None, None, DescribeTopicPartitionsResponse]:
        cursor = request.cursor
        first_name = "" if cursor is None else cursor.topic_name
        first_partition = 0 if cursor is None else cursor.partition_index
        topics = self._cluster.image.topics
        requested = yield from count_gradually(topic.name for topic in request.topics)
        names = yield from sorted_gradually(list(requested or topics.names()))
        response = DescribeTopicPartitionsResponse(topics=[], next_cursor=None)
        is_invalid = cursor is not None and bool(requested) and first_name not in requested
        if is_invalid or first_partition < 0:
            # Return one error per requested topic, in request order and with repetitions.
            response.topics = yield from gradually(
                _failed(topic.name, ErrorCode.INVALID_REQUEST) for topic in request.topics
            )
            return response
        # Requested topics that the client may not describe. They come last.
        refused: list[str] = []
        remaining = max(1, min(request.response_partition_limit, self._partitions_max))
        for name in names:
            yield
            if name < first_name:
                continue
            if access is not None and not access.allows(
                _DESCRIBE, _TOPIC, name, is_logged=bool(requested)
            ):
                if requested:
                    refused.append(name)
                continue
            topic = topics.by_name(name)
            if topic is None:
                response.topics.append(_unknown(name))
                continue
            start = first_partition if name == first_name else 0
            indexes = [index for index in sorted(topic.partitions) if index >= start]
            if remaining == 0 and indexes:
                response.next_cursor = CursorResponse(topic_name=name, partition_index=indexes[0])
                break
            response.topics.append((yield from self._topic(topic, indexes[:remaining])))
            if len(indexes) > remaining:
                response.next_cursor = CursorResponse(
                    topic_name=name, partition_index=indexes[remaining]
                )
                break
            remaining -= len(indexes)
        if access is not None:
            for each in response.topics:
                each.topic_authorized_operations = access.operations(_TOPIC, each.name or "")
                yield
            response.topics += yield from gradually(
                _failed(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in refused
            )
        return response

    def _topic(
        self, topic: TopicImage, indexes: list[int]
    ) -> Generator[None, None, DescribeTopicPartitionsResponseTopic]:
        partitions = yield from gradually(
            self._partition(index, topic.partitions[index]) for index in indexes
        )
        return DescribeTopicPartitionsResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=partitions,
            topic_authorized_operations=TOPIC_OPERATIONS,
        )

    def _partition(
        self, index: int, partition: PartitionRegistration
    ) -> DescribeTopicPartitionsResponsePartition:
        alive = self._cluster.is_alive
        led = alive(partition.leader)
        return DescribeTopicPartitionsResponsePartition(
            error_code=ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=index,
            leader_id=partition.leader if led else -1,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            eligible_leader_replicas=list(partition.elr),
            last_known_elr=list(partition.last_known_elr),
            offline_replicas=self._cluster.offline_replicas(partition),
        )


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    legal = problem_of(name) is None
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    made = _failed(name, unknown if legal else ErrorCode.INVALID_TOPIC_EXCEPTION)
    made.topic_authorized_operations = TOPIC_OPERATIONS
    return made


def _failed(name: str, error: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error,
        name=name,
        topic_id=ZERO_UUID,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
    )
