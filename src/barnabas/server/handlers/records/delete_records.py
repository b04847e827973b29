"""DeleteRecords (key 21, v0-2): delete records below an offset (KIP-107, KIP-204)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.topic_names import INTERNAL_TOPICS
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.log_offsets import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from barnabas.replication.requests.delayed_delete_records import DeleteRecordsResult
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting.delayed_operation import CanceledTogether
from barnabas.waiting.steps import gradually, in_parts

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies

# Partitions that one step deletes from: each replaces its file of leader epochs.
_AT_ONCE = 10


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that deletes records below an offset."""
    return DeleteRecordsHandler(dependencies).handle_delete_records


class DeleteRecordsHandler:
    """Deletes records, and responds when every live replica has raised its log start offset."""

    __slots__ = ("_cluster", "_replicas")

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._cluster = dependencies.cluster
        self._replicas = dependencies.replicas

    def handle_delete_records(self, context: RequestContext, request: DeleteRecordsRequest) -> None:
        """Delete records. Each result has the lowest log start offset of all replicas."""
        context.in_slices(self._delete(context, request))

    def _delete(
        self, context: RequestContext, request: DeleteRecordsRequest
    ) -> Generator[None, None, None]:
        results: dict[TopicPartition, DeleteRecordsResult] = {}
        offsets: dict[TopicPartition, int] = {}
        for topic in request.topics:
            for requested in topic.partitions:
                yield
                key = TopicPartition(topic.name, requested.partition_index)
                if not self._cluster.has_partition(*key):
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
            operations.add(self._replicas.delete_records(request.timeout_ms, dict(some), on_some))
            yield


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
