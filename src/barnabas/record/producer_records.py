"""Check of the records in a producer's batch, which costs little for each record.

Readers stop at a malformed record, and some of them without an error. So a leader reads all records
before it stores them. Two ways are fast:

- Records of equal size are compared column by column (`record_runs`). This takes 40 ns for a record
  of 100 bytes.
- The compiled reader reads all other records: 250 ns for each, and 500 ns in large
  batches.

A record may consist of headers of two bytes each, which cost the reader as much as records. So
large batches are read in slices of a limited size, and a record has a limited number of headers.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain, islice
from operator import attrgetter
from typing import TYPE_CHECKING

from barnabas.record.batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader
from barnabas.record.compiled import UNREADABLE, compiled_reader
from barnabas.record.record import CorruptBatchError, read_varint
from barnabas.record.record_runs import RECORDS_MAX, RECORDS_MIN, largest_of_runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.record.batch import Buffer
    from barnabas.record.compiled import CompiledRecord

# Maximum number of records that are read in one turn of the loop.
AT_ONCE_RECORDS = RECORDS_MAX
# Maximum bytes that the compiled reader reads in one turn.
AT_ONCE_BYTES = 64 << 10
# Records of a slice, at most.
SLICE_RECORDS = 500
# Headers of a record, at most: as many as AT_ONCE_BYTES can contain.
HEADERS_MAX = AT_ONCE_BYTES // 2

_offset_of = attrgetter("offset")
_timestamp_of = attrgetter("timestamp")
_headers_of = attrgetter("headers")


def largest_timestamp(batch: memoryview, header: BatchHeader) -> int | None:
    """Check all records of a batch, and return the largest timestamp.

    Args:
        batch: an uncompressed batch.
        header: its header.

    Returns:
        The timestamp. None if this check takes too long for one turn, or if a record may be
        malformed: `columns.record_slices` with `bounded_slices` must decide.
    """
    count = header.record_count
    if count > AT_ONCE_RECORDS:
        return None
    if count >= RECORDS_MIN:
        largest = largest_of_runs(batch, header)
        if largest is not None:
            return largest
    reader = compiled_reader()
    try:
        if len(batch) > AT_ONCE_BYTES:
            return _largest_of_slices(chain(reader.batch(batch)), batch, header)
        records = list(reader.batch(batch))
        base = header.base_offset
        if list(map(_offset_of, records)) != list(range(base, base + count)):
            return None
        latest: int = max(map(_timestamp_of, records))
    except (reader.corrupt, TypeError, *UNREADABLE):
        # The compiled reader returns None for timestamp -1, which cannot be compared.
        return None
    return latest


def _largest_of_slices(
    records: Iterator[CompiledRecord], batch: memoryview, header: BatchHeader
) -> int | None:
    """Return the largest timestamp of a large batch; None if offsets are wrong or it has headers.

    One slice with many headers may take as long as all other slices.
    """
    first, largest = header.base_offset, NO_TIMESTAMP
    for size in bounded_slices(batch, header):
        part = list(islice(records, size))
        if list(map(_offset_of, part)) != list(range(first, first + size)):
            return None
        if any(map(_headers_of, part)):
            return None
        largest = max(largest, *map(_timestamp_of, part))
        first += size
    # Makes the reader check for remaining bytes.
    next(records, None)
    return largest


def bounded_slices(batch: Buffer, header: BatchHeader) -> Iterator[int]:
    """Yield numbers of records that can be read in one turn, until all records are counted.

    Raises:
        CorruptBatchError: the length of a record is malformed, or a record has too many headers.
    """
    left, position = header.record_count, HEADER_SIZE
    is_small = len(batch) <= AT_ONCE_BYTES
    while left:
        size = min(left, SLICE_RECORDS)
        if not is_small:
            size, position = _slice_at(batch, position, size)
        left -= size
        yield size


def _slice_at(batch: Buffer, start: int, limit: int) -> tuple[int, int]:
    """Return the number of records of the slice at `start`, and the position after them.

    Args:
        batch: the batch.
        start: start of the first record.
        limit: maximum number of records.

    Raises:
        CorruptBatchError: a record is malformed.
    """
    size, position, end = 0, start, len(batch)
    while size < limit and position < start + AT_ONCE_BYTES:
        number, after = _short_records(batch, position, limit - size)
        if not number:
            number, after = 1, _after_long_record(batch, position)
        if after > end:
            raise CorruptBatchError(f"a record ends at {after}, but its batch ends at {end}")
        size, position = size + number, after
    return size, position


def _short_records(batch: Buffer, position: int, limit: int) -> tuple[int, int]:
    """Return the number of records at `position` with short lengths, and the position after."""
    sizes = _record_sizes()
    at = number = 0
    window = bytes(batch[position : position + 2])
    try:
        if sizes[window[0]][window[1]] is not None:
            window = bytes(batch[position : position + AT_ONCE_BYTES])
        while number < limit:
            at += sizes[window[at]][window[at + 1]]  # type: ignore[operator]  # None: TypeError
            number += 1
    except (IndexError, TypeError):
        # The end of the window, or a long record.
        pass
    return number, position + at


def _after_long_record(batch: Buffer, position: int) -> int:
    """Return the position after a record whose length has more than two bytes."""
    view = memoryview(batch)
    try:
        length, position = read_varint(view, position)
        end = position + length
        _, at = read_varint(view, position + 1)
        _, at = read_varint(view, at)
        for _ in ("key", "value"):
            size, at = read_varint(view, at)
            at += max(size, 0)
        count, _ = read_varint(view, at)
    except IndexError:
        raise CorruptBatchError("record is truncated") from None
    if length < 0:
        raise CorruptBatchError(f"a record has {length} bytes")
    if count > HEADERS_MAX:
        raise CorruptBatchError(f"a record has {count} headers, more than {HEADERS_MAX}")
    return end


@lru_cache(maxsize=1)
def _record_sizes() -> list[list[int | None]]:
    """Return the size of a record by the first two bytes of its length; None: not a short one."""
    rows: list[list[int | None]] = [
        [None if first & 1 else 1 + (first >> 1)] * 256 for first in range(0x80)
    ]
    for low in range(0x80):
        numbers = [low | high << 7 for high in range(0x80)]
        rows.append([None if each & 1 else 2 + (each >> 1) for each in numbers] + [None] * 0x80)
    return rows
