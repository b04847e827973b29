"""Batches as message sets of magic 0 or 1: what a broker answers to Fetch v0 to v3.

Offsets and timestamps stay, headers are lost, control batches are left out (Kafka's
RecordsUtil.downConvert). The work is done in steps, as in `up_conversion`.
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
from barnabas.record.compression import (
    DECOMPRESSED_BYTES_MAX,
    NONE,
    ZSTD,
    decompressed_bytes_max,
)
from barnabas.record.conversion import entries
from barnabas.record.errors import (
    CorruptBatchError,
    DecompressedTooLargeError,
    UnsupportedConversionError,
)
from barnabas.record.legacy import MAGIC_V1, read_message_set, write_message_set, write_wrapper
from barnabas.record.reader import layouts, records_payload
from barnabas.record.up_conversion import RECORDS_PER_STEP
from barnabas.waiting.off_loop import OffLoop, run_steps

if TYPE_CHECKING:
    from collections.abc import Generator

_START_V0 = Struct(">bbi")
_START_V1 = Struct(">bbqi")
_LENGTH = Struct(">i")
_NULL = _LENGTH.pack(-1)
_OFFSET_MAX = (1 << 63) - 1
# An answer ends with the batch that makes it so large; a compressed batch that becomes more is
# refused. A message takes up to 34 bytes where a record takes 7.
CONVERTED_BYTES_MAX = 64 << 20

# Decompressed on the loop at most; a sixteenth of it is compressed there.
_INLINE_BYTES = 1 << 20
# What stands for batches of which nothing is left: the start of a message that does not fit.
# It tells an old consumer that something is there, as Kafka's answer does.
NOTHING_LEFT = OFFSET_AND_LENGTH.pack(-1, 61)


def down_conversion(
    buffer: Buffer,
    magic: int,
    first_offset: int = 0,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> Generator[OffLoop | None, Any, bytes]:
    """The complete batches of `buffer` in a format that an old consumer reads, in steps.

    What is old enough already is passed on as it is.

    Args:
        buffer: batches of any format; it must live until the last step.
        magic: 0 or 1.
        first_offset: where the consumer asked to read; uncompressed records before it are left
            out, which saves converting them.
        max_bytes: limit of what one batch may decompress to.

    Returns:
        A message set. It ends before a batch that is compressed with zstd.

    Raises:
        UnsupportedConversionError: the first batch is compressed with zstd, which the old formats
            lack.
        CorruptBatchError: anything malformed.
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
                # The consumer asks for the rest with its next request.
                break
        else:
            entry = memoryview(buffer)[position : position + size]
            for message, unwrapped in read_message_set(entry, max_bytes):
                output += write_message_set(magic, unwrapped, message.compression)
    return bytes(output) if output or is_empty else NOTHING_LEFT


def _payload(
    buffer: Buffer, position: int, header: BatchHeader, max_bytes: int
) -> Generator[OffLoop | None, Any, memoryview]:
    try:
        return records_payload(buffer, position, header, min(_INLINE_BYTES, max_bytes))
    except DecompressedTooLargeError:
        bytes_max = decompressed_bytes_max(header.compression, header.size, max_bytes)
    work = partial(records_payload, buffer, position, header, max_bytes)
    payload: memoryview = yield OffLoop(work, bytes_max)
    return payload


class _Batch:
    """One v2 batch on its way down."""

    __slots__ = ("_header", "_magic", "_payload", "_start")

    def __init__(self, header: BatchHeader, payload: memoryview, magic: int, start: int) -> None:
        self._header = header
        self._payload = payload
        self._magic = magic
        # Records before this offset are left out.
        self._start = start

    def convert(self, output: bytearray) -> Generator[OffLoop | None, Any, None]:
        """Append what the batch becomes.

        Raises:
            CorruptBatchError: more than CONVERTED_BYTES_MAX if it is compressed, or malformed.
        """
        header = self._header
        if header.compression == NONE:
            yield from self._write(output, 0)
            return
        inner = bytearray()
        shift = -1 if self._magic == MAGIC_V1 else 0
        last = yield from self._write(inner, shift)
        if inner:
            wrapped = (header.max_timestamp, header.timestamp_type)
            work = partial(write_wrapper, self._magic, last, inner, header.compression, wrapped)
            if len(inner) <= _INLINE_BYTES >> 4:
                output += work()
            else:
                output += yield OffLoop(work)

    def _write(self, output: bytearray, shift: int) -> Generator[None, None, int]:
        """Append each record as a message of its own.

        Args:
            shift: taken from each offset; -1 for that of the first record.

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
    """Records of the batches of magic 2 that are converted, by their headers."""
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
    """The same at once."""
    converted: bytes = run_steps(down_conversion(buffer, magic, first_offset, max_bytes))
    return converted
