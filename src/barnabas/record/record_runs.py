"""Records of equal size that follow each other in a batch, checked column by column.

The records of a *run* have the same frame: the same bytes outside keys, values, timestamps and
offsets. So each byte of the frame is compared for the whole run at once, which takes a few
nanoseconds for a record. Producers repeat the *shape* of a batch, which is its runs. A batch of a
known shape is compared in one step.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import compress
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from barnabas.record.batch import HEADER_SIZE, BatchHeader
from barnabas.record.record import varint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# Numbers of records of a batch whose runs are searched. The maximum is librdkafka's default one.
RECORDS_MIN, RECORDS_MAX = 8, 10_000
# Runs are searched in batches with this number of records, because each run costs a few
# microseconds. In smaller ones, they are searched when the size of the batch is seen again.
_COUNT_MIN = 48
# Maximum bytes and records of a batch with a shape, which keeps some bytes for each record.
_SHAPE_BYTES_MAX, _SHAPE_RECORDS_MAX = 64 << 10, 1_000
# Minimum records of a run, except for the last one.
_RUN_MIN = 32
# Bytes or records that are compared column by column before the next ones.
_BLOCK_BYTES, _BLOCK_RECORDS = 64 << 10, 256
# Number of the later record whose length is compared before a run is tried.
_PROBE = 3
# Bytes of a record before its key, if its length has two bytes and its key is short.
_START_BYTES = 6
# Bytes of a varint except for its last byte.
_CONTINUING = bytes(range(0x80, 0x100))
_BYTES = bytes(range(0x100))


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


class _Run(NamedTuple):
    """Records of one frame that follow each other."""

    frame: _Frame
    # Position of the first record in the batch, its number, and the number of records.
    position: int
    first: int
    length: int


@lru_cache(maxsize=128)
def _shape_of(_count: int, _size: int, _start: bytes) -> _Shape:
    """Return the shape of batches with a number of records, a size, and a first record's start."""
    return _Shape()


def largest_of_runs(batch: memoryview, header: BatchHeader) -> int | None:
    """Return the largest timestamp of records that form long runs; None if they do not.

    Args:
        batch: an uncompressed batch.
        header: its header, with `RECORDS_MIN` to `RECORDS_MAX` records.
    """
    if len(batch) > _SHAPE_BYTES_MAX:
        found = _find_runs(batch, header)
        return None if found is None else found[0]
    # The first record from its length to the length of its key.
    start = bytes(batch[HEADER_SIZE : HEADER_SIZE + _START_BYTES])
    if start and start[0] < 0x80:
        start = start[:-1]
    shape = _shape_of(header.record_count, len(batch), start)
    delta = shape.largest_delta(batch)
    if delta is not None:
        return header.base_timestamp + delta
    was_known, shape.is_known = shape.is_known, True
    if not was_known and header.record_count < _COUNT_MIN:
        return None
    found = _find_runs(batch, header)
    if found is None:
        return None
    largest, runs = found
    if was_known:
        shape.learn(runs)
    return largest


def _find_runs(batch: memoryview, header: BatchHeader) -> tuple[int, list[_Run]] | None:
    """Return the largest timestamp of records that form long runs, and the runs; None without."""
    runs: list[_Run] = []
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
    return (header.base_timestamp + largest, runs) if position == len(batch) else None


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
        """Remember the columns of runs, unless they are many or have long timestamp deltas."""
        count = runs[-1].first + runs[-1].length
        if count > _SHAPE_RECORDS_MAX or any(len(run.frame.time) > 1 for run in runs):
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
        yield _column(run, at), deltas[run.first : run.first + run.length]


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
            column = bytes(2 * each | more for each in range(64)) * (RECORDS_MAX // 64 + 1)
        else:
            equal = 1 << 7 * at - 1
            values = range(RECORDS_MAX // equal + 1)
            column = b"".join(bytes([each & 0x7F | more]) * equal for each in values)
        columns.append(column)
    return columns
