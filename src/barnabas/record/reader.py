"""Reading of v2 batches in pure Python, for the broker's own logs (KIP-98).

Clients use `columns` for many records, which reads them in C.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.record.batch import HEADER_SIZE, BatchHeader, Buffer, batches, read_header
from barnabas.record.compression import DECOMPRESSED_BYTES_MAX, NONE, decompress
from barnabas.record.record import CorruptBatchError, Record, read_varint

if TYPE_CHECKING:
    from collections.abc import Iterator

_INT64_MAX = (1 << 63) - 1
_INT64_MIN = -(1 << 63)

# One byte each: length, attributes, two deltas, sizes of key and value, number of headers.
RECORD_BYTES_MIN = 7

# Timestamp delta, offset delta, key start, key end, value start, value end, headers start, end. A
# null key or value has start -1.
RecordLayout = tuple[int, int, int, int, int, int, int, int]


def records_payload(
    buffer: Buffer, position: int, header: BatchHeader, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> memoryview:
    """Return the uncompressed bytes of all records of the batch at `position`.

    Returns:
        A view of `buffer` for an uncompressed batch, otherwise of new bytes.

    Raises:
        CorruptBatchError: the batch is truncated, its compression is malformed, or its decompressed
            size exceeds the limit.
    """
    end = position + header.size
    if end > len(buffer):
        raise CorruptBatchError(f"batch of {header.size} bytes at {position} is truncated")
    payload = memoryview(buffer)[position + HEADER_SIZE : end]
    if header.compression == NONE:
        return payload
    return memoryview(decompress(header.compression, payload, max_bytes))


def check_record_count(count: int, size: int) -> None:
    """Check that `count` records fit into `size` uncompressed bytes.

    Raises:
        CorruptBatchError: the count is negative or too large.
    """
    if not 0 <= count * RECORD_BYTES_MIN <= size:
        raise CorruptBatchError(f"{count} records do not fit into {size} bytes")


def layouts(payload: bytes | memoryview, count: int) -> Iterator[RecordLayout]:
    """Yield the positions of the parts of each record, without copying keys or values.

    Raises:
        CorruptBatchError: a length does not fit, or bytes remain after the last record.
    """
    position, size = 0, len(payload)
    check_record_count(count, size)
    for _ in range(count):
        try:
            length, position = read_varint(payload, position)
            end = position + length
            if length < 0 or end > size:
                raise CorruptBatchError(f"record of {length} bytes does not fit its batch")
            # The attributes byte of a record is unused.
            timestamp_delta, position = read_varint(payload, position + 1)
            offset_delta, position = read_varint(payload, position)
            key_start, key_end = _span(payload, position, end)
            value_start, value_end = _span(payload, key_end, end)
        except IndexError:
            raise CorruptBatchError("record is truncated") from None
        yield (
            timestamp_delta,
            offset_delta,
            key_start if key_start <= key_end else -1,
            key_end,
            value_start if value_start <= value_end else -1,
            value_end,
            value_end,
            end,
        )
        position = end
    if position != size:
        raise CorruptBatchError(f"{size - position} bytes remain after the last record")


def _span(payload: bytes | memoryview, position: int, limit: int) -> tuple[int, int]:
    """Return start and end of the field with its length at `position`; for null, start > end."""
    length, start = read_varint(payload, position)
    if length < 0:
        if start > limit:
            raise CorruptBatchError("record is truncated")
        return start + 1, start
    if start + length > limit:
        raise CorruptBatchError(f"field of {length} bytes does not fit its record")
    return start, start + length


def read_headers(
    payload: bytes | memoryview, position: int, end: int
) -> list[tuple[str, bytes | None]]:
    """Return the headers of a record between `position` and `end`.

    Invalid UTF-8 in header keys is replaced by replacement characters, as in Java.

    Raises:
        CorruptBatchError: the headers do not end exactly at `end`.
    """
    headers: list[tuple[str, bytes | None]] = []
    try:
        count, position = read_varint(payload, position)
        # Each header has at least two bytes, so a forged count is rejected before any work.
        if not 0 <= count <= (end - position) // 2:
            raise CorruptBatchError(f"header count {count} does not fit its record")
        for _ in range(count):
            start, position = _span(payload, position, end)
            if start > position:
                raise CorruptBatchError("header key is null")
            key = str(payload[start:position], "utf-8", "replace")
            start, position = _span(payload, position, end)
            headers.append((key, bytes(payload[start:position]) if start <= position else None))
    except IndexError:
        raise CorruptBatchError("headers are truncated") from None
    if position != end:
        raise CorruptBatchError(f"{end - position} bytes remain after a record's headers")
    return headers


def records(
    buffer: Buffer, position: int = 0, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> list[Record]:
    """Return all records of the v2 batch at `position`, including control records.

    Args:
        buffer: bytes with the whole batch; further bytes are ignored.
        position: start of the batch.
        max_bytes: maximum decompressed size of the records.

    Raises:
        CorruptBatchError: the data is malformed. The CRC is not checked.
    """
    return records_of(buffer, position, read_header(buffer, position), max_bytes)


def records_of(
    buffer: Buffer, position: int, header: BatchHeader, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> list[Record]:
    """Return the same as `records`, for a header that was already read."""
    return list(decoded_records(records_payload(buffer, position, header, max_bytes), header))


def first_record(
    buffer: Buffer, position: int, header: BatchHeader, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> Record:
    """Return the first record of the v2 batch at `position`, without reading the others.

    Raises:
        CorruptBatchError: the batch has no record or a malformed one. The CRC is not checked.
    """
    payload = records_payload(buffer, position, header, max_bytes)
    for record in decoded_records(payload, header):
        return record
    raise CorruptBatchError("the batch has no record")


def decoded_records(payload: memoryview, header: BatchHeader) -> Iterator[Record]:
    """Yield the records of a batch from the result of `records_payload`.

    Raises:
        CorruptBatchError: the data is malformed.
    """
    timestamp_type = header.timestamp_type
    append_time = header.max_timestamp if header.has_log_append_time else None
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    for layout in layouts(payload, header.record_count):
        delta, offset_delta, key, key_end, value, value_end, headers, end = layout
        timestamp = base_timestamp + delta if append_time is None else append_time
        offset = base_offset + offset_delta
        if not (_INT64_MIN <= timestamp <= _INT64_MAX and _INT64_MIN <= offset <= _INT64_MAX):
            raise CorruptBatchError("offset or timestamp of a record overflows")
        yield Record(
            offset,
            timestamp,
            timestamp_type,
            bytes(payload[key:key_end]) if key >= 0 else None,
            bytes(payload[value:value_end]) if value >= 0 else None,
            read_headers(payload, headers, end),
        )


def read_batches(
    buffer: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Yield header and records of each complete v2 batch; skip a truncated batch at the end."""
    for position, header in batches(buffer):
        yield header, records_of(buffer, position, header, max_bytes)
