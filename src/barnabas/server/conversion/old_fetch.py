"""Differences of old versions of Fetch (Kafka 3.9's KafkaApis).

v0 and v1 get message sets of magic 0, v2 and v3 of magic 1, if the log has a newer format. Up to v5
a failed disk is reported as NOT_LEADER_OR_FOLLOWER. Below v10, a topic with zstd compression cannot
be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.errors import ErrorCode
from barnabas.record.format_conversion import RECORDS_PER_STEP, down_conversion, record_count
from barnabas.record.record import CorruptBatchError, UnsupportedConversionError
from barnabas.replication.partition.results import FetchResult, failed_fetch

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.protocol.messages.fetch import FetchRequest
    from barnabas.replication.partition.fetch_params import FetchPartitionData
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.server.conversion.conversion_queue import ConversionQueue
    from barnabas.server.dispatch.request import RequestContext
    from barnabas.storage.topic_partition import TopicIdPartition
    from barnabas.waiting.off_loop import OffLoop

    RequestedPartition = tuple[TopicIdPartition, FetchPartitionData]
    PartitionResult = tuple[TopicIdPartition, FetchResult]

# First version without any of these differences.
ZSTD_SINCE = 10
MAGIC_2_SINCE = 4
_MAGIC_1_SINCE = 2
_STORAGE_ERROR_SINCE = 6
_ZSTD = "zstd"

# Limit of the bytes that are converted for one request, unless its limit for one partition is
# higher. The converted records are held in memory.
CONVERTED_BYTES_MAX = 8 << 20


def bytes_limit(request: FetchRequest, max_bytes: int) -> int:
    """Return the size limit of a response that must be converted.

    Conversion lowers the limit of the response, but never below the limit of a partition. Below v3
    a batch above the limit is not returned, so the consumer would never make progress.
    """
    largest = max(
        (
            partition.partition_max_bytes
            for topic in request.topics
            for partition in topic.partitions
        ),
        default=0,
    )
    return min(max_bytes, max(CONVERTED_BYTES_MAX, largest))


class OldFetch:
    """Adapts results to versions below 10."""

    __slots__ = ("_queue", "_replicas")

    def __init__(self, replicas: ReplicaManager, queue: ConversionQueue) -> None:
        self._replicas = replicas
        self._queue = queue

    def replace_errors(self, version: int, results: list[PartitionResult]) -> list[PartitionResult]:
        """Return the results with the errors of the version, before any conversion of records.

        Records that need a conversion are read from their files, because the segments may be
        deleted before the conversion ends.
        """
        replaced = [(key, self._adapted(version, key, result)) for key, result in results]
        if version < MAGIC_2_SINCE:
            for _, result in replaced:
                if len(result.records):
                    _read(result)
        return replaced

    def convert(
        self,
        context: RequestContext,
        results: list[PartitionResult],
        requested: list[RequestedPartition],
        on_done: Callable[[list[PartitionResult]], None],
    ) -> None:
        """Convert records to the message format of the request's version.

        Args:
            context: context of the request.
            results: results that `replace_errors` has returned.
            requested: partitions with the offsets that the consumer reads from.
            on_done: called with the converted results, perhaps before this method returns.
        """
        offsets = {key: data.fetch_offset for key, data in requested}
        steps = self._steps(results, offsets, 1 if context.version >= _MAGIC_1_SINCE else 0)
        job = self._queue.submit(steps, steps, on_done, context.connection)
        context.on_client_gone(job.cancel)

    def _adapted(self, version: int, key: TopicIdPartition, result: FetchResult) -> FetchResult:
        partition = self._replicas.partition(key.topic_partition)
        if not isinstance(partition, ErrorCode):
            config = partition.log.config
            if config.compression_type == _ZSTD:
                return failed_fetch(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            if version < MAGIC_2_SINCE and not config.message_downconversion_enable:
                return failed_fetch(ErrorCode.UNSUPPORTED_VERSION)
        if result.error is ErrorCode.KAFKA_STORAGE_ERROR and version < _STORAGE_ERROR_SINCE:
            return failed_fetch(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return result

    def _steps(
        self, results: list[PartitionResult], offsets: dict[TopicIdPartition, int], magic: int
    ) -> Generator[OffLoop | None, Any, list[PartitionResult]]:
        converted: list[PartitionResult] = []
        # Number of partitions and records since the last step.
        done = 0
        for key, result in results:
            done += 1
            source = result.records
            if source:
                assert isinstance(source, bytes)
                try:
                    result.records = yield from down_conversion(source, magic, offsets[key])
                    records = record_count(source)
                    self._replicas.metrics.topics[key.topic].fetch_conversions += records
                    done += records
                except UnsupportedConversionError:
                    result = failed_fetch(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
                except CorruptBatchError:
                    result = failed_fetch(ErrorCode.CORRUPT_MESSAGE)
            converted.append((key, result))
            if done >= RECORDS_PER_STEP:
                done = 0
                yield None
        return converted


def _read(result: FetchResult) -> None:
    if not isinstance(result.records, bytes):
        result.records = result.records.read()
