"""Segments of a log in order of base offset, and how they are replaced.

A log may have thousands of segments, so lookups use bisection. Kafka: LogSegments, and
replaceSegments for the replacement by a compacted segment.

After a crash at any step of a replacement, the next opening finds either all old segments or the
complete new one. Once renaming begins, the files of the new segment end in `.swap` and take
precedence over remaining old files. Order and suffixes are Kafka's. A large log with small segments
may replace a thousand segments, and each needs several renames. So a few are renamed per turn of
the loop, while the new segment is already read under its `.swap` name.

When a log is opened, an interrupted replacement is completed or undone (Kafka's LogLoader). Files
with the suffix `.cleaned` are incomplete and are deleted. If the crash interrupted the renaming
from `.cleaned` to `.swap`, the `.swap` files of that compaction are deleted too. The remaining
`.swap` files are complete. The segments that they replace are deleted, and the `.swap` files get
their final names.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING

from barnabas.record.batch import NO_TIMESTAMP
from barnabas.storage.segment.batch_scan import headers
from barnabas.storage.topic_partition import (
    CLEANED_FILE_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_FILE_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.runtime.disk import Disk
    from barnabas.runtime.rng import Rng
    from barnabas.storage.config import LogConfig
    from barnabas.storage.segment.largest_timestamps import LargestTimestamps
    from barnabas.storage.segment.segment import Segment
    from barnabas.storage.segment.transaction_index import AbortedEntry


def roll_jitter(config: LogConfig, rng: Rng) -> int:
    """Return a random part of segment.jitter.ms, for one segment."""
    limit = min(config.segment_jitter_ms, config.segment_ms_max)
    return rng.randint(0, limit - 1) if limit > 0 else 0


class Segments:
    """A sorted collection of segments; the last one is active, the others are sealed."""

    __slots__ = (
        "_aborting",
        "_bases",
        "_maxima",
        "_maxima_base",
        "_on_damaged_index",
        "_segments",
        "active",
        "times",
    )

    def __init__(self, segments: list[Segment], times: LargestTimestamps) -> None:
        self._segments = sorted(segments, key=lambda segment: segment.base_offset)
        self._bases = [segment.base_offset for segment in self._segments]
        # The segment for appends; an open log always has one.
        self.active: Segment = self._segments[-1]
        # The stored timestamps of sealed segments.
        self.times = times
        # Running maximum of the timestamps of sealed segments from `_maxima_base` on. It grows as
        # segments are sealed, and is rebuilt when another segment is added or removed.
        self._maxima: list[int] = []
        self._maxima_base = -1
        # Base offsets of the segments that may have aborted transactions, in order. A truncation
        # may have removed these transactions.
        self._aborting = [
            each.base_offset for each in self._segments if each.txn_index.may_have_entries
        ]
        self._on_damaged_index: Callable[[str, int], None] | None = None
        for segment in self._segments:
            segment.on_rebuilt = self._on_rebuilt

    def listen(self, on_damaged_index: Callable[[str, int], None]) -> None:
        """Set the callback that receives path and position of damaged index entries."""
        self._on_damaged_index = on_damaged_index
        for segment in self._segments:
            segment.on_damaged_index = on_damaged_index

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __contains__(self, segment: Segment) -> bool:
        return self.floor(segment.base_offset) is segment

    def __getitem__(self, index: int) -> Segment:
        return self._segments[index]

    @property
    def size(self) -> int:
        """Total size of all segments in bytes."""
        return sum(segment.size for segment in self._segments)

    @property
    def base_offsets(self) -> list[int]:
        """Base offsets of all segments."""
        return list(self._bases)

    def floor(self, offset: int) -> Segment | None:
        """Return the segment with the largest base offset <= `offset`, or None."""
        slot = bisect_right(self._bases, offset)
        return self._segments[slot - 1] if slot else None

    def higher(self, base_offset: int) -> Segment | None:
        """Return the next segment after a base offset, or None."""
        slot = bisect_right(self._bases, base_offset)
        return self._segments[slot] if slot < len(self._segments) else None

    def find_exactly(self, bases: Sequence[int]) -> list[Segment] | None:
        """Return the segments with these base offsets; None if one does not exist."""
        found = [self.floor(base) for base in bases]
        known = [segment for segment in found if segment is not None]
        return known if [segment.base_offset for segment in known] == list(bases) else None

    def from_offset(self, offset: int) -> list[Segment]:
        """Return the segments that can contain `offset` or later offsets."""
        return self._segments[self._slot_of(offset) :]

    def _slot_of(self, offset: int) -> int:
        return max(0, bisect_right(self._bases, offset) - 1)

    # -- timestamps --------------------------------------------------------------------------

    def restore_times(self, offset: int) -> None:
        """Prepare searches from `offset`, as far as the timestamps of segments were stored."""
        slot = self._slot_of(offset) + 1
        known = takewhile(lambda each: each.has_max_timestamp, self._segments[slot:-1])
        self._maxima_base = self._bases[slot] if slot < len(self._bases) else -1
        self._maxima = list(accumulate((each.max_timestamp for each in known), max))

    def read_times(self, offset: int, count: int) -> bool:
        """Read where the time indexes of up to `count` segments end, for a search from `offset`.

        Returns:
            Whether segments are left. The ends stay known, and are stored for the next start.
        """
        slot = self._slot_of(offset) + 1
        left = len(self) - 1 - slot
        return len(self._maxima_from(slot, count)) < left

    def reaching(self, timestamp: int, offset: int) -> Iterator[Segment]:
        """Yield segments that can contain `offset` or later and that reach `timestamp`.

        Timestamps need not increase from segment to segment, but their running maximum does.
        """
        segments, slot = self._segments, self._slot_of(offset)
        if segments[slot].max_timestamp >= timestamp:
            yield segments[slot]
        slot += 1
        for following in range(slot + bisect_left(self._maxima_from(slot), timestamp), len(self)):
            if segments[following].max_timestamp >= timestamp:
                yield segments[following]

    def max_timestamps(self, offset: int) -> tuple[Segment, int]:
        """Return the segment that can contain `offset`, and the largest timestamp after it.

        The timestamp is -1 if there is none.
        """
        slot = self._slot_of(offset)
        first, active = self._segments[slot], self.active
        later = [] if first is active else [active.max_timestamp]
        return first, max([NO_TIMESTAMP, *later, *self._maxima_from(slot + 1)[-1:]])

    def _maxima_from(self, slot: int, count: int | None = None) -> list[int]:
        """Return the running maximum of timestamps of the sealed segments from `slot` on.

        Args:
            slot: index of the first segment.
            count: number of segments that may be added to those already known; None for all.
        """
        sealed = len(self._segments) - 1
        if slot >= sealed:
            return []
        if self._maxima_base != self._bases[slot]:
            self._maxima_base, self._maxima = self._bases[slot], []
        maxima = self._maxima
        start = slot + len(maxima)
        added = self._segments[start : sealed if count is None else min(sealed, start + count)]
        for segment in added:
            timestamp = segment.max_timestamp
            maxima.append(max(maxima[-1], timestamp) if maxima else timestamp)
        if added:
            self.times.add(added)
        return maxima

    # -- aborted transactions ----------------------------------------------------------------

    def add_aborted(self, entry: AbortedEntry) -> None:
        """Add a transaction that the last batch of the active segment aborted."""
        if self.active.base_offset not in self._aborting[-1:]:
            self._aborting.append(self.active.base_offset)
        self.active.txn_index.append(entry)

    def collect_aborted(self, offset: int, upper_bound: int) -> list[AbortedEntry]:
        """Return the aborted transactions that overlap [offset, upper_bound).

        This reads the indexes of segments from that of `offset` on, until an entry shows that later
        segments have no more of these transactions.
        """
        found: list[AbortedEntry] = []
        aborting, first = self._aborting, self._bases[self._slot_of(offset)]
        for index in range(bisect_left(aborting, first), len(aborting)):
            segment = self._segments[bisect_left(self._bases, aborting[index])]
            if segment.txn_index.collect(offset, upper_bound, found):
                break
        return found

    # -- changes -----------------------------------------------------------------------------

    def add(self, segment: Segment) -> None:
        """Add a segment; it becomes active if it is the last one."""
        slot = bisect_left(self._bases, segment.base_offset)
        is_known = slot < len(self._bases) and self._bases[slot] == segment.base_offset
        assert not is_known, f"two segments begin at {segment.base_offset}"
        self._segments.insert(slot, segment)
        self._bases.insert(slot, segment.base_offset)
        self.active = self._segments[-1]
        segment.on_rebuilt = self._on_rebuilt
        segment.on_damaged_index = self._on_damaged_index
        if segment.txn_index.may_have_entries:
            insort(self._aborting, segment.base_offset)
        # An empty segment at the end does not change the timestamps.
        if segment is not self.active or segment.size:
            self._forget()

    def remove(self, segment: Segment) -> None:
        """Remove a segment; the caller must ensure that the log keeps or gets another one."""
        slot = bisect_left(self._bases, segment.base_offset)
        assert self._segments[slot] is segment, f"{segment!r} is not a segment of this log"
        del self._segments[slot]
        del self._bases[slot]
        if self._segments:
            self.active = self._segments[-1]
        slot = bisect_left(self._aborting, segment.base_offset)
        if self._aborting[slot : slot + 1] == [segment.base_offset]:
            del self._aborting[slot]
        self._forget()

    def _on_rebuilt(self, segment: Segment) -> None:
        """Store the timestamp that was found in the batches."""
        self._forget()
        if segment is not self.active:
            self.times.add([segment], anew=True)

    def _forget(self) -> None:
        """Invalidate the cached timestamps."""
        self._maxima_base = -1


# Old segments renamed per turn: about a millisecond.
_PER_STEP = 3


class SegmentSwap:
    """One replacement; creating it starts it."""

    __slots__ = ("_on_gone", "_waiting", "new", "old")

    def __init__(self, new: Segment, old: list[Segment], on_gone: Callable[[int], None]) -> None:
        """Start the replacement.

        Args:
            new: complete and synced, with suffix `.cleaned` and the base offset of the first old
                one.
            old: adjacent sealed segments.
            on_gone: called with each base offset at which no segment begins any longer.
        """
        assert new.base_offset == old[0].base_offset, (new.base_offset, old[0].base_offset)
        self.new = new
        self.old = old
        self._waiting = list(old)
        self._on_gone = on_gone
        new.change_suffix(SWAP_FILE_SUFFIX)

    def step(self) -> bool:
        """Rename a few files; return whether the replacement is complete."""
        for segment in self._waiting[:_PER_STEP]:
            segment.mark_deleted()
            if segment.base_offset != self.new.base_offset:
                self._on_gone(segment.base_offset)
        del self._waiting[:_PER_STEP]
        if self._waiting:
            return False
        self.new.change_suffix("")
        return True


_KINDS = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


def finish_swaps(disk: Disk, directory: str, names: list[str]) -> list[str]:
    """Complete or undo interrupted compactions; return the names of the remaining files."""
    cleaned = [name for name in names if name.endswith(CLEANED_FILE_SUFFIX)]
    swaps = [name for name in names if name.endswith(SWAP_FILE_SUFFIX)]
    if not cleaned and not swaps:
        return names
    first_cleaned = min((_base(name, CLEANED_FILE_SUFFIX) for name in cleaned), default=None)
    unfinished = [
        name
        for name in swaps
        if first_cleaned is not None and _base(name, SWAP_FILE_SUFFIX) >= first_cleaned
    ]
    for name in (*unfinished, *cleaned):
        disk.remove(f"{directory}/{name}")
    whole = [name for name in swaps if name not in unfinished]
    others = [name for name in names if name not in swaps and name not in cleaned]
    replaced = _replaced(disk, directory, whole, others)
    for name in replaced:
        disk.remove(f"{directory}/{name}")
    final = {name: name.removesuffix(SWAP_FILE_SUFFIX) for name in whole}
    # Rename the `.log` file first. As long as it has the suffix `.swap`, recovery treats files with
    # final names as the replaced segments.
    for name, target in sorted(final.items(), key=lambda item: not item[1].endswith(LOG_SUFFIX)):
        disk.rename(f"{directory}/{name}", f"{directory}/{target}")
    return sorted({*(name for name in others if name not in replaced), *final.values()})


def _replaced(disk: Disk, directory: str, whole: list[str], others: list[str]) -> set[str]:
    """Return the files of segments that the complete `.swap` segments replace."""
    start, end = None, 0
    for name in whole:
        if name.endswith(LOG_SUFFIX + SWAP_FILE_SUFFIX):
            base = _base(name, SWAP_FILE_SUFFIX)
            start = base if start is None else min(start, base)
            end = max(end, _end_of(disk, f"{directory}/{name}", base))
    if start is None:
        return set()
    found = set()
    for name in others:
        for kind in _KINDS:
            offset = offset_of(name, kind)
            # The first segment is replaced even if no record of it remains.
            if offset is not None and (start <= offset < end or offset == start):
                found.add(name)
    return found


def _end_of(disk: Disk, path: str, base_offset: int) -> int:
    """Return the offset after the last whole batch."""
    file = disk.open(path, create=False)
    try:
        end = base_offset
        for _, header in headers(file, 0, file.size()):
            end = header.next_offset
        return end
    finally:
        file.close()


def _base(name: str, suffix: str) -> int:
    stem = name.removesuffix(suffix)
    for kind in _KINDS:
        offset = offset_of(stem, kind)
        if offset is not None:
            return offset
    return 0
