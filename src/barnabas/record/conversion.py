"""Conversion between message formats for old clients: Produce v0-2 upwards, Fetch v0-3 downwards.

Also reads records of any format, for logs that an old Kafka wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.record.batch import (
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_V2,
    OFFSET_AND_LENGTH,
    Buffer,
    magic_of,
    read_header,
)
from barnabas.record.builder import BatchBuilder
from barnabas.record.compression import DECOMPRESSED_BYTES_MAX, NONE, ZSTD
from barnabas.record.errors import CorruptBatchError
from barnabas.record.legacy import messages, read_message_set, unwrap, write_message_set
from barnabas.record.reader import records_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.record.record import Record

# Any batch or message: overhead and, at the least, a message of magic 0 without its value.
_ENTRY_BYTES_MIN = 14
# Records per batch when converting upwards with gaps kept; an offset delta is 31 bits.
_DELTA_MAX = 0x7FFFFFFF


class UnsupportedConversionError(ValueError):
    """A batch that cannot be put into the older format (zstd), answered as such to the client."""


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


def to_v2(
    buffer: Buffer,
    compression: int | None = None,
    log_append_time_ms: int | None = None,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> bytearray:
    """One v2 batch of all records of an old message set; offsets count from 0 without gaps.

    Args:
        buffer: a message set of magic 0 or 1 as a client sent it.
        compression: of the result; None for that of the set's last compressed message.
        log_append_time_ms: if given, the time of all records; otherwise each keeps its own,
            -1 for messages of magic 0, which have none.
        max_bytes: limit of what the set may decompress to.

    Raises:
        CorruptBatchError: anything malformed, or an empty set.
    """
    builder = BatchBuilder()
    source = NONE
    for message, unwrapped in read_message_set(buffer, max_bytes):
        source = message.compression or source
        for record in unwrapped:
            builder.append(record.timestamp, record.key, record.value)
    if builder.is_empty:
        raise CorruptBatchError("message set is empty")
    builder.compression = source if compression is None else compression
    if log_append_time_ms is not None:
        builder.timestamp_type = LOG_APPEND_TIME
        builder.log_append_time_ms = log_append_time_ms
    return builder.build()


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


def down_convert(
    buffer: Buffer,
    magic: int,
    first_offset: int = 0,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> bytes:
    """The complete batches of `buffer` in a format that an old consumer reads.

    Offsets and timestamps stay, headers are lost, control batches are left out. What is old enough
    already is passed on as it is.

    Args:
        buffer: batches of any format.
        magic: 0 or 1.
        first_offset: where the consumer asked to read; uncompressed records before it are left
            out, which saves converting them.
        max_bytes: limit of what one batch may decompress to.

    Raises:
        UnsupportedConversionError: a batch is compressed with zstd, which the old formats lack.
        CorruptBatchError: anything malformed.
    """
    output = bytearray()
    for position, size, found in entries(buffer):
        if found <= magic:
            output += memoryview(buffer)[position : position + size]
        elif found == MAGIC_V2:
            output += _batch_down(buffer, position, magic, first_offset, max_bytes)
        else:
            entry = memoryview(buffer)[position : position + size]
            for message, unwrapped in read_message_set(entry, max_bytes):
                output += write_message_set(magic, unwrapped, message.compression)
    return bytes(output)


def _batch_down(
    buffer: Buffer, position: int, magic: int, first_offset: int, max_bytes: int
) -> bytes:
    header = read_header(buffer, position)
    if header.is_control:
        return b""
    if header.compression == ZSTD:
        raise UnsupportedConversionError("zstd batches cannot be converted for old consumers")
    kept = records_of(buffer, position, header, max_bytes)
    if header.compression == NONE:
        kept = [record for record in kept if record.offset >= first_offset]
    return write_message_set(magic, kept, header.compression) if kept else b""
