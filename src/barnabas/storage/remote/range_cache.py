"""Ranges of remote segments in memory, for reads of consumers.

A range is a part of a segment's log. It begins with a batch, and it ends with one if an index shows
where. Consumers that read the same records share a range. A response lends a part of a range
without a copy, and the range stays in memory until the response has left.

The memory of all ranges is limited, including those that are being loaded. A load takes the memory
of all of its range or waits, see `LoadQueue`. The least recently used ranges leave, unless they are
lent. The more readers there are, the smaller are the ranges, so that each reader has its own. So
few bytes are loaded twice.
"""

from __future__ import annotations

import sys
from bisect import bisect_right, insort
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.storage.remote.load_queue import Load, Waiters, queue_full, storage_error
from barnabas.storage.remote.remote_storage import RemoteDamagedError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from barnabas.runtime.clock import Cancellable, Clock, Timer
    from barnabas.storage.remote.load_queue import LoadQueue
    from barnabas.storage.remote.remote_storage import (
        RemoteSegment,
        RemoteStorage,
        RemoteStorageError,
    )

    OnRange = Callable[[RemoteStorageError | None], None]

# Ranges are multiples of this size, unless a batch needs another one or the segment ends.
_STEP_BYTES = 256 << 10
# A reader without a read for this time does not count any more.
_READER_IDLE_MS = 10_000.0
# Limit for the readers that are counted.
_READERS_MAX = 10_000


class RangeLimits(NamedTuple):
    """Limits of the ranges, which may change at any time."""

    # Bytes of all ranges, and of one range unless a batch is larger.
    bytes_max: int
    range_bytes_max: int
    # Number of ranges that are loaded before a reader needs them.
    read_ahead: int


class LoadedRange:
    """Bytes [start, end) of a segment. The bytes never change."""

    __slots__ = ("checked_from", "checked_to", "data", "end", "ends_batch", "segment_id", "start")

    def __init__(self, segment_id: bytes, start: int, data: bytes | bytearray) -> None:
        self.segment_id = segment_id
        # Positions in the segment.
        self.start = start
        self.end = start + len(data)
        self.data = data
        # Whether the last batch is whole.
        self.ends_batch = False
        # The batches between these positions have valid checksums. Reads move them.
        self.checked_from = self.checked_to = start

    def lend(self, start: int, end: int) -> memoryview:
        """Return the bytes between two positions of the segment for a response."""
        # A view of a view would share its reference to the bytes, and `is_lent` counts references.
        view = memoryview(self.data)
        return view[start - self.start : end - self.start].toreadonly()

    @property
    def is_lent(self) -> bool:
        """Whether a view from `lend` still exists."""
        return sys.getrefcount(self.data) > _OWN_REFERENCES


def _count_own_references() -> int:
    unlent = LoadedRange(b"", 0, bytearray(1))
    return sys.getrefcount(unlent.data)


# What `sys.getrefcount` returns for the bytes of a range without views.
_OWN_REFERENCES = _count_own_references()


