"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: offsets of partitions.

- ListOffsets (key 2, v0-11) finds the offset for a timestamp, or for a special timestamp. v0
  returns a list of segment start offsets, v1 exactly one offset (KIP-79). v2 adds the isolation
  level, v4 leader epochs, v5 OFFSET_NOT_AVAILABLE and v7 the max timestamp (KIP-734). v8 adds
  earliest local, v9 latest tiered (KIP-405, KIP-1005), v10 a timeout and v11 earliest pending
  upload (KIP-1023).
- OffsetForLeaderEpoch (key 23, v0-4) finds the end offset of an epoch (KIP-101). v2 adds the
  current leader epoch (KIP-320), v3 the id of the follower.
- DeleteRecords (key 21, v0-2) deletes records below an offset (KIP-107, KIP-204).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.controller.topic_names import INTERNAL_TOPICS
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.log_offsets import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from barnabas.replication.links.source_offsets import LINK_TIMESTAMPS
from barnabas.replication.partition.fetch_params import (
    DEBUGGING_REPLICA_ID,
    ISOLATION_LEVELS,
    lookup_isolation,
)
from barnabas.replication.partition.offset_lookup import EARLIEST
from barnabas.replication.requests.delayed_writes import DeleteRecordsResult
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting.purgatory import CanceledTogether
from barnabas.waiting.steps import gradually, in_parts

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.replication.partition.results import ListOffsetResult
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.replication.requests.delayed_offset_lookups import PendingLookup
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.conversion.conversion_queue import ConversionQueue
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.waiting.steps import OffLoop


# First version of each special timestamp.
_SPECIAL_SINCE = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11, **dict.fromkeys(LINK_TIMESTAMPS, 1)}
_LEADER_EPOCH_SINCE = 4
_NOT_AVAILABLE_SINCE = 5
# Number of partitions that one turn of the loop looks up.
_LOOKUPS_PER_STEP = 20


class ListOffsetsHandler:
    """Looks up offsets in the replica of each partition."""

    __slots__ = ("_queue", "_replicas")

    def __init__(self, replicas: ReplicaManager, conversions: ConversionQueue) -> None:
        self._replicas = replicas
        self._queue = conversions

    def handle_list_offsets(
        self, context: RequestContext, request: ListOffsetsRequest
    ) -> ListOffsetsResponse | None:
        """Look up one result per partition. From v1 on, a repeated partition is INVALID_REQUEST.

        A lookup by timestamp may take several turns. The connection is not read in this time. A
        lookup in the remote tier is pending under a timeout.
        """
        if context.version == 0:
            return context.in_slices(self._build_old_response(request))
        if request.isolation_level not in ISOLATION_LEVELS:
            return context.in_slices(_refused(request))
        # Lookups that the remote tier must answer, and the operations that end with the client.
        pending: list[PendingLookup] = []
        started = CanceledTogether()
        context.on_client_gone(started.cancel)
        steps = self._build_response(context.version, request, pending)
        on_built = partial(self._on_built, context, request, pending, started)
        started.add(self._queue.submit(context, steps, on_built, context.connection))
        return None

    def _on_built(
        self,
        context: RequestContext,
        request: ListOffsetsRequest,
        pending: list[PendingLookup],
        started: CanceledTogether,
        response: ListOffsetsResponse,
    ) -> None:
        """Respond, after the remote tier has answered if a lookup needs it."""
        respond = partial(context.respond, response)
        if not pending:
            respond()
            return
        started.add(
            self._replicas.look_up_remotely(pending, request.timeout_ms, self._queue, respond)
        )

    def _build_response(
        self, version: int, request: ListOffsetsRequest, pending: list[PendingLookup]
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
            partition_responses: list[ListOffsetsPartitionResponse] = []
            for index, lookup in partitions.items():
                if lookup is None:
                    partition_responses.append(_failed(index, ErrorCode.INVALID_REQUEST))
                else:
                    partition_responses.append(
                        (yield from self._list_offset(version, request, name, lookup, pending))
                    )
                until_step -= 1
                if until_step <= 0:
                    until_step = _LOOKUPS_PER_STEP
                    yield None
            topics.append(ListOffsetsTopicResponse(name=name, partitions=partition_responses))
        return ListOffsetsResponse(topics=topics)

    def _build_old_response(
        self, request: ListOffsetsRequest
    ) -> Generator[None, None, ListOffsetsResponse]:
        topics: list[ListOffsetsTopicResponse] = []
        for topic in request.topics:
            partitions = yield from gradually(
                self._old_offsets(request.replica_id, topic.name, partition)
                for partition in topic.partitions
            )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
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
        pending: list[PendingLookup],
    ) -> Generator[OffLoop | None, Any, ListOffsetsPartitionResponse]:
        if requested.timestamp < 0 and version < _SPECIAL_SINCE.get(
            requested.timestamp, version + 1
        ):
            return _failed(requested.partition_index, ErrorCode.UNSUPPORTED_VERSION)
        only_leader = request.replica_id != DEBUGGING_REPLICA_ID
        key = TopicPartition(topic, requested.partition_index)
        result = yield from self._replicas.list_offset(
            key,
            requested.timestamp,
            lookup_isolation(request.replica_id, request.isolation_level),
            requested.current_leader_epoch,
            only_leader=only_leader,
        )
        response = _failed(requested.partition_index, ErrorCode.NONE)
        if result.remote is None:
            _fill(version, response, result)
        else:
            from barnabas.replication.requests.delayed_offset_lookups import PendingLookup

            epoch, on_done = requested.current_leader_epoch, partial(_fill, version, response)
            pending.append(PendingLookup(key, result.remote, epoch, only_leader, on_done))
        return response


