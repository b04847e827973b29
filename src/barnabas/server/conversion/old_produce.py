"""Produce v0 to v2: converts message sets of magic 0 and 1 to batches (Kafka 3.9's LogValidator).

A message set may be truncated or empty. Its complete messages are converted. These versions may
also carry magic 2, with any compression and one batch at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.errors import ErrorCode
from barnabas.record.batch import read_header
from barnabas.record.compression import CODES
from barnabas.record.format_conversion import RECORDS_PER_STEP, up_conversion
from barnabas.record.record import (
    CorruptBatchError,
    InvalidMessageSetError,
    MessageSetTooLargeError,
    UnsupportedMagicError,
)
from barnabas.server.conversion.produced_records import Refusal, checked_records

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.network.connection import Connection
    from barnabas.protocol.encoding import Records
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.server.conversion.conversion_queue import ConversionQueue
    from barnabas.storage.topic_partition import TopicPartition
    from barnabas.waiting.off_loop import OffLoop

    # The batch to append, an error, or None if there is nothing to append.
    Converted = memoryview | Refusal | None

MAGIC_2_SINCE = 3
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
        sets: dict[TopicPartition, Records | None],
        on_done: Callable[[dict[TopicPartition, Converted]], None],
    ) -> None:
        """Convert the records of a request. `on_done` may be called before this method returns.

        Args:
            connection: connection of the request. Its record sets are appended in request order.
            sets: records by partition, as views into the receive buffer. They are copied.
            on_done: called with the converted records or an error by partition.
        """
        # The views are valid only until the handler returns, and the conversion may take longer.
        copies = {key: _copy(records) for key, records in sets.items()}
        self._queue.submit(connection, self._steps(copies), on_done, connection)

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


def _copy(records: Records | None) -> bytearray:
    if records is None:
        return bytearray()
    assert isinstance(records, memoryview)
    return bytearray(records)


def _has_complete(records: bytearray) -> bool:
    if len(records) <= _MAGIC_POSITION:
        return False
    size = int.from_bytes(records[_LENGTH], "big", signed=True)
    return size + _OVERHEAD <= len(records)


def _checked(records: memoryview) -> memoryview | Refusal:
    if records[_MAGIC_POSITION] != 2:
        return Refusal(ErrorCode.CORRUPT_MESSAGE)
    return checked_records(records, _RULES_VERSION)
