"""Decoding of record batches into columns, without an object per record (KIP-98, with numpy).

A Python loop finds the start of each record. The fields of all records are then decoded together.
Keys and values stay in the buffer until Arrow collects them in one call.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from barnabas.record.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_V2,
    BatchHeader,
    ControlType,
    parse_control_key,
    read_header,
)
from barnabas.record.compression import DECOMPRESSED_BYTES_MAX, NONE
from barnabas.record.legacy import entries, to_v2_at_offsets
from barnabas.record.reader import records_of, records_payload
from barnabas.record.record import CorruptBatchError, read_varint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Int64s = NDArray[np.int64]

# Decompressed bytes that are decoded together.
_CHUNK_BYTES = 64 << 20
# Approximate limit of records decoded together. A small batch may have millions of records.
DECODED_RECORDS_MAX = 500_000
# After this many records, search for a run of equally sized records.
_RUN_PROBE = 64
# Maximum records of a run that are compared together.
_COMPARED_MAX = 4096


class Region(NamedTuple):
    """Uncompressed records of one batch inside a buffer."""

    start: int
    end: int
    header: BatchHeader


class DecodedRecords(NamedTuple):
    """Records as columns; positions refer to `buffer`, and a null key or value has a size < 0."""

    buffer: bytes
    offsets: Int64s
    # In ms since the epoch.
    timestamps: Int64s
    # 0 for create time, 1 for log append time.
    timestamp_types: Int64s
    key_starts: Int64s
    key_sizes: Int64s
    value_starts: Int64s
    value_sizes: Int64s
    # Start of the headers, which begin with their count.
    header_starts: Int64s
    ends: Int64s

    def between(self, first: int, end: int) -> DecodedRecords:
        """Return the records with first <= offset < end."""
        offsets = self.offsets
        if not len(offsets) or (offsets[0] >= first and offsets[-1] < end):
            return self
        kept = np.flatnonzero((offsets >= first) & (offsets < end))
        return DecodedRecords(self.buffer, *(column[kept] for column in self[1:]))


def decode_record_set(
    data: bytes, aborted: Sequence[tuple[int, int]] = ()
) -> Iterator[DecodedRecords]:
    """Decode the records of a fetched record set, without control records.

    Args:
        data: complete batches of any format.
        aborted: (producer id, first offset) of the aborted transactions in the fetch response;
            their records are skipped.

    Yields:
        Columns for one part of the set at a time, which limits the memory of compressed sets.

    Raises:
        CorruptBatchError: the data is malformed. The caller checks the CRCs.
    """
    pending: list[tuple[memoryview, BatchHeader]] = []
    pending_bytes = 0
    in_place: list[Region] = []
    for position, header in _visible_batches(data, aborted):
        if header.compression == NONE and not pending:
            in_place.append(Region(position + HEADER_SIZE, position + header.size, header))
            continue
        if in_place:
            yield from _decode(data, in_place)
            in_place = []
        pending.append((records_payload(data, position, header), header))
        pending_bytes += len(pending[-1][0])
        if pending_bytes >= _CHUNK_BYTES:
            yield from _decode_joined(pending)
            pending, pending_bytes = [], 0
    if in_place:
        yield from _decode(data, in_place)
    if pending:
        yield from _decode_joined(pending)


def upgraded(data: bytes) -> bytes:
    """Convert batches of magic 0 and 1 to v2; return `data` itself if all batches are v2."""
    found = list(entries(data))
    if all(magic == MAGIC_V2 for _, _, magic in found):
        return data
    parts: list[bytes | bytearray] = []
    for position, size, magic in found:
        entry = data[position : position + size]
        parts += [entry] if magic == MAGIC_V2 else list(to_v2_at_offsets(entry))
    return b"".join(parts)


def _visible_batches(
    data: bytes, aborted: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the batches that consumers receive: no control batches, no aborted transactions."""
    upcoming = sorted(aborted, key=lambda transaction: transaction[1])
    open_aborted: set[int] = set()
    index = position = 0
    while len(data) - position >= HEADER_SIZE:
        header = read_header(data, position)
        if position + header.size > len(data):
            return
        while index < len(upcoming) and upcoming[index][1] <= header.last_offset:
            open_aborted.add(upcoming[index][0])
            index += 1
        if header.is_control:
            if header.producer_id in open_aborted and _is_abort(data, position, header):
                open_aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborted):
            yield position, header
        position += header.batch_length + LOG_OVERHEAD


