"""Check of the records in a producer's batch, which costs little for each record.

Readers stop at a malformed record, and some of them without an error. So a leader reads all records
before it stores them. Two ways are fast:

- Records of equal size follow each other in a *run*. All bytes outside keys and values are then
  compared column by column, for the whole run at once. This takes 25 ns for a record of 100 bytes.
- The compiled reader reads all other records: 85 ns for each, and 150 ns in large batches.

A record may consist of headers of two bytes each, which cost the reader as much as records. So
large batches are read in slices of a limited size, and a record has a limited number of headers.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from itertools import chain, islice
from operator import attrgetter
from typing import TYPE_CHECKING

from barnabas.record.batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader
from barnabas.record.compiled import UNREADABLE, compiled_reader
from barnabas.record.record import INT_BYTES_MAX, CorruptBatchError, read_varint, varint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.record.batch import Buffer
    from barnabas.record.compiled import CompiledRecord

# Maximum number of records that are read in one turn of the loop. It is librdkafka's default
# maximum of a batch.
AT_ONCE_RECORDS = 10_000
# Maximum bytes that the compiled reader reads in one turn.
AT_ONCE_BYTES = 64 << 10
# Records of a slice, at most.
SLICE_RECORDS = 500
# Headers of a record, at most: as many as AT_ONCE_BYTES can contain.
HEADERS_MAX = AT_ONCE_BYTES // 2

# Runs are tried in batches with this number of records, because each run costs a few microseconds.
_RUNS_COUNT_MIN = 500
# Minimum records of a run, except for the last one.
_RUN_MIN = 32
# The first run is compared up to this number of records. A complete run doubles the limit.
_RUN_LIMIT = 256
# Number of records whose length is compared before a run is tried.
_PROBES = 4
# Bytes of a varint except for its last byte.
_CONTINUING = bytes(range(0x80, 0x100))
# Maximum bytes of a timestamp delta in a run: 8 seconds.
_TIME_BYTES_MAX = 2
# Positions of the first and second byte of a varint in an unsigned number of this machine.
_FIRST, _SECOND = (0, 1) if sys.byteorder == "little" else (1, 0)

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
    if count >= _RUNS_COUNT_MIN:
        largest = _largest_of_runs(batch, header)
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


def _largest_of_runs(batch: memoryview, header: BatchHeader) -> int | None:
    """Return the largest timestamp of records that form long runs; None if they do not."""
    position, count = HEADER_SIZE, header.record_count
    index, limit, largest = 0, _RUN_LIMIT, 0
    while index < count:
        left = count - index
        try:
            frame = _Frame(batch, position, index, left)
        except (IndexError, CorruptBatchError):
            return None
        length, delta = frame.run(batch, position, min(limit, left))
        # An odd number is negative in zigzag form.
        if length < min(left, _RUN_MIN) or delta & 1:
            return None
        largest = max(largest, delta >> 1)
        limit = 2 * limit if length == limit else _RUN_LIMIT
        index += length
        position += length * frame.size
    return header.base_timestamp + largest if position == len(batch) else None


class _Frame:
    """The bytes of a record without headers, except for its key and value.

    The records of a run have the same frame. Only their timestamps and offsets differ.
    """

    __slots__ = ("_equal", "_index", "_offset", "_time", "size")

    def __init__(self, batch: memoryview, position: int, index: int, left: int) -> None:
        """Read the first record of a run.

        Args:
            batch: the batch.
            position: start of the record.
            index: its number in the batch.
            left: number of records from this one on.

        Raises:
            IndexError: the record is truncated.
            CorruptBatchError: the record is malformed or has another form, or the next records
                have other sizes.
        """
        length, start = read_varint(batch, position)
        # The timestamp delta follows the attributes, a byte that has no meaning.
        time_at = start + 1
        _, offset_at = read_varint(batch, time_at)
        offset_delta, key_at = read_varint(batch, offset_at)
        key_size, key_start = read_varint(batch, key_at)
        value_at = key_start + max(key_size, 0)
        value_size, value_start = read_varint(batch, value_at)
        headers_at = value_start + max(value_size, 0)
        # Size of a record in bytes.
        self.size = start + length - position
        widths = (start - position, key_start - key_at, value_start - value_at)
        if (
            offset_delta != index
            or key_at - offset_at != len(varint(index))
            or headers_at + 1 != position + self.size
            or batch[headers_at]
            or max(widths) > INT_BYTES_MAX
            or offset_at - time_at > _TIME_BYTES_MAX
        ):
            raise CorruptBatchError("the record does not have the form of a run")
        for number in range(1, min(left, _PROBES)):
            at = position + number * self.size
            if batch[at : at + widths[0]] != batch[position:start]:
                raise CorruptBatchError("the records have several sizes")
        # Positions in the record of the bytes that are equal in all records of a run.
        places = (range(position, time_at), range(key_at, key_start), range(value_at, value_start))
        self._equal = [each - position for place in places for each in place]
        self._equal.append(headers_at - position)
        # Positions of the timestamp delta and of the offset delta.
        self._time = range(time_at - position, offset_at - position)
        self._offset = range(offset_at - position, key_at - position)
        self._index = index

    def run(self, batch: memoryview, position: int, limit: int) -> tuple[int, int]:
        """Return the number of records at `position` with this frame, and the largest delta.

        Args:
            batch: the batch.
            position: start of the first record.
            limit: maximum number of records.

        Returns:
            A number that may be too low, but all these records are well-formed. The largest
            timestamp delta in zigzag form.
        """
        size, index = self.size, self._index
        # From this number on, the offset delta has more bytes.
        limit = min(limit, (1 << 7 * len(self._offset) - 1) - index)
        block = bytes(batch[position : position + limit * size])
        length = len(block) // size
        for at in self._equal:
            column = block[at::size]
            length = min(length, len(column) - len(column.lstrip(column[:1])))
        end = length * size
        for at, expected in zip(self._offset, _offset_columns(len(self._offset)), strict=True):
            if block[at:end:size] != expected[index : index + length]:
                return 0, 0
        *starts, last = (block[at:end:size] for at in self._time)
        if not last.isascii() or any(start.translate(None, _CONTINUING) for start in starts):
            return 0, 0
        return length, _largest_varint(starts, last)


def _largest_varint(starts: list[bytes], last: bytes) -> int:
    """Return the largest of varints with one or two bytes, from their columns."""
    if not starts:
        return max(last)
    pairs = bytearray(2 * len(last))
    pairs[_FIRST::2], pairs[_SECOND::2] = starts[0], last
    largest = max(memoryview(pairs).cast("H"))
    return largest & 0x7F | largest >> 8 << 7


@lru_cache(maxsize=3)
def _offset_columns(width: int) -> list[bytes]:
    """Return the bytes of the offset deltas 0, 1, 2... as varints of this width, by position.

    The first byte repeats after 64 deltas. Each later one stays the same for 64 or more deltas.
    """
    columns = []
    for at in range(width):
        more = 0x80 if at < width - 1 else 0
        if at == 0:
            column = bytes(2 * each | more for each in range(64)) * (AT_ONCE_RECORDS // 64 + 1)
        else:
            equal = 1 << 7 * at - 1
            values = range(AT_ONCE_RECORDS // equal + 1)
            column = b"".join(bytes([each & 0x7F | more]) * equal for each in values)
        columns.append(column)
    return columns
