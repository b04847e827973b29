"""ListOffsets (key 2, v0-11): find the offset for a timestamp, or for a special timestamp.

v0 returns a list of segment start offsets, v1 exactly one offset (KIP-79). v2 adds the isolation
level, v4 leader epochs, v5 OFFSET_NOT_AVAILABLE and v7 the max timestamp (KIP-734). v8 adds
earliest local, v9 latest tiered (KIP-405, KIP-1005), v10 a timeout and v11 earliest pending upload
(KIP-1023).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.replication.partition.fetch_params import (
    DEBUGGING_REPLICA_ID,
    ISOLATION_LEVELS,
    lookup_isolation,
)
from barnabas.replication.partition.offset_lookup import EARLIEST
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting.steps import gradually

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies
    from barnabas.waiting.off_loop import OffLoop

# First version of each special timestamp.
_SPECIAL_SINCE = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
_LEADER_EPOCH_SINCE = 4
_NOT_AVAILABLE_SINCE = 5
# Number of partitions that one turn of the loop looks up.
_LOOKUPS_PER_STEP = 20


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that looks up offsets by timestamp."""
    return ListOffsetsHandler(dependencies).handle_list_offsets


class ListOffsetsHandler:
    """Looks up offsets in the replica of each partition."""

    __slots__ = ("_queue", "_replicas")

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._replicas = dependencies.replicas
        self._queue = dependencies.conversions

    def handle_list_offsets(
        self, context: RequestContext, request: ListOffsetsRequest
    ) -> ListOffsetsResponse | None:
        """Look up one result per partition. From v1 on, a repeated partition is INVALID_REQUEST.

        A lookup by timestamp may take several turns. The connection is not read in this time.
        """
        if context.version == 0:
            return context.in_slices(self._build_old_response(request))
        if request.isolation_level not in ISOLATION_LEVELS:
            return context.in_slices(_refused(request))
        steps = self._build_response(context.version, request)
        job = self._queue.submit(context, steps, context.respond, context.connection)
        context.on_client_gone(job.cancel)
        return None

    def _build_response(
        self, version: int, request: ListOffsetsRequest
    ) -> Generator[OffLoop | None, Any, ListOffsetsResponse]:
        # Partitions by topic name, which merges repeated topics. The value of a repeated partition
        # is None.
        by_topic: dict[str, dict[int, ListOffsetsPartition | None]] = {}
        until_step = _LOOKUPS_PER_STEP
        for topic in request.topics:
            if not topic.partitions:
                continue
            requested = by_topic.setdefault(topic.name, {})
            for partition in topic.partitions:
                index = partition.partition_index
                requested[index] = None if index in requested else partition
            until_step -= 1 + len(topic.partitions)
            if until_step <= 0:
                until_step = _LOOKUPS_PER_STEP
                yield None
        topics: list[ListOffsetsTopicResponse] = []
        for name, partitions in by_topic.items():
            found: list[ListOffsetsPartitionResponse] = []
            for index, lookup in partitions.items():
                if lookup is None:
                    found.append(_failed(index, ErrorCode.INVALID_REQUEST))
                else:
                    found.append((yield from self._list_offset(version, request, name, lookup)))
                until_step -= 1
                if until_step <= 0:
                    until_step = _LOOKUPS_PER_STEP
                    yield None
            topics.append(ListOffsetsTopicResponse(name=name, partitions=found))
        return ListOffsetsResponse(topics=topics)

    def _build_old_response(
        self, request: ListOffsetsRequest
    ) -> Generator[None, None, ListOffsetsResponse]:
        topics: list[ListOffsetsTopicResponse] = []
        for topic in request.topics:
            found = yield from gradually(
                self._old_offsets(request.replica_id, topic.name, partition)
                for partition in topic.partitions
            )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=found))
            yield
        return ListOffsetsResponse(topics=topics)

    def _old_offsets(
        self, replica_id: int, topic: str, requested: ListOffsetsPartition
    ) -> ListOffsetsPartitionResponse:
        if requested.timestamp < EARLIEST:
            return _failed(requested.partition_index, ErrorCode.UNSUPPORTED_VERSION)
        if requested.max_num_offsets < 0:
            return _failed(requested.partition_index, ErrorCode.UNKNOWN_SERVER_ERROR)
        offsets = self._replicas.offsets_before(
            TopicPartition(topic, requested.partition_index),
            requested.timestamp,
            requested.max_num_offsets,
            lookup_isolation(replica_id, 0),
            only_leader=replica_id != DEBUGGING_REPLICA_ID,
        )
        if isinstance(offsets, ErrorCode):
            return _failed(requested.partition_index, offsets)
        return ListOffsetsPartitionResponse(
            partition_index=requested.partition_index, error_code=0, old_style_offsets=offsets
        )

    def _list_offset(
        self,
        version: int,
        request: ListOffsetsRequest,
        topic: str,
        requested: ListOffsetsPartition,
    ) -> Generator[OffLoop | None, Any, ListOffsetsPartitionResponse]:
        if requested.timestamp < 0 and version < _SPECIAL_SINCE.get(
            requested.timestamp, version + 1
        ):
            return _failed(requested.partition_index, ErrorCode.UNSUPPORTED_VERSION)
        result = yield from self._replicas.list_offset(
            TopicPartition(topic, requested.partition_index),
            requested.timestamp,
            lookup_isolation(request.replica_id, request.isolation_level),
            requested.current_leader_epoch,
            only_leader=request.replica_id != DEBUGGING_REPLICA_ID,
        )
        if result.error is ErrorCode.OFFSET_NOT_AVAILABLE and version < _NOT_AVAILABLE_SINCE:
            return _failed(requested.partition_index, ErrorCode.LEADER_NOT_AVAILABLE)
        return ListOffsetsPartitionResponse(
            partition_index=requested.partition_index,
            error_code=result.error,
            timestamp=result.timestamp,
            offset=result.offset,
            leader_epoch=result.leader_epoch if version >= _LEADER_EPOCH_SINCE else -1,
        )


def _refused(request: ListOffsetsRequest) -> Generator[None, None, ListOffsetsResponse]:
    """Return the error response to an invalid isolation level."""
    topics: list[ListOffsetsTopicResponse] = []
    for topic in request.topics:
        partitions = yield from gradually(
            _failed(each.partition_index, ErrorCode.UNKNOWN_SERVER_ERROR)
            for each in topic.partitions
        )
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        yield
    return ListOffsetsResponse(topics=topics)


def _failed(index: int, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=error)
