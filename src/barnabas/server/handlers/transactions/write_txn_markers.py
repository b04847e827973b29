"""WriteTxnMarkers (key 27, v1-2): end transactions in partitions (v2 KIP-1228).

The transaction coordinator sends it to the leaders of the partitions.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinator.runtime.coordinator_record import TransactionEnding
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.server.peers.markers import WRITTEN_AT_ONCE
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting.steps import in_parts

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.peers.markers import MarkerWriter

    Results = dict[TopicPartition, ErrorCode]


# With this producer epoch or transaction version, Kafka fails with UNKNOWN_SERVER_ERROR.
_REJECTED = -1
# Partitions between two points where the work may continue in another turn.
_STEP = 100


def write_txn_markers(replicas: ReplicaManager, marker_writer: MarkerWriter) -> Handle:
    """Return the handler that writes markers."""

    def handle_write_txn_markers(
        context: RequestContext, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse | None:
        """Write each marker to each of its partitions."""
        return context.in_slices(steps(context, request))

    def steps(
        context: RequestContext, request: WriteTxnMarkersRequest
    ) -> Generator[None, None, WriteTxnMarkersResponse | None]:
        # By producer id: as in Kafka, the results of a producer's markers are merged.
        results: dict[int, Results] = {}
        waiting = 0
        is_parked = False

        def on_result(found: Results, key: TopicPartition, error: ErrorCode) -> None:
            nonlocal waiting
            found[key] = error
            waiting -= 1
            if is_parked and not waiting:
                context.respond_in_slices(_response(results))

        for marker in request.markers:
            yield
            keys = yield from _partitions(marker)
            if not keys:
                continue
            found = results.setdefault(marker.producer_id, {})
            error = _error_of(marker)
            online = []
            for number, key in enumerate(keys):
                if number % _STEP == 0:
                    yield
                partition = replicas.partition(key)
                if isinstance(partition, ErrorCode):
                    found[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif error is ErrorCode.NONE:
                    online.append(key)
                else:
                    found[key] = _unless_fenced(error, marker, partition)
            for some in in_parts(online, WRITTEN_AT_ONCE):
                waiting += len(some)
                marker_writer.write(_create_ending(marker), some, partial(on_result, found))
                yield
        if not waiting:
            return (yield from _response(results))
        is_parked = True
        return None

    return handle_write_txn_markers


def _partitions(
    marker: WritableTxnMarker,
) -> Generator[None, None, dict[TopicPartition, None]]:
    """Return the partitions without duplicates."""
    partitions: dict[TopicPartition, None] = {}
    for topic in marker.topics:
        yield
        for number, index in enumerate(topic.partition_indexes):
            partitions[TopicPartition(topic.name, index)] = None
            if number % _STEP == _STEP - 1:
                yield
    return partitions


def _error_of(marker: WritableTxnMarker) -> ErrorCode:
    if marker.producer_id < 0 or _REJECTED in (marker.producer_epoch, marker.transaction_version):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.INVALID_PRODUCER_EPOCH if marker.producer_epoch < 0 else ErrorCode.NONE


def _unless_fenced(error: ErrorCode, marker: WritableTxnMarker, partition: Partition) -> ErrorCode:
    """Return the error of a partition. As in Kafka, an old epoch precedes an unknown version."""
    state = partition.log.producer_state
    is_fenced = state.is_fenced(marker.producer_id, marker.producer_epoch)
    if is_fenced and marker.producer_epoch != _REJECTED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def _create_ending(marker: WritableTxnMarker) -> TransactionEnding:
    return TransactionEnding(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.transaction_result,
        marker.transaction_version,
    )


def _response(results: dict[int, Results]) -> Generator[None, None, WriteTxnMarkersResponse]:
    markers = []
    for producer_id, found in results.items():
        topics: dict[str, WritableTxnMarkerTopicResult] = {}
        for number, ((name, index), error) in enumerate(found.items()):
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = WritableTxnMarkerTopicResult(name=name, partitions=[])
            topic.partitions.append(
                WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
            )
            if number % _STEP == 0:
                yield
        markers.append(
            WritableTxnMarkerResult(producer_id=producer_id, topics=list(topics.values()))
        )
    return WriteTxnMarkersResponse(markers=markers)
