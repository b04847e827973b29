"""Iteration over record sets of mixed formats, as in logs of old Kafka versions.

`up_conversion` and `down_conversion` convert between the formats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.record.batch import (
    LOG_OVERHEAD,
    MAGIC_V2,
    OFFSET_AND_LENGTH,
    Buffer,
    magic_of,
    read_header,
)
from barnabas.record.builder import BatchBuilder
from barnabas.record.compression import DECOMPRESSED_BYTES_MAX
from barnabas.record.errors import CorruptBatchError
from barnabas.record.legacy import messages, read_message_set, unwrap
from barnabas.record.reader import records_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.record.record import Record

# Minimum value of the length field: a message of magic 0 without key and value.
_ENTRY_BYTES_MIN = 14
# Maximum offset delta in a batch, when a conversion keeps gaps.
_DELTA_MAX = 0x7FFFFFFF


def entries(buffer: Buffer) -> Iterator[tuple[int, int, int]]:
    """Yield position, size and magic of each complete batch or message of any format.

    Raises:
        CorruptBatchError: a length is too small.
    """
    position, end = 0, len(buffer)
    while end - position > LOG_OVERHEAD + 4:
        _, length = OFFSET_AND_LENGTH.unpack_from(buffer, position)
        if length < _ENTRY_BYTES_MIN:
            raise CorruptBatchError(f"batch length {length} at {position} is too small")
        size = length + LOG_OVERHEAD
        if size > end - position:
            return
        yield position, size, magic_of(buffer, position)
        position += size


def newest_magic(buffer: Buffer) -> int:
    """Return the highest magic of the complete batches, -1 without batches."""
    return max((magic for _, _, magic in entries(buffer)), default=-1)


def read_records(buffer: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """Yield the records of all complete batches of any format, without control records."""
    for position, size, magic in entries(buffer):
        if magic == MAGIC_V2:
            header = read_header(buffer, position)
            if not header.is_control:
                yield from records_of(buffer, position, header, max_bytes)
        else:
            for message in messages(memoryview(buffer)[position : position + size]):
                yield from unwrap(message, max_bytes)


def to_v2_at_offsets(buffer: Buffer, leader_epoch: int = -1) -> Iterator[bytearray]:
    """Yield one v2 batch per old message or wrapper, with unchanged offsets."""
    for message, unwrapped in read_message_set(buffer):
        builder = BatchBuilder(
            base_offset=unwrapped[0].offset,
            compression=message.compression,
            timestamp_type=message.timestamp_type,
            log_append_time_ms=message.timestamp,
            leader_epoch=leader_epoch,
        )
        if not 0 <= unwrapped[-1].offset - unwrapped[0].offset <= _DELTA_MAX:
            raise CorruptBatchError("offsets of a compressed message do not increase")
        for record in unwrapped:
            _append(builder, record)
        yield builder.build()


def _append(builder: BatchBuilder, record: Record) -> None:
    try:
        builder.append_at(record)
    except ValueError as problem:
        raise CorruptBatchError(str(problem)) from None
