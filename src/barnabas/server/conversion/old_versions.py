"""Differences of old versions of Fetch and Produce (Kafka 3.9's KafkaApis and LogValidator).

Fetch v0 and v1 get message sets of magic 0, v2 and v3 of magic 1, if the log has a newer format. Up
to v5 a failed disk is reported as NOT_LEADER_OR_FOLLOWER. Below v10, a topic with zstd compression
cannot be read.

Produce v0 to v2 convert message sets of magic 0 and 1 to batches. A message set may be truncated or
empty. Its complete messages are converted. These versions may also carry magic 2, with any
compression and one batch at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.errors import ErrorCode
from barnabas.record.batch import read_header
from barnabas.record.compression import CODES
from barnabas.record.format_conversion import (
    RECORDS_PER_STEP,
    down_conversion,
    record_count,
    up_conversion,
)
from barnabas.record.record import (
    CorruptBatchError,
    InvalidMessageSetError,
    MessageSetTooLargeError,
    UnsupportedConversionError,
    UnsupportedMagicError,
)
from barnabas.replication.partition.results import FetchResult, failed_fetch
from barnabas.server.conversion.produced_records import Refusal, checked_records
from barnabas.storage.results import content_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.network.connection import Connection
    from barnabas.protocol.messages.fetch import FetchRequest
    from barnabas.replication.partition.fetch_params import FetchPartitionData
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.server.conversion.conversion_queue import ConversionQueue
    from barnabas.server.dispatch.request import RequestContext
    from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition
    from barnabas.waiting.steps import OffLoop

    RequestedPartition = tuple[TopicIdPartition, FetchPartitionData]

    PartitionResult = tuple[TopicIdPartition, FetchResult]

    # The batch to append, an error, or None if there is nothing to append.
    Converted = memoryview | Refusal | None


# First version without any of these differences.
ZSTD_SINCE = 10
FETCH_MAGIC_2_SINCE = 4
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
        if version < FETCH_MAGIC_2_SINCE:
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
            if version < FETCH_MAGIC_2_SINCE and not config.message_downconversion_enable:
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
    # Of a view, a copy, because the conversion keeps the records, and the view belongs to a cache.
    result.records = content_of(result.records)


PRODUCE_MAGIC_2_SINCE = 3
_MAGIC_POSITION = 16
_LENGTH = slice(8, 12)
_OVERHEAD = 12
# Version whose checks of magic 2 batches apply to these versions: zstd was never rejected.
_RULES_VERSION = 7


class OldProduce:
    """Converts records of old producers. Each connection has its own lane of the queue."""

    __slots__ = ("_queue", "_replicas")

    def __init__(self, replicas: ReplicaManager, queue: ConversionQueue) -> None:
        self._replicas = replicas
        self._queue = queue

    def convert(
        self,
        connection: Connection,
        sets: dict[TopicPartition, bytearray],
        on_done: Callable[[dict[TopicPartition, Converted]], None],
    ) -> None:
        """Convert the records of a request. `on_done` may be called before this method returns.

        Args:
            connection: connection of the request. Its record sets are appended in request order.
            sets: copies of the records by partition.
            on_done: called with the converted records or an error by partition.
        """
        self._queue.submit(connection, self._steps(sets), on_done, connection)

    def _steps(
        self, sets: dict[TopicPartition, bytearray]
    ) -> Generator[OffLoop | None, Any, dict[TopicPartition, Converted]]:
        converted: dict[TopicPartition, Converted] = {}
        # Number of partitions and records since the last step.
        done = 0
        for key, records in sets.items():
            done += 1
            if not _has_complete(records):
                converted[key] = None
            elif records[_MAGIC_POSITION] > 1:
                converted[key] = _checked(memoryview(records))
            else:
                found = converted[key] = yield from self._converted(key, records)
                if isinstance(found, memoryview):
                    count = read_header(found).record_count
                    self._replicas.metrics.topics[key.topic].produce_conversions += count
                    done += count
            if done >= RECORDS_PER_STEP:
                done = 0
                yield None
        return converted

    def _converted(
        self, key: TopicPartition, records: bytearray
    ) -> Generator[OffLoop | None, Any, Converted]:
        partition = self._replicas.partition(key)
        if isinstance(partition, ErrorCode):
            return Refusal(partition)
        config = partition.log.config
        # "producer" is not in the table: None keeps the original compression.
        target = CODES.get(config.compression_type)
        try:
            batch = yield from up_conversion(
                records, target, max_batch_bytes=config.max_message_bytes
            )
        except MessageSetTooLargeError:
            return Refusal(ErrorCode.MESSAGE_TOO_LARGE)
        except (InvalidMessageSetError, UnsupportedMagicError):
            return Refusal(ErrorCode.INVALID_RECORD)
        except CorruptBatchError:
            return Refusal(ErrorCode.CORRUPT_MESSAGE)
        return None if batch is None else memoryview(batch)


def _has_complete(records: bytearray) -> bool:
    if len(records) <= _MAGIC_POSITION:
        return False
    size = int.from_bytes(records[_LENGTH], "big", signed=True)
    return size + _OVERHEAD <= len(records)


def _checked(records: memoryview) -> memoryview | Refusal:
    if records[_MAGIC_POSITION] != 2:
        return Refusal(ErrorCode.CORRUPT_MESSAGE)
    return checked_records(records, _RULES_VERSION)