class ActiveReaders:
    """Counts the consumers that read the remote tier, by the offsets at which they continue.

    Two consumers at the same offset of a partition count as one: they share their ranges.
    """

    __slots__ = ("_clock", "_cursors")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Partition and next offset -> time of the read, ms. The oldest first.
        self._cursors: OrderedDict[Hashable, float] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of readers of the last seconds."""
        idle_ms = self._clock.monotonic_ms() - _READER_IDLE_MS
        cursors = self._cursors
        while cursors and next(iter(cursors.values())) < idle_ms:
            cursors.popitem(last=False)
        return len(cursors)

    def move(self, partition: Hashable, offset: int, next_offset: int) -> bool:
        """Note a read from `offset`, which the reader continues at `next_offset`.

        Returns:
            Whether an earlier read ended at `offset`, so that the reader reads in sequence.
        """
        is_sequence = self._cursors.pop((partition, offset), None) is not None
        if len(self._cursors) >= _READERS_MAX:
            self._cursors.popitem(last=False)
        self._cursors[partition, next_offset] = self._clock.monotonic_ms()
        return is_sequence


class _RangeLoad:
    """A load of the range [start, end) and the calls that wait for it."""

    __slots__ = ("end", "ends_batch", "entry", "is_admitted", "segment", "start", "waiters")

    def __init__(
        self,
        segment: RemoteSegment,
        span: tuple[int, int],
        on_unwanted: Callable[[_RangeLoad], None],
        *,
        ends_batch: bool,
    ) -> None:
        self.segment = segment
        self.start, self.end = span
        self.ends_batch = ends_batch
        self.waiters: Waiters[RemoteStorageError | None] = Waiters(partial(on_unwanted, self))
        # Whether its memory is counted.
        self.is_admitted = False
        self.entry: Load | None = None


class RangeCache:
    """The loaded ranges of all segments, and the loads in progress."""

    __slots__ = (
        "_boundary",
        "_clock",
        "_limits",
        "_loads",
        "_observe",
        "_queue",
        "_ranges",
        "_recent",
        "_storage",
        "_timer",
        "bytes_used",
        "readers",
    )

    def __init__(
        self,
        storage: RemoteStorage,
        queue: LoadQueue,
        clock: Clock,
        timer: Timer,
        limits: Callable[[], RangeLimits],
        boundary: Callable[[bytes, int, int], int | None],
    ) -> None:
        """Create without ranges.

        Args:
            storage: has the bytes of all segments.
            queue: runs the loads in threads.
            clock: measures loads, and tells which readers are active.
            timer: calls back.
            limits: returns the current limits.
            boundary: returns the largest position in [first, last] at which a batch of a segment
                begins, as far as an index shows it.
        """
        self._storage = storage
        self._queue = queue
        self._clock = clock
        self._timer = timer
        self._limits = limits
        self._boundary = boundary
        # Called with the bytes of each finished load and its duration in ms.
        self._observe: Callable[[int, float], None] = _ignore
        # Ranges by segment id, in the order of their starts.
        self._ranges: dict[bytes, list[LoadedRange]] = {}
        # All ranges, the least recently used first. Has ranges that were dropped while lent, too.
        self._recent: OrderedDict[LoadedRange, None] = OrderedDict()
        # Loads in progress by segment id.
        self._loads: dict[bytes, list[_RangeLoad]] = {}
        # Bytes of all ranges, and of the loads that have their memory.
        self.bytes_used = 0
        self.readers = ActiveReaders(clock)

    def observe(self, call: Callable[[int, float], None]) -> None:
        """Have finished loads reported: bytes and duration in ms."""
        self._observe = call

    def close(self) -> None:
        """Call back no more."""
        for loads in self._loads.values():
            for load in loads:
                load.waiters.clear()

    @property
    def waiting(self) -> int:
        """Number of loads that wait for memory or for a thread."""
        return len(self._queue)

    def find(self, segment_id: bytes, position: int, size: int) -> LoadedRange | None:
        """Return a range with the bytes [position, position + size), and note its use."""
        found = self._covering(segment_id, position, position + size)
        if found is not None:
            self._recent.move_to_end(found)
        return found

    def _covering(self, segment_id: bytes, start: int, end: int) -> LoadedRange | None:
        ranges = self._ranges.get(segment_id)
        if ranges is None:
            return None
        slot = bisect_right(ranges, start, key=_start_of)
        # Ranges may overlap, after a batch that did not fit.
        for each in reversed(ranges[max(0, slot - 2) : slot]):
            if end <= each.end:
                return each
        return None

    def load(
        self, segment: RemoteSegment, position: int, needed: int, on_done: OnRange
    ) -> Cancellable:
        """Load a range that begins at a position.

        Args:
            segment: the segment.
            position: where a batch begins.
            needed: bytes that the range must have, as far as the segment has them.
            on_done: receives None, or the error. Never called before this returns.
        """
        end = min(position + max(1, needed), segment.size)
        load = self._joined(segment.id, position, end)
        if load is None:
            range_end, ends_batch = self._range_end(segment, position, end)
            load = self._new_load(segment, (position, range_end), ends_batch=ends_batch)
            if self._covering(segment.id, position, end) is not None:
                self._timer.call_soon(partial(self._finish, load, None))
            elif not self._submit(load):
                self._timer.call_soon(partial(self._finish, load, queue_full()))
        return load.waiters.add(on_done)

    def read_ahead(self, segment: RemoteSegment, position: int) -> None:
        """Load a range that a reader will need, if there are memory and an idle thread."""
        limits = self._limits()
        if not limits.read_ahead or not self._queue.is_idle or position >= segment.size:
            return
        if self._covering(segment.id, position, position + 1) is not None:
            return
        if self._joined(segment.id, position, position + 1) is not None:
            return
        end, ends_batch = self._range_end(segment, position, position + 1)
        if self.bytes_used + end - position <= limits.bytes_max:
            self._submit(self._new_load(segment, (position, end), ends_batch=ends_batch))

    def _abandon(self, load: _RangeLoad) -> None:
        """Remove a load that no call waits for from the queue, unless it has started."""
        if load.entry is not None and self._queue.remove(load.entry):
            self._forget_load(load)
            # A smaller load behind it may find memory.
            self._queue.advance()

    def forget(self, segment_ids: Iterable[bytes]) -> None:
        """Drop the ranges of segments that do not exist any more, or are damaged."""
        for segment_id in segment_ids:
            for each in list(self._ranges.get(segment_id, ())):
                self._remove(each)

    # Loads.

    def _joined(self, segment_id: bytes, start: int, end: int) -> _RangeLoad | None:
        """Return the load in progress that will have these bytes."""
        for load in self._loads.get(segment_id, ()):
            if load.start <= start and end <= load.end:
                return load
        return None

    def _new_load(
        self, segment: RemoteSegment, span: tuple[int, int], *, ends_batch: bool
    ) -> _RangeLoad:
        load = _RangeLoad(segment, span, self._abandon, ends_batch=ends_batch)
        self._loads.setdefault(segment.id, []).append(load)
        return load

    def _range_end(self, segment: RemoteSegment, start: int, needed_end: int) -> tuple[int, bool]:
        """Return the end of a new range, and whether a batch ends there."""
        limits = self._limits()
        share = limits.bytes_max // (2 * max(1, len(self.readers)))
        size = min(limits.range_bytes_max, max(_STEP_BYTES, share // _STEP_BYTES * _STEP_BYTES))
        end = max(needed_end, start + size)
        if end >= segment.size:
            return segment.size, True
        boundary = self._boundary(segment.id, needed_end, end)
        return (end, False) if boundary is None else (boundary, True)

    def _submit(self, load: _RangeLoad) -> bool:
        load.entry = Load(
            partial(self._read, load.segment, load.start, load.end),
            partial(self._on_loaded, load),
            partial(self._admit, load),
        )
        return self._queue.add(load.entry)

    def _admit(self, load: _RangeLoad) -> bool:
        size = load.end - load.start
        if not self._make_room(size):
            return False
        load.is_admitted = True
        self.bytes_used += size
        return True

    def _read(
        self, segment: RemoteSegment, start: int, end: int
    ) -> tuple[bytes | bytearray, float]:
        """Read from the store, in a thread. Returns the bytes and the duration in ms."""
        began_ms = self._clock.monotonic_ms()
        view = self._storage.read(segment, start, end)
        if len(view) != end - start:
            raise RemoteDamagedError(
                f"the remote segment {segment.topic}-{segment.partition} at offset "
                f"{segment.start_offset} has {len(view)} of the bytes from {start} to {end}"
            )
        data = view.obj
        if not isinstance(data, bytes | bytearray) or len(data) != len(view):
            data = bytes(view)
        return data, self._clock.monotonic_ms() - began_ms

    def _on_loaded(
        self,
        load: _RangeLoad,
        result: tuple[bytes | bytearray, float] | None,
        error: BaseException | None,
    ) -> None:
        if result is None:
            if load.is_admitted:
                self.bytes_used -= load.end - load.start
            self._finish(load, storage_error(error))
        else:
            data, duration_ms = result
            loaded = LoadedRange(load.segment.id, load.start, data)
            loaded.ends_batch = load.ends_batch
            self._recent[loaded] = None
            insort(self._ranges.setdefault(load.segment.id, []), loaded, key=_start_of)
            self._observe(len(data), duration_ms)
            self._finish(load, None)
        self._queue.advance()

    def _finish(self, load: _RangeLoad, error: RemoteStorageError | None) -> None:
        self._forget_load(load)
        load.waiters.call(error)

    def _forget_load(self, load: _RangeLoad) -> None:
        loads = self._loads.get(load.segment.id)
        if loads is None:
            return
        if load in loads:
            loads.remove(load)
        if not loads:
            del self._loads[load.segment.id]

    # Memory.

    def _make_room(self, size: int) -> bool:
        """Drop ranges that are not lent until `size` bytes are free; return whether they are."""
        limit = self._limits().bytes_max
        excess = self.bytes_used + size - limit
        if excess <= 0:
            return True
        for each in list(self._recent):
            if not each.is_lent:
                self._evict(each)
                excess = self.bytes_used + size - limit
                if excess <= 0:
                    return True
        # A batch above the limit is loaded alone.
        return not self.bytes_used

    def _evict(self, unlent: LoadedRange) -> None:
        del self._recent[unlent]
        self.bytes_used -= len(unlent.data)
        self._unlink(unlent)

    def _remove(self, dropped: LoadedRange) -> None:
        """Drop a range that no read may find. It counts as long as it is lent."""
        if dropped.is_lent:
            self._unlink(dropped)
            self._recent.move_to_end(dropped, last=False)
        else:
            self._evict(dropped)

    def _unlink(self, dropped: LoadedRange) -> None:
        ranges = self._ranges.get(dropped.segment_id)
        if ranges is None or dropped not in ranges:
            return
        ranges.remove(dropped)
        if not ranges:
            del self._ranges[dropped.segment_id]


def _start_of(loaded: LoadedRange) -> int:
    return loaded.start


def _ignore(_size: int, _duration_ms: float) -> None:
    """Do not observe a load."""
