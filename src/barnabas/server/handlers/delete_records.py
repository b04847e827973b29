"""DeleteRecords: key 21, v0-2. Forget what lies below an offset (KIP-107, KIP-204)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.topic_names import INTERNAL_TOPICS
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from barnabas.replication.delayed_delete_records import DeleteRecordsResult
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from barnabas.server.parts import ServerParts
    from barnabas.server.request import Handle, RequestContext


def handler(parts: ServerParts) -> Handle:
    """The handler of this API."""
    return DeleteRecordsHandler(parts).handle_delete_records


class DeleteRecordsHandler:
    """Answers when every live replica of every partition has forgotten what it should."""

    __slots__ = ("_cluster", "_replicas")

    def __init__(self, parts: ServerParts) -> None:
        self._cluster = parts.cluster
        self._replicas = parts.replicas

    def handle_delete_records(self, context: RequestContext, request: DeleteRecordsRequest) -> None:
        """One answer per partition: where the log of the slowest replica begins now."""
        results: dict[TopicPartition, DeleteRecordsResult] = {}
        offsets: dict[TopicPartition, int] = {}
        for topic in request.topics:
            for asked in topic.partitions:
                key = TopicPartition(topic.name, asked.partition_index)
                if not self._cluster.has_partition(*key):
                    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    results[key] = DeleteRecordsResult(unknown)
                elif topic.name in INTERNAL_TOPICS:
                    results[key] = DeleteRecordsResult(ErrorCode.INVALID_TOPIC_EXCEPTION)
                else:
                    offsets[key] = asked.offset

        def respond(done: dict[TopicPartition, DeleteRecordsResult]) -> None:
            context.respond(_response(request, {**results, **done}))

        operation = self._replicas.delete_records(request.timeout_ms, offsets, respond)
        context.on_client_gone(operation.cancel)


def _response(
    request: DeleteRecordsRequest, results: dict[TopicPartition, DeleteRecordsResult]
) -> DeleteRecordsResponse:
    """The results in the order of the request; what is named twice is answered once."""
    by_topic: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        if topic.partitions:
            indexes = by_topic.setdefault(topic.name, {})
            indexes.update(dict.fromkeys(each.partition_index for each in topic.partitions))
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=name,
                partitions=[
                    _partition(index, results[TopicPartition(name, index)]) for index in indexes
                ],
            )
            for name, indexes in by_topic.items()
        ]
    )


def _partition(index: int, result: DeleteRecordsResult) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=result.low_watermark, error_code=result.error
    )
