"""Reading the records of v2 batches in pure Python, for the broker's own logs (KIP-98).

Clients that want many records fast use `columns`, which reads them in C.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.record.batch import HEADER_SIZE, BatchHeader, Buffer, batches, read_header
from barnabas.record.compression import DECOMPRESSED_BYTES_MAX, NONE, decompress
from barnabas.record.errors import CorruptBatchError
from barnabas.record.record import Record
from barnabas.record.varint import read_varint

if TYPE_CHECKING:
    from collections.abc import Iterator

_INT64_MAX = (1 << 63) - 1
_INT64_MIN = -(1 << 63)

# Length, attributes, two deltas, sizes of key and value, number of headers: a byte each.
RECORD_BYTES_MIN = 7

# timestamp delta, offset delta, key start, key end, value start, value end, headers start, end.
# A null key or value has start -1.
RecordLayout = tuple[int, int, int, int, int, int, int, int]


def records_payload(
    buffer: Buffer, position: int, header: BatchHeader, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> memoryview:
    """The uncompressed bytes of all records of the batch at `position`.

    Returns:
        A view into `buffer` for an uncompressed batch, else of new bytes.

    Raises:
        CorruptBatchError: the batch is cut off, or its compression is broken or a bomb.
    """
    end = position + header.size
    if end > len(buffer):
        raise CorruptBatchError(f"batch of {header.size} bytes at {position} is cut off")
    payload = memoryview(buffer)[position + HEADER_SIZE : end]
    if header.compression == NONE:
        return payload
    return memoryview(decompress(header.compression, payload, max_bytes))


def check_record_count(count: int, size: int) -> None:
    """Check that so many records can lie in `size` uncompressed bytes.

    Raises:
        CorruptBatchError: the count is negative, or too large.
    """
    if not 0 <= count * RECORD_BYTES_MIN <= size:
        raise CorruptBatchError(f"{count} records do not fit into {size} bytes")


def layouts(payload: bytes | memoryview, count: int) -> Iterator[RecordLayout]:
    """Where the parts of each of `count` records are, without copying keys or values.

    Raises:
        CorruptBatchError: a length that does not fit, or bytes left over behind the last record.
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
            raise CorruptBatchError("record is cut off") from None
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
        raise CorruptBatchError(f"{size - position} bytes are left behind the last record")


def _span(payload: bytes | memoryview, position: int, limit: int) -> tuple[int, int]:
    """Start and end of the bytes with a length at `position`; null starts behind its end."""
    length, start = read_varint(payload, position)
    if length < 0:
        if start > limit:
            raise CorruptBatchError("record is cut off")
        return start + 1, start
    if start + length > limit:
        raise CorruptBatchError(f"field of {length} bytes does not fit its record")
    return start, start + length


def read_headers(
    payload: bytes | memoryview, position: int, end: int
) -> list[tuple[str, bytes | None]]:
    """The headers of a record, which lie from `position` to `end`.

    Header keys that are not UTF-8 are shown with replacement characters, as Java does.

    Raises:
        CorruptBatchError: they do not fill those bytes exactly.
    """
    headers: list[tuple[str, bytes | None]] = []
    try:
        count, position = read_varint(payload, position)
        # Each header takes two bytes at least: a forged count is found before any work.
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
        raise CorruptBatchError("headers are cut off") from None
    if position != end:
        raise CorruptBatchError(f"{end - position} bytes are left behind a record's headers")
    return headers


def records(
    buffer: Buffer, position: int = 0, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> list[Record]:
    """All records of the v2 batch at `position`, control records too.

    Args:
        buffer: bytes that hold the whole batch; what follows it is ignored.
        position: where the batch starts.
        max_bytes: limit of what the records may decompress to.

    Raises:
        CorruptBatchError: anything malformed. The CRC is not checked here.
    """
    return records_of(buffer, position, read_header(buffer, position), max_bytes)


def records_of(
    buffer: Buffer, position: int, header: BatchHeader, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> list[Record]:
    """The same as `records`, with the header already read."""
    return list(iter_records_of(buffer, position, header, max_bytes))


def iter_records_of(
    buffer: Buffer, position: int, header: BatchHeader, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """The same, one record after the other."""
    return decoded_records(records_payload(buffer, position, header, max_bytes), header)


def first_record(
    buffer: Buffer, position: int, header: BatchHeader, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> Record:
    """The first record of the v2 batch at `position`; those behind it are not looked at.

    Raises:
        CorruptBatchError: no record, or a malformed one. The CRC is not checked here.
    """
    payload = records_payload(buffer, position, header, max_bytes)
    for record in decoded_records(payload, header):
        return record
    raise CorruptBatchError("the batch has no record")


def decoded_records(payload: memoryview, header: BatchHeader) -> Iterator[Record]:
    """The records of a batch, from what `records_payload` has returned.

    Raises:
        CorruptBatchError: anything malformed.
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
    """Header and records of each complete v2 batch; a cut-off tail is left out."""
    for position, header in batches(buffer):
        yield header, records_of(buffer, position, header, max_bytes)