def _is_abort(data: bytes, position: int, header: BatchHeader) -> bool:
    markers = records_of(data, position, header, DECOMPRESSED_BYTES_MAX)
    return any(parse_control_key(marker.key) is ControlType.ABORT for marker in markers)


def _decode_joined(parts: list[tuple[memoryview, BatchHeader]]) -> Iterator[DecodedRecords]:
    regions, position = [], 0
    for payload, header in parts:
        regions.append(Region(position, position + len(payload), header))
        position += len(payload)
    return _decode(b"".join(payload for payload, _ in parts), regions)


def record_starts(buffer: bytes, start: int, end: int, limit: int) -> tuple[array[int], int]:
    """Return the position of each record between `start` and `end`.

    A record begins with its length.

    Args:
        limit: stop after this number of records, or slightly more.

    Returns:
        The positions, and the position after the last of these records.

    Raises:
        CorruptBatchError: the records do not end at `end`.
    """
    starts = array("q")
    append = starts.append
    position = start
    try:
        while position < end and len(starts) < limit:
            for _ in range(_RUN_PROBE):
                append(position)
                size = buffer[position]
                if size < 0x80:
                    position += 1 + (size >> 1)
                else:
                    high = buffer[position + 1]
                    if high < 0x80:
                        position += 2 + ((size & 0x7F | high << 7) >> 1)
                    else:
                        size, position = read_varint(buffer, position)
                        position += max(size, 0)
                if position >= end:
                    break
            else:
                position = _skip_run(buffer, starts, position, end)
    except IndexError:
        raise CorruptBatchError("record is truncated") from None
    if position > end:
        raise CorruptBatchError(f"records end at {position}, but their batch ends at {end}")
    return starts, position


