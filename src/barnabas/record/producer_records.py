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

from functools import lru_cache
from itertools import chain, compress, islice
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, NamedTuple

from barnabas.record.batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader
from barnabas.record.compiled import UNREADABLE, compiled_reader
from barnabas.record.record import CorruptBatchError, read_varint, varint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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

# Shapes are tried in batches with this number of records, and runs in batches with more, because
# each run costs a few microseconds.
_SHAPE_COUNT_MIN, _RUNS_COUNT_MIN = 8, 48
# Bytes of a record before its key, if its length has two bytes and its key is short.
_START_BYTES = 6
# Minimum records of a run, except for the last one.
_RUN_MIN = 32
# Bytes or records that are compared column by column before the next ones.
_BLOCK_BYTES, _BLOCK_RECORDS = 64 << 10, 256
# Number of the later record whose length is compared before a run is tried.
_PROBE = 3
# Bytes of a varint except for its last byte.
_CONTINUING = bytes(range(0x80, 0x100))
_BYTES = bytes(range(0x100))

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
    if count >= _SHAPE_COUNT_MIN:
        largest = (
            _largest_of_shape(batch, header)
            if len(batch) <= AT_ONCE_BYTES
            else _largest_of_runs(batch, header, [])
        )
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


class _Run(NamedTuple):
    """Records of one frame that follow each other."""

    frame: _Frame
    # Position of the first record in the batch, its number, and the number of records.
    position: int
    index: int
    length: int


def _largest_of_runs(batch: memoryview, header: BatchHeader, runs: list[_Run]) -> int | None:
    """Return the largest timestamp of records that form long runs; None if they do not.

    The runs are added to `runs`.
    """
    position, count, index, largest = HEADER_SIZE, header.record_count, 0, 0
    while index < count:
        left = count - index
        frame = _frame_at(batch, position, index)
        if frame is None or not _may_be_run(batch, position, frame, left):
            return None
        length, delta = _run(batch, position, frame, index, left)
        # An odd number is negative in zigzag form.
        if length < min(left, _RUN_MIN) or delta & 1:
            return None
        runs.append(_Run(frame, position, index, length))
        largest = max(largest, delta >> 1)
        index += length
        position += length * frame.size
    return header.base_timestamp + largest if position == len(batch) else None


class _Shape:
    """Runs that a producer repeats in batch after batch; all are compared in one step."""

    __slots__ = ("_columns", "_expected", "_times", "is_known")

    def __init__(self) -> None:
        # Whether a batch of this shape was seen before.
        self.is_known = False
        # Return columns of a batch, and the columns of the timestamp deltas.
        self._columns: Callable[[bytes], tuple[bytes, ...]] | None = None
        self._times: Callable[[bytes], tuple[bytes, ...]] = itemgetter(slice(0), slice(0))
        self._expected: tuple[bytes, ...] = ()

    def learn(self, runs: Sequence[_Run]) -> None:
        """Remember the columns of runs whose timestamp deltas have one byte."""
        if any(len(run.frame.time) > 1 for run in runs):
            return
        columns = [pair for run in runs for pair in _columns(run)]
        self._columns = itemgetter(*(each for each, _ in columns))
        self._expected = tuple(expected for _, expected in columns)
        times = [_column(run, run.frame.time.start) for run in runs]
        # With two arguments or more, `itemgetter` returns a tuple.
        self._times = itemgetter(*times, slice(0))

    def largest_delta(self, batch: memoryview) -> int | None:
        """Return the largest timestamp delta of a batch of this shape; None for another one."""
        if self._columns is None:
            return None
        content = bytes(batch)
        if self._columns(content) != self._expected:
            return None
        times = b"".join(self._times(content))
        if not times.isascii():
            return None
        largest = _largest_byte(times)
        return None if largest & 1 else largest >> 1


def _column(run: _Run, at: int) -> slice:
    """Return the place of one byte of each record of a run in a batch."""
    size = run.frame.size
    return slice(run.position + at, run.position + run.length * size, size)


def _columns(run: _Run) -> Iterator[tuple[slice, bytes]]:
    """Yield the places of the bytes of a run's frame in a batch, and these bytes."""
    for at, byte in run.frame.equal:
        yield _column(run, at), byte * run.length
    for at, deltas in zip(run.frame.offset, _offset_columns(len(run.frame.offset)), strict=True):
        yield _column(run, at), deltas[run.index : run.index + run.length]


@lru_cache(maxsize=256)
def _shape_of(_count: int, _size: int, _start: bytes) -> _Shape:
    """Return the shape of batches with a number of records, a size, and a first record's start."""
    return _Shape()


def _largest_of_shape(batch: memoryview, header: BatchHeader) -> int | None:
    """Return the largest timestamp of a batch with a known shape, or of long runs."""
    # The first record from its length to the length of its key.
    start = bytes(batch[HEADER_SIZE : HEADER_SIZE + _START_BYTES])
    if start and start[0] < 0x80:
        start = start[:-1]
    shape = _shape_of(header.record_count, len(batch), start)
    delta = shape.largest_delta(batch)
    if delta is not None:
        return header.base_timestamp + delta
    if header.record_count < _RUNS_COUNT_MIN and not shape.is_known:
        shape.is_known = True
        return None
    runs: list[_Run] = []
    largest = _largest_of_runs(batch, header, runs)
    if largest is not None:
        if shape.is_known:
            shape.learn(runs)
        shape.is_known = True
    return largest


