"""Produce v0 to v2: message sets of magic 0 and 1 become batches (Kafka 3.9's LogValidator).

A set may be cut off, or empty: what is complete of it is taken. Magic 2 may come in these versions
too, in whatever compression, one batch at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.errors import ErrorCode
from barnabas.record.batch import read_header
from barnabas.record.compression import CODES
from barnabas.record.errors import (
    CorruptBatchError,
    InvalidMessageSetError,
    MessageSetTooLargeError,
    UnsupportedMagicError,
)
from barnabas.record.up_conversion import up_conversion
from barnabas.server.produced_records import Refusal, checked_records

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.network.connection import Connection
    from barnabas.protocol.chunks import Records
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.server.conversion_queue import ConversionQueue
    from barnabas.storage.topic_partition import TopicPartition
    from barnabas.waiting.off_loop import OffLoop

    # The batch to append, a refusal, or None when there is nothing to append.
    Converted = memoryview | Refusal | None

MAGIC_2_SINCE = 3
_MAGIC_POSITION = 16
_LENGTH = slice(8, 12)
_OVERHEAD = 12
# The first version whose rules for a magic 2 batch these versions share: zstd was never refused.
_RULES_VERSION = 7


class OldProduce:
    """Converts what old producers send; one lane of the queue for each connection."""

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
        """Convert the record sets of a request; `on_done` may be called before this returns.

        Args:
            connection: its sets are appended in the order of its requests.
            sets: views into the receive buffer; they are copied.
        """
        # The views die when the handler returns, the work may take longer.
        copies = {key: _copy(records) for key, records in sets.items()}
        self._queue.submit(connection, self._steps(copies), on_done, connection)

    def _steps(
        self, sets: dict[TopicPartition, bytearray]
    ) -> Generator[OffLoop | None, Any, dict[TopicPartition, Converted]]:
        converted: dict[TopicPartition, Converted] = {}
        for key, records in sets.items():
            if not _has_complete(records):
                converted[key] = None
            elif records[_MAGIC_POSITION] > 1:
                converted[key] = _checked(memoryview(records))
            else:
                converted[key] = yield from self._converted(key, records)
        return converted

    def _converted(
        self, key: TopicPartition, records: bytearray
    ) -> Generator[OffLoop | None, Any, Converted]:
        partition = self._replicas.partition(key)
        if isinstance(partition, ErrorCode):
            return Refusal(partition)
        config = partition.log.config
        # "producer" is none of the codes: as it came.
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
        if batch is None:
            return None
        counts = self._replicas.metrics.topics[key.topic]
        counts.produce_conversions += read_header(batch).record_count
        return memoryview(batch)


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
