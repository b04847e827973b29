"""Conversion between record batches (magic 2) and message sets of magic 0 or 1.

Produce v0 to v2 need the conversion to one batch. A set may have messages of one magic, or a single
compressed message, as in Kafka's LogValidator. Fetch v0 to v3 need the conversion to message sets.
Offsets and timestamps are kept, headers are lost, and control batches are skipped (Kafka's
RecordsUtil.downConvert).

Both conversions run Python code for each record. They therefore run in steps, and an event loop can
do other work between the steps.
"""

from __future__ import annotations

import zlib
from functools import partial
from struct import Struct, error
from typing import TYPE_CHECKING, Any

from barnabas.record.batch import (
    LOG_APPEND_TIME,
    MAGIC_V2,
    OFFSET_AND_LENGTH,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    Buffer,
    read_header,
)
from barnabas.record.builder import BatchBuilder
from barnabas.record.compression import DECOMPRESSED_BYTES_MAX, NONE, ZSTD, decompressed_bytes_max
from barnabas.record.legacy import (
    MAGIC_V1,
    Message,
    decompressed_set,
    entries,
    inner_messages,
    messages,
    read_message_set,
    write_message_set,
    write_wrapper,
)
from barnabas.record.reader import layouts, records_payload
from barnabas.record.record import (
    CorruptBatchError,
    DecompressedTooLargeError,
    InvalidMessageSetError,
    MessageSetTooLargeError,
    UnsupportedConversionError,
)
from barnabas.waiting.steps import OffLoop, run_steps

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable


# Records per step: about one millisecond of work.
RECORDS_PER_STEP = 250
# Maximum bytes decompressed on the loop; one sixteenth of it is compressed on the loop.
_INLINE_BYTES = 1 << 20
_START_V0 = Struct(">bbi")
_START_V1 = Struct(">bbqi")
_LENGTH = Struct(">i")
_NULL = _LENGTH.pack(-1)
_OFFSET_MAX = (1 << 63) - 1
# A response ends with the batch that exceeds this size. A single compressed batch that exceeds it
# is rejected. Conversion can enlarge a record from 7 bytes to a message of 34 bytes.
CONVERTED_BYTES_MAX = 64 << 20
_GROWTH_MAX = 5

# Result if all batches are skipped: the start of a truncated message. An old consumer skips it and
# fetches again, as with Kafka's response.
TRUNCATED_MESSAGE = OFFSET_AND_LENGTH.pack(-1, 61)


def up_conversion(
    buffer: Buffer,
    compression: int | None = None,
    log_append_time_ms: int | None = None,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
    max_batch_bytes: int | None = None,
) -> Generator[OffLoop | None, Any, bytearray | None]:
    """Convert all records of an old message set to one v2 batch in steps, with offsets from 0.

    Args:
        buffer: a message set of magic 0 or 1 from a client; it must stay valid until the last step.
        compression: compression of the result; None for that of the set.
        log_append_time_ms: timestamp of all records; if None, each record keeps its own, which is
            -1 for messages of magic 0.
        max_bytes: maximum decompressed size of the set.
        max_batch_bytes: maximum size of each message as received and, if nothing is compressed, of
            the batch; None for no limit. A larger size stops the conversion early.

    Returns:
        The batch; None if the set has no complete message.

    Raises:
        InvalidMessageSetError: the set combines messages that must not be combined.
        MessageSetTooLargeError: the size exceeds `max_batch_bytes`.
        CorruptBatchError: the data is malformed.
    """
    builder = BatchBuilder()
    magic, source = -1, NONE
    until_step = RECORDS_PER_STEP
    for message in messages(buffer):
        source = message.compression or source
        if magic >= 0 and (source != NONE or message.magic != magic):
            raise InvalidMessageSetError(
                "a set must contain messages of one magic, or a single compressed message"
            )
        magic = message.magic
        _check_size(message.size, max_batch_bytes)
        for timestamp, key, value in (yield from _contents(message, max_bytes)):
            builder.append(timestamp, key, value)
            if (source if compression is None else compression) == NONE:
                _check_size(builder.estimated_size, max_batch_bytes)
            until_step -= 1
            if not until_step:
                until_step = RECORDS_PER_STEP
                yield None
    if builder.is_empty:
        return None
    builder.compression = source if compression is None else compression
    if log_append_time_ms is not None:
        builder.timestamp_type = LOG_APPEND_TIME
        builder.log_append_time_ms = log_append_time_ms
    if builder.compression == NONE or builder.estimated_size <= _INLINE_BYTES >> 4:
        return builder.build()
    batch: bytearray = yield OffLoop(builder.build)
    return batch


