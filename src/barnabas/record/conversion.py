"""Record sets of mixed formats: walking and reading them, as logs of an old Kafka hold them.

Conversion between the formats is in `up_conversion` and `down_conversion`.
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

# Any batch or message: overhead and, at the least, a message of magic 0 without its value.
_ENTRY_BYTES_MIN = 14
# Records per batch when converting upwards with gaps kept; an offset delta is 31 bits.
_DELTA_MAX = 0x7FFFFFFF


def entries(buffer: Buffer) -> Iterator[tuple[int, int, int]]:
    """Position, size and magic of each complete batch or message of any format.

    Raises:
        CorruptBatchError: a size that cannot be.
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
    """The highest format among the complete batches, -1 if there is none."""
    return max((magic for _, _, magic in entries(buffer)), default=-1)


def read_records(buffer: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """All records of complete batches of any format, control records left out."""
    for position, size, magic in entries(buffer):
        if magic == MAGIC_V2:
            header = read_header(buffer, position)
            if not header.is_control:
                yield from records_of(buffer, position, header, max_bytes)
        else:
            for message in messages(memoryview(buffer)[position : position + size]):
                yield from unwrap(message, max_bytes)


def to_v2_at_offsets(buffer: Buffer, leader_epoch: int = -1) -> Iterator[bytearray]:
    """One v2 batch per old message or wrapper, at the offsets that they have in the log."""
    for message, unwrapped in read_message_set(buffer):
        builder = BatchBuilder(
            base_offset=unwrapped[0].offset,
            compression=message.compression,
            timestamp_type=message.timestamp_type,
            log_append_time_ms=message.timestamp,
            leader_epoch=leader_epoch,
        )
        if not 0 <= unwrapped[-1].offset - unwrapped[0].offset <= _DELTA_MAX:
            raise CorruptBatchError("offsets of a compressed message do not grow")
        for record in unwrapped:
            _append(builder, record)
        yield builder.build()


def _append(builder: BatchBuilder, record: Record) -> None:
    try:
        builder.append_at(record)
    except ValueError as problem:
        raise CorruptBatchError(str(problem)) from None
