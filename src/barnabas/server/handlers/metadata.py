"""Metadata (key 3, v0-13) and DescribeTopicPartitions (key 75, v0): describe topics.

Metadata describes brokers, topics and leaders, and creates missing topics. v4 adds the choice
whether to create topics, v5 offline replicas and v7 leader epochs. v8 adds authorized operations
(KIP-430), v10 topic ids, v12 requests by topic id (KIP-516) and v13 a top-level error.

DescribeTopicPartitions describes topics in pages, with eligible leader replicas (KIP-966).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.topic_names import INTERNAL_TOPICS, problem_of
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import metadata as messages
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.resources import AclOperation, AclResourceType
from barnabas.protocol.schema import ZERO_UUID
from barnabas.server.dispatch.slices import sorted_gradually
from barnabas.server.handlers.authorized_operations import (
    CLUSTER_OPERATIONS,
    NOT_REQUESTED,
    TOPIC_OPERATIONS,
)
from barnabas.waiting.steps import count_gradually, gradually

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.metadata.partition_registration import PartitionRegistration
    from barnabas.metadata.topics import TopicImage
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.cluster.lost_leaders import LostLeaders
    from barnabas.server.controller_access.auto_topics import AutoTopics
    from barnabas.server.dispatch.request import Access, RequestContext
    from barnabas.settings.definition import ParsedConfig


_TOPIC_IDS_SINCE = 12


class MetadataHandler:
    """Builds responses from the current metadata image."""

    __slots__ = ("_auto_topics", "_cluster", "_cluster_id", "_lost_leaders", "_node_id")

    def __init__(
        self,
        cluster: ClusterView,
        cluster_id: str,
        node_id: int,
        auto_topics: AutoTopics,
        lost_leaders: LostLeaders,
    ) -> None:
        self._cluster = cluster
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._auto_topics = auto_topics
        self._lost_leaders = lost_leaders

    def handle_metadata(
        self, context: RequestContext, request: MetadataRequest
    ) -> MetadataResponse | None:
        """Describe all topics, or the requested ones."""
        if request.topics and self._lost_leaders.delay(
            map(self._image_of, request.topics), lambda: self._serve_delayed(context, request)
        ):
            return None
        return context.in_slices(self._build_response(context, request))

    def _serve_delayed(self, context: RequestContext, request: MetadataRequest) -> None:
        if context.is_needed:
            context.respond_in_slices(self._build_response(context, request))

    def _image_of(self, topic: MetadataRequestTopic) -> TopicImage | None:
        image = self._cluster.image.topics
        return image.by_id(topic.topic_id) if topic.name is None else image.by_name(topic.name)

    def _build_response(
        self, context: RequestContext, request: MetadataRequest
    ) -> Generator[None, None, MetadataResponse]:
        has_ids = lacks_name = False
        for topic in request.topics or ():
            has_ids = has_ids or topic.topic_id != ZERO_UUID
            lacks_name = lacks_name or topic.name is None
            yield
        if context.version < _TOPIC_IDS_SINCE and (has_ids or lacks_name):
            return (yield from _refused(request))
        if has_ids:
            # If a request has any topic ids, respond for those topics only, as Kafka does.
            request.topics = yield from gradually(
                MetadataRequestTopic(topic_id=topic.topic_id, name=None)
                for topic in request.topics or ()
                if topic.topic_id != ZERO_UUID
            )
        operations = (
            TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_REQUESTED
        )
        topics = yield from self._topics(context, request, operations)
        response = MetadataResponse(
            brokers=[
                MetadataResponseBroker(
                    node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
                for broker, endpoint in self._cluster.listed_brokers(context.listener_name)
            ],
            cluster_id=self._cluster_id,
            controller_id=self._cluster.controller_for_clients(self._node_id),
            topics=topics,
        )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = CLUSTER_OPERATIONS
        return response

    def _topics(
        self, context: RequestContext, request: MetadataRequest, operations: int
    ) -> Generator[None, None, list[MetadataResponseTopic]]:
        requested, listener = request.topics, context.listener_name
        # Use the same image for all topics, because the work may take several turns.
        image = self._cluster.image.topics
        if requested is None or (context.version == 0 and not requested):
            every: list[MetadataResponseTopic] = []
            for found in image:
                described = yield from self._topic(found, listener, operations)
                every.append(described)
            return every
        responses: dict[str | bytes, MetadataResponseTopic] = {}
        missing: list[str] = []
        for topic in requested:
            key = topic.topic_id if topic.name is None else topic.name
            yield
            if key not in responses:
                known = (
                    image.by_id(topic.topic_id) if topic.name is None else image.by_name(topic.name)
                )
                responses[key] = (
                    _unknown(topic, operations)
                    if known is None
                    else (yield from self._topic(known, listener, operations))
                )
                if (
                    responses[key].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    and topic.name is not None
                ):
                    missing.append(topic.name)
        if missing and (request.allow_auto_topic_creation or context.version < 4):
            self._auto_topics.create(missing)
        return list(responses.values())

    def _topic(
        self, topic: TopicImage, listener_name: str, operations: int
    ) -> Generator[None, None, MetadataResponseTopic]:
        partitions = yield from gradually(
            self._partition(index, topic.partitions[index], listener_name)
            for index in sorted(topic.partitions)
        )
        return MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=partitions,
            topic_authorized_operations=operations,
        )

    def _partition(
        self, index: int, partition: PartitionRegistration, listener_name: str
    ) -> MetadataResponsePartition:
        leader = partition.leader
        error = ErrorCode.NONE
        if not self._cluster.is_alive(leader):
            leader, error = -1, ErrorCode.LEADER_NOT_AVAILABLE
        elif self._cluster.endpoint(leader, listener_name) is None:
            leader, error = -1, ErrorCode.LISTENER_NOT_FOUND
        return MetadataResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            offline_replicas=self._cluster.offline_replicas(partition),
        )


def _refused(request: MetadataRequest) -> Generator[None, None, MetadataResponse]:
    """Return the error response to a request by id in a version without topic ids."""
    topics = []
    for requested in request.topics or ():
        topic = _failed(requested, ErrorCode.INVALID_REQUEST, NOT_REQUESTED)
        topic.name = requested.name or ""
        topic.topic_id = requested.topic_id
        topics.append(topic)
        yield
    return MetadataResponse(brokers=[], cluster_id=None, controller_id=-1, topics=topics)


def _unknown(requested: MetadataRequestTopic, operations: int) -> MetadataResponseTopic:
    """Return the entry for a topic that does not exist."""
    if requested.name is None:
        return _failed(requested, ErrorCode.UNKNOWN_TOPIC_ID, operations)
    is_legal = problem_of(requested.name) is None
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    error = unknown if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION
    return _failed(requested, error, operations)


def _failed(
    requested: MetadataRequestTopic, error: ErrorCode, operations: int
) -> MetadataResponseTopic:
    name = requested.name
    return MetadataResponseTopic(
        error_code=error,
        name=name,
        topic_id=requested.topic_id if name is None else ZERO_UUID,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
        topic_authorized_operations=operations if name is not None else NOT_REQUESTED,
    )


_DESCRIBE, _TOPIC = int(AclOperation.DESCRIBE), int(AclResourceType.TOPIC)


class DescribeTopicPartitionsHandler:
    """Builds responses from the metadata image, with topics in the order of their names."""

    __slots__ = ("_cluster", "_partitions_max")

    def __init__(self, cluster: ClusterView, config: ParsedConfig) -> None:
        self._cluster = cluster
        self._partitions_max = config.integer("max.request.partition.size.limit")

    def handle_describe_topic_partitions(
        self,
        context: RequestContext,
        request: messages.DescribeTopicPartitionsRequest,
    ) -> messages.DescribeTopicPartitionsResponse | None:
        """Describe partitions from the cursor on, up to the limits of request and broker."""
        return context.in_slices(self._build_response(request, context.access))

    def _build_response(
        self, request: messages.DescribeTopicPartitionsRequest, access: Access | None
    ) -> Generator[None, None, messages.DescribeTopicPartitionsResponse]:
        cursor = request.cursor
        first_name = "" if cursor is None else cursor.topic_name
        first_partition = 0 if cursor is None else cursor.partition_index
        topics = self._cluster.image.topics
        requested = yield from count_gradually(topic.name for topic in request.topics)
        names = yield from sorted_gradually(list(requested or topics.names()))
        response = messages.DescribeTopicPartitionsResponse(topics=[], next_cursor=None)
        is_invalid = cursor is not None and bool(requested) and first_name not in requested
        if is_invalid or first_partition < 0:
            # Return one error per requested topic, in request order and with repetitions.
            response.topics = yield from gradually(
                _failed_topic(topic.name, ErrorCode.INVALID_REQUEST) for topic in request.topics
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
                response.topics.append(_unknown_topic(name))
                continue
            start = first_partition if name == first_name else 0
            indexes = [index for index in sorted(topic.partitions) if index >= start]
            if remaining == 0 and indexes:
                response.next_cursor = messages.CursorResponse(
                    topic_name=name, partition_index=indexes[0]
                )
                break
            response.topics.append((yield from self._topic(topic, indexes[:remaining])))
            if len(indexes) > remaining:
                response.next_cursor = messages.CursorResponse(
                    topic_name=name, partition_index=indexes[remaining]
                )
                break
            remaining -= len(indexes)
        if access is not None:
            for each in response.topics:
                each.topic_authorized_operations = access.operations(_TOPIC, each.name or "")
                yield
            response.topics += yield from gradually(
                _failed_topic(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in refused
            )
        return response

    def _topic(
        self, topic: TopicImage, indexes: list[int]
    ) -> Generator[None, None, messages.DescribeTopicPartitionsResponseTopic]:
        partitions = yield from gradually(
            self._partition(index, topic.partitions[index]) for index in indexes
        )
        return messages.DescribeTopicPartitionsResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=partitions,
            topic_authorized_operations=TOPIC_OPERATIONS,
        )

    def _partition(
        self, index: int, partition: PartitionRegistration
    ) -> messages.DescribeTopicPartitionsResponsePartition:
        alive = self._cluster.is_alive
        led = alive(partition.leader)
        return messages.DescribeTopicPartitionsResponsePartition(
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


def _unknown_topic(name: str) -> messages.DescribeTopicPartitionsResponseTopic:
    legal = problem_of(name) is None
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic = _failed_topic(name, unknown if legal else ErrorCode.INVALID_TOPIC_EXCEPTION)
    topic.topic_authorized_operations = TOPIC_OPERATIONS
    return topic


def _failed_topic(name: str, error: ErrorCode) -> messages.DescribeTopicPartitionsResponseTopic:
    return messages.DescribeTopicPartitionsResponseTopic(
        error_code=error,
        name=name,
        topic_id=ZERO_UUID,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
    )