def _check_size(size: int, limit: int | None) -> None:
    if limit is not None and size > limit:
        raise MessageSetTooLargeError(f"{size} bytes exceed the limit of {limit}")


def _contents(
    message: Message, max_bytes: int
) -> Generator[OffLoop | None, Any, Iterable[tuple[int, bytes | None, bytes | None]]]:
    """Return timestamp, key and value of a plain message, or of each message in a wrapper."""
    if message.compression == NONE:
        return [message.content(message.timestamp)]
    try:
        inner_set = decompressed_set(message, min(_INLINE_BYTES, max_bytes))
    except DecompressedTooLargeError:
        size = 0 if message.value is None else len(message.value)
        # The builder needs as much for its records, their compressed form, and the batch.
        bytes_max = 3 * decompressed_bytes_max(message.compression, size, max_bytes)
        work = partial(decompressed_set, message, max_bytes)
        inner_set = yield OffLoop(work, bytes_max, lambda content: 3 * len(content))
    is_append_time = message.timestamp_type == LOG_APPEND_TIME
    return (
        inner.content(message.timestamp if is_append_time else inner.timestamp)
        for inner in inner_messages(message, inner_set)
    )


def to_v2(
    buffer: Buffer,
    compression: int | None = None,
    log_append_time_ms: int | None = None,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> bytearray:
    """Run `up_conversion` in one turn, and return its batch.

    Raises:
        CorruptBatchError: the data is malformed, or the set is empty.
    """
    steps = up_conversion(buffer, compression, log_append_time_ms, max_bytes)
    batch: bytearray | None = run_steps(steps)
    if batch is None:
        raise CorruptBatchError("message set is empty")
    return batch


def down_conversion(
    buffer: Buffer,
    magic: int,
    first_offset: int = 0,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> Generator[OffLoop | None, Any, bytes]:
    """Convert the complete batches of `buffer` to an old format, in steps.

    Batches that are already old enough are copied unchanged.

    Args:
        buffer: batches of any format; it must stay valid until the last step.
        magic: 0 or 1.
        first_offset: the consumer's fetch offset. Uncompressed records before it are skipped, which
            saves work.
        max_bytes: maximum decompressed size of one batch.

    Returns:
        A message set. It ends before a batch that is compressed with zstd.

    Raises:
        UnsupportedConversionError: the first batch is compressed with zstd, which the old formats
            do not support.
        CorruptBatchError: the data is malformed.
    """
    output = bytearray()
    is_empty = True
    for position, size, found in entries(buffer):
        is_empty = False
        if found <= magic:
            output += memoryview(buffer)[position : position + size]
        elif found == MAGIC_V2:
            header = read_header(buffer, position)
            if header.is_control:
                continue
            if header.compression == ZSTD:
                if output:
                    break
                raise UnsupportedConversionError("zstd batches cannot be converted")
            payload = yield from _payload(buffer, position, header, max_bytes)
            start = first_offset if header.compression == NONE else header.base_offset
            try:
                yield from _Batch(header, payload, magic, start).convert(output)
            except error:
                raise CorruptBatchError("a record's timestamp overflows") from None
            if len(output) >= CONVERTED_BYTES_MAX:
                # The consumer fetches the remaining batches with its next request.
                break
        else:
            entry = memoryview(buffer)[position : position + size]
            for message, unwrapped in read_message_set(entry, max_bytes):
                output += write_message_set(magic, unwrapped, message.compression)
    return bytes(output) if output or is_empty else TRUNCATED_MESSAGE


def _payload(
    buffer: Buffer, position: int, header: BatchHeader, max_bytes: int
) -> Generator[OffLoop | None, Any, memoryview]:
    try:
        return records_payload(buffer, position, header, min(_INLINE_BYTES, max_bytes))
    except DecompressedTooLargeError:
        bytes_max = decompressed_bytes_max(header.compression, header.size, max_bytes)
    work = partial(records_payload, buffer, position, header, max_bytes)
    payload: memoryview = yield OffLoop(
        work, _memory_of(bytes_max), lambda content: _memory_of(len(content))
    )
    return payload


def _memory_of(payload_bytes: int) -> int:
    """Return the most memory that records, their messages and the compressed messages take."""
    return payload_bytes + 2 * min(CONVERTED_BYTES_MAX, _GROWTH_MAX * payload_bytes)


class _Batch:
    """Conversion of one v2 batch."""

    __slots__ = ("_header", "_magic", "_payload", "_start")

    def __init__(self, header: BatchHeader, payload: memoryview, magic: int, start: int) -> None:
        self._header = header
        self._payload = payload
        self._magic = magic
        # Records before this offset are skipped.
        self._start = start

    def convert(self, output: bytearray) -> Generator[OffLoop | None, Any, None]:
        """Append the converted batch.

        Raises:
            CorruptBatchError: it is malformed, or compressed and larger than CONVERTED_BYTES_MAX.
        """
        header = self._header
        if header.compression == NONE:
            yield from self._write(output, 0)
            return
        inner = bytearray()
        shift = -1 if self._magic == MAGIC_V1 else 0
        last = yield from self._write(inner, shift)
        if inner:
            stamp = (header.max_timestamp, header.timestamp_type)
            work = partial(write_wrapper, self._magic, last, inner, header.compression, stamp)
            if len(inner) <= _INLINE_BYTES >> 4:
                output += work()
            else:
                output += yield OffLoop(work)

    def _write(self, output: bytearray, shift: int) -> Generator[None, None, int]:
        """Append each record as a message.

        Args:
            shift: subtracted from each offset; -1 selects the offset of the first record.

        Returns:
            Offset of the last record.
        """
        header, payload, magic = self._header, self._payload, self._magic
        attributes = TIMESTAMP_TYPE_FLAG if header.timestamp_type == LOG_APPEND_TIME else 0
        append_time = header.max_timestamp if header.has_log_append_time else None
        base_offset, base_timestamp = header.base_offset, header.base_timestamp
        is_compressed = header.compression != NONE
        until_step = RECORDS_PER_STEP
        offset = base_offset
        for delta, offset_delta, key, key_end, value, value_end, _, _ in layouts(
            payload, header.record_count
        ):
            offset = base_offset + offset_delta
            if offset < self._start:
                continue
            if offset > _OFFSET_MAX:
                raise CorruptBatchError("offset of a record overflows")
            if shift < 0:
                shift = offset
            timestamp = base_timestamp + delta if append_time is None else append_time
            key_size = key_end - key if key >= 0 else -1
            if magic == MAGIC_V1:
                start = _START_V1.pack(1, attributes, timestamp, key_size)
            else:
                start = _START_V0.pack(0, 0, key_size)
            body = b"".join(
                (
                    start,
                    payload[key:key_end] if key >= 0 else b"",
                    _NULL if value < 0 else _LENGTH.pack(value_end - value),
                    payload[value:value_end] if value >= 0 else b"",
                )
            )
            if is_compressed and len(output) + len(body) > CONVERTED_BYTES_MAX:
                raise CorruptBatchError("a batch is too large to be converted")
            output += OFFSET_AND_LENGTH.pack(offset - shift, len(body) + 4)
            output += zlib.crc32(body).to_bytes(4, "big")
            output += body
            until_step -= 1
            if not until_step:
                until_step = RECORDS_PER_STEP
                yield
        return offset


def record_count(buffer: Buffer) -> int:
    """Return the number of records in convertible magic 2 batches, from their headers."""
    count = 0
    for position, _, found in entries(buffer):
        if found == MAGIC_V2:
            header = read_header(buffer, position)
            if not header.is_control and header.compression != ZSTD:
                count += header.record_count
    return count


def down_convert(
    buffer: Buffer,
    magic: int,
    first_offset: int = 0,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> bytes:
    """Run `down_conversion` in one turn, and return its result."""
    converted: bytes = run_steps(down_conversion(buffer, magic, first_offset, max_bytes))
    return converted