def _skip_run(buffer: bytes, starts: array[int], position: int, end: int) -> int:
    """Skip a run of records of one size; return the position after it.

    A record that begins with the same length bytes as the previous record has the same size. So
    comparing strided bytes gives the exact length of the run.
    """
    stride = position - starts[-1]
    if starts[-1] - starts[-2] != stride or starts[-2] - starts[-3] != stride:
        return position
    width = _varint_width(buffer, starts[-1])
    length_bytes = buffer[starts[-1] : starts[-1] + width]
    count = _RUN_PROBE
    # Compare more records each time, because most runs are very short or very long.
    while count < _COMPARED_MAX and (count := min(2 * count, (end - position) // stride)):
        rows = np.frombuffer(buffer, np.uint8, count * stride, position).reshape(count, stride)
        differs = np.zeros(count, np.bool_)
        for index, byte in enumerate(length_bytes):
            differs |= rows[:, index] != byte
        first = int(differs.argmax())
        run = first if differs[first] else count
        after = position + run * stride
        starts.frombytes(np.arange(position, after, stride, dtype=np.int64).tobytes())
        position = after
        if run < count:
            break
    return position


def _varint_width(buffer: bytes, position: int) -> int:
    width = 1
    while buffer[position + width - 1] >= 0x80:
        width += 1
    return width


def _decode(buffer: bytes, regions: list[Region]) -> Iterator[DecodedRecords]:
    """Decode the records of all regions, about DECODED_RECORDS_MAX at a time."""
    starts = array("q")
    # Regions of `starts`, and the number of starts in each.
    parts: list[Region] = []
    counts: list[int] = []
    for region in regions:
        position, count = region.start, 0
        while position < region.end:
            limit = DECODED_RECORDS_MAX - len(starts)
            found, position = record_starts(buffer, position, region.end, limit)
            starts += found
            parts.append(region)
            counts.append(len(found))
            count += len(found)
            if count > region.header.record_count:
                break
            if len(starts) >= DECODED_RECORDS_MAX:
                yield _decode_starts(buffer, starts, parts, counts)
                starts, parts, counts = array("q"), [], []
        if count != region.header.record_count:
            raise CorruptBatchError(
                f"batch contains {count} records, but the count in its header is "
                f"{region.header.record_count}"
            )
    if starts:
        yield _decode_starts(buffer, starts, parts, counts)


def _decode_starts(
    buffer: bytes, starts: array[int], parts: list[Region], counts: list[int]
) -> DecodedRecords:
    try:
        return _columns(buffer, np.frombuffer(starts, np.int64), parts, counts)
    except IndexError:
        raise CorruptBatchError("record is truncated") from None


def _columns(
    buffer: bytes, starts: Int64s, regions: list[Region], counts: list[int]
) -> DecodedRecords:
    raw = np.frombuffer(buffer, np.uint8)
    sizes, position = _varints(raw, starts)
    ends = position + sizes
    # The attributes byte of a record is unused.
    timestamp_deltas, position = _varints(raw, position + 1)
    offset_deltas, position = _varints(raw, position)
    key_sizes, key_starts = _varints(raw, position)
    value_sizes, value_starts = _varints(raw, key_starts + np.maximum(key_sizes, 0))
    header_starts = value_starts + np.maximum(value_sizes, 0)
    # Each size is checked separately first, because sums of forged sizes could overflow.
    limit = len(buffer)
    for column in (sizes, key_sizes, value_sizes):
        if len(column) and column.max() > limit:
            raise CorruptBatchError("a length does not fit its batch")
    if (header_starts > ends).any() or (ends > limit).any():
        raise CorruptBatchError("fields of a record do not fit into it")
    offsets, timestamps, types = _from_headers(regions, counts, offset_deltas, timestamp_deltas)
    return DecodedRecords(
        buffer, offsets, timestamps, types, key_starts, key_sizes, value_starts, value_sizes,
        header_starts, ends,
    )  # fmt: skip


def _from_headers(
    regions: list[Region], counts: list[int], offset_deltas: Int64s, timestamp_deltas: Int64s
) -> tuple[Int64s, Int64s, Int64s]:
    """Return offsets, timestamps and timestamp types, which depend on the batch headers."""
    headers = [region.header for region in regions]
    base_offsets = np.array([header.base_offset for header in headers], np.int64)
    base_times = np.array([header.base_timestamp for header in headers], np.int64)
    types = np.array([header.timestamp_type for header in headers], np.int64)
    if len(offset_deltas) and (offset_deltas.min() < 0 or offset_deltas.max() > 0x7FFFFFFF):
        raise CorruptBatchError("an offset delta is out of range")
    offsets = np.repeat(base_offsets, counts) + offset_deltas
    timestamps = np.repeat(base_times, counts) + timestamp_deltas
    if types.any():
        append_times = np.array([header.max_timestamp for header in headers], np.int64)
        has_append_time = np.repeat(types, counts) != 0
        timestamps = np.where(has_append_time, np.repeat(append_times, counts), timestamps)
    return offsets, timestamps, np.repeat(types, counts)


def _varints(raw: NDArray[np.uint8], positions: Int64s) -> tuple[Int64s, Int64s]:
    """Decode the zigzag varint at each position; return values and end positions."""
    byte = raw[positions]
    values = (byte & 0x7F).astype(np.int64)
    positions = positions + 1
    # Records whose varint continues: all, or their indices.
    more: slice | Int64s = slice(None)
    shift = 7
    while (continues := byte > 0x7F).any():
        if shift > 63:
            raise CorruptBatchError("varint has more than ten bytes")
        if not continues.all():
            more = np.flatnonzero(continues) if isinstance(more, slice) else more[continues]
        at = positions[more]
        byte = raw[at]
        values[more] |= (byte & 0x7F).astype(np.int64) << shift
        positions[more] = at + 1
        shift += 7
    unsigned = values.view(np.uint64)
    return (unsigned >> np.uint64(1)).astype(np.int64) ^ -(values & 1), positions