class _Frame(NamedTuple):
    """The bytes of a record without headers, except for its key and value.

    The records of a run have the same frame. Only their timestamps and offsets differ. Positions
    are relative to the start of the record.
    """

    # Bytes of a record.
    size: int
    # Bytes of its length.
    length: bytes
    # Positions of bytes that are equal in all records, and these bytes.
    equal: tuple[tuple[int, bytes], ...]
    # Positions of the timestamp delta and of the offset delta.
    time: range
    offset: range
    # Records before this number have an offset delta with as many bytes.
    end: int


def _frame_at(batch: memoryview, position: int, index: int) -> _Frame | None:
    """Return the frame of the record with this number; None if it does not have the form of a run.

    Of a record that is malformed, the frame may be wrong. `_run` finds this.
    """
    try:
        length, start = _short_varint(batch, position)
        # The timestamp delta follows the attributes, a byte that has no meaning.
        time_bytes = 1 if batch[start + 1] < 0x80 else 2
        offset_bytes = 1 if index < 1 << 6 else 2 if index < 1 << 13 else 3
        key_size, at = _short_varint(batch, start + 1 + time_bytes + offset_bytes)
        value_size, _ = _short_varint(batch, at + max(key_size, 0))
    except IndexError:
        return None
    return _frame(length, key_size, value_size, time_bytes, offset_bytes)


def _short_varint(batch: memoryview, position: int) -> tuple[int, int]:
    """Return a varint of one or two bytes, and the position after it.

    Raises:
        IndexError: the varint is longer, or the batch ends.
    """
    value = batch[position]
    if value >= 0x80:
        position += 1
        second = batch[position]
        if second >= 0x80:
            raise IndexError
        value = value & 0x7F | second << 7
    return value >> 1 ^ -(value & 1), position + 1


@lru_cache(maxsize=256)
def _frame(
    length: int, key_size: int, value_size: int, time_bytes: int, offset_bytes: int
) -> _Frame | None:
    """Return the frame of records with these sizes; None if the sizes contradict each other."""
    if min(key_size, value_size) < -1:
        return None
    prefix, key, value = varint(length), varint(key_size), varint(value_size)
    time_at = len(prefix) + 1
    offset_at = time_at + time_bytes
    key_at = offset_at + offset_bytes
    value_at = key_at + len(key) + max(key_size, 0)
    headers_at = value_at + len(value) + max(value_size, 0)
    if headers_at + 1 != len(prefix) + length:
        return None
    fields = ((0, prefix), (key_at, key), (value_at, value), (headers_at, b"\0"))
    return _Frame(
        len(prefix) + length,
        prefix,
        tuple(
            (at + each, field[each : each + 1])
            for at, field in fields
            for each in range(len(field))
        ),
        range(time_at, offset_at),
        range(offset_at, key_at),
        1 << 7 * offset_bytes - 1,
    )


def _may_be_run(batch: memoryview, position: int, frame: _Frame, left: int) -> bool:
    """Whether two of the next records have the same length, which costs little to examine."""
    size, length, width = frame.size, frame.length, len(frame.length)
    one, other = position + size, position + size * _PROBE
    return left <= _PROBE or (
        batch[one : one + width] == length and batch[other : other + width] == length
    )


def _run(batch: memoryview, position: int, frame: _Frame, index: int, left: int) -> tuple[int, int]:
    """Return the number of records at `position` with a frame, and the largest timestamp delta.

    They are compared in blocks that fit into a processor's cache, because each byte of the frame
    is compared for the whole block.

    Args:
        batch: the batch.
        position: start of the first record.
        frame: its frame.
        index: its number in the batch.
        left: maximum number of records.

    Returns:
        A number that may be too low, but all these records are well-formed. The largest
        timestamp delta in zigzag form; an odd one if any delta is negative.
    """
    size, length, largest = frame.size, 0, 0
    left = min(left, frame.end - index)
    step = max(_BLOCK_RECORDS, _BLOCK_BYTES // size)
    while length < left:
        start = position + length * size
        part = min(step, left - length)
        same, delta = _same(bytes(batch[start : start + part * size]), frame, index + length)
        length += same
        if delta & 1:
            return length, delta
        largest = max(largest, delta)
        if same < part:
            break
    return length, largest


def _same(block: bytes, frame: _Frame, index: int) -> tuple[int, int]:
    """Return the number of records at the start of a block with a frame, and the largest delta."""
    size = frame.size
    length = len(block) // size
    for at, byte in frame.equal:
        column = block[at::size]
        if column != byte * len(column):
            length = min(length, len(column) - len(column.lstrip(byte)))
    if not length:
        return 0, 0
    end = length * size
    for at, expected in zip(frame.offset, _offset_columns(len(frame.offset)), strict=True):
        if block[at:end:size] != expected[index : index + length]:
            return 0, 0
    *starts, last = (block[at:end:size] for at in frame.time)
    if not last.isascii() or any(start.translate(None, _CONTINUING) for start in starts):
        return 0, 0
    return length, _largest_varint(starts, last)


def _largest_varint(starts: list[bytes], last: bytes) -> int:
    """Return the largest of varints with one or two bytes, from their columns."""
    top = _largest_byte(last)
    if not starts:
        return top
    # Most timestamps ascend, so the largest second bytes are neighbours.
    (firsts,) = starts
    begin, end = last.index(top), last.rindex(top) + 1
    if last[begin:end].strip(bytes((top,))):
        firsts = bytes(compress(firsts, map(top.__eq__, last)))
    else:
        firsts = firsts[begin:end]
    return _largest_byte(firsts) & 0x7F | top << 7


def _largest_byte(column: bytes) -> int:
    missing = _BYTES.translate(None, column)
    return _BYTES.translate(None, missing)[-1]


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