def _fill(version: int, response: ListOffsetsPartitionResponse, result: ListOffsetResult) -> None:
    """Set the result of one partition in the response."""
    response.error_code = result.error
    if result.error is ErrorCode.OFFSET_NOT_AVAILABLE and version < _NOT_AVAILABLE_SINCE:
        response.error_code = ErrorCode.LEADER_NOT_AVAILABLE
        return
    response.timestamp = result.timestamp
    response.offset = result.offset
    response.leader_epoch = result.leader_epoch if version >= _LEADER_EPOCH_SINCE else -1


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


def offset_for_leader_epoch(replicas: ReplicaManager) -> Handle:
    """Return the handler that finds end offsets of leader epochs."""

    def handle_offset_for_leader_epoch(
        context: RequestContext,
        request: OffsetForLeaderEpochRequest,
    ) -> OffsetForLeaderEpochResponse | None:
        """Find the end offset of the requested epoch for each partition."""
        return context.in_slices(build_response(request))

    def build_response(
        request: OffsetForLeaderEpochRequest,
    ) -> Generator[None, None, OffsetForLeaderEpochResponse]:
        topics: list[OffsetForLeaderTopicResult] = []
        for topic in request.topics:
            ends = yield from gradually(
                end_offset(topic.topic, requested) for requested in topic.partitions
            )
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=ends))
            yield
        return OffsetForLeaderEpochResponse(topics=topics)

    def end_offset(topic: str, requested: OffsetForLeaderPartition) -> EpochEndOffset:
        end = replicas.epoch_end_offset(
            TopicPartition(topic, requested.partition),
            requested.current_leader_epoch,
            requested.leader_epoch,
        )
        return EpochEndOffset(
            error_code=end.error,
            partition=requested.partition,
            leader_epoch=end.epoch,
            end_offset=end.end_offset,
        )

    return handle_offset_for_leader_epoch


# Partitions that one step deletes from: each replaces its file of leader epochs.
_AT_ONCE = 10


def delete_records(cluster: ClusterView, replicas: ReplicaManager) -> Handle:
    """Return the handler that deletes records below an offset."""

    def handle_delete_records(context: RequestContext, request: DeleteRecordsRequest) -> None:
        """Delete records. Each result has the lowest log start offset of all replicas."""
        context.in_slices(delete(context, request))

    def delete(
        context: RequestContext, request: DeleteRecordsRequest
    ) -> Generator[None, None, None]:
        results: dict[TopicPartition, DeleteRecordsResult] = {}
        offsets: dict[TopicPartition, int] = {}
        for topic in request.topics:
            for requested in topic.partitions:
                yield
                key = TopicPartition(topic.name, requested.partition_index)
                if not cluster.has_partition(*key):
                    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    results[key] = DeleteRecordsResult(unknown)
                elif topic.name in INTERNAL_TOPICS:
                    results[key] = DeleteRecordsResult(ErrorCode.INVALID_TOPIC_EXCEPTION)
                else:
                    offsets[key] = requested.offset

        expected = len(results) + len(offsets)

        def on_some(done: dict[TopicPartition, DeleteRecordsResult]) -> None:
            results.update(done)
            if len(results) < expected:
                return
            try:
                context.respond_in_slices(_response(request, results))
            except Exception as error:  # noqa: BLE001 - the same call completes other requests
                context.give_up(error)

        operations = CanceledTogether()
        context.on_client_gone(operations.cancel)
        if not offsets:
            on_some({})
        for some in in_parts(list(offsets.items()), _AT_ONCE):
            operations.add(replicas.delete_records(request.timeout_ms, dict(some), on_some))
            yield

    return handle_delete_records


def _response(
    request: DeleteRecordsRequest, results: dict[TopicPartition, DeleteRecordsResult]
) -> Generator[None, None, DeleteRecordsResponse]:
    """Return the results in the order of the request. A repeated partition has one result."""
    by_topic: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        if topic.partitions:
            indexes = by_topic.setdefault(topic.name, {})
            for each in topic.partitions:
                indexes[each.partition_index] = None
                yield
    topics: list[DeleteRecordsTopicResult] = []
    for name, indexes in by_topic.items():
        partitions = yield from gradually(
            _partition(index, results[TopicPartition(name, index)]) for index in indexes
        )
        topics.append(DeleteRecordsTopicResult(name=name, partitions=partitions))
    return DeleteRecordsResponse(topics=topics)


def _partition(index: int, result: DeleteRecordsResult) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=result.low_watermark, error_code=result.error
    )
