"""The segments of a log in the order of their base offsets (Kafka's LogSegments).

A log may have thousands of them: whatever a request looks for is found by bisection.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from barnabas.record.batch import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.storage.segment import Segment
    from barnabas.storage.transaction_index import AbortedEntry


class Segments:
    """A sorted collection; the last one is active, all others are sealed."""

    __slots__ = (
        "_aborting",
        "_bases",
        "_maxima",
        "_maxima_base",
        "_on_damaged_index",
        "_segments",
        "active",
    )

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = sorted(segments, key=lambda segment: segment.base_offset)
        self._bases = [segment.base_offset for segment in self._segments]
        # The one that appends go to; a log always has one once it is open.
        self.active: Segment = self._segments[-1]
        # Of sealed segments from a base offset on, the largest timestamp up to the end of each.
        # Grows as segments are sealed; made new when any but the last comes or goes.
        self._maxima: list[int] = []
        self._maxima_base = -1
        # Base offsets of those with aborted transactions (or such as had some before they were
        # cut); None until they were looked for.
        self._aborting: list[int] | None = None
        self._on_damaged_index: Callable[[str, int], None] | None = None
        for segment in self._segments:
            segment.on_rebuilt = self._forget

    def listen(self, on_damaged_index: Callable[[str, int], None]) -> None:
        """Have each segment tell the path and position of index entries that it finds damaged."""
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
        """Bytes of all."""
        return sum(segment.size for segment in self._segments)

    @property
    def base_offsets(self) -> list[int]:
        """Where each begins."""
        return list(self._bases)

    def floor(self, offset: int) -> Segment | None:
        """The one with the largest base offset that is no larger than `offset`."""
        slot = bisect_right(self._bases, offset)
        return self._segments[slot - 1] if slot else None

    def higher(self, base_offset: int) -> Segment | None:
        """The one after that base offset."""
        slot = bisect_right(self._bases, base_offset)
        return self._segments[slot] if slot < len(self._segments) else None

    def find_exactly(self, bases: Sequence[int]) -> list[Segment] | None:
        """Those that begin at these offsets; None if one of them is not there."""
        found = [self.floor(base) for base in bases]
        known = [segment for segment in found if segment is not None]
        return known if [segment.base_offset for segment in known] == list(bases) else None

    def from_offset(self, offset: int) -> list[Segment]:
        """Those that have, or could have, `offset` or later ones."""
        return self._segments[self._slot_of(offset) :]

    def _slot_of(self, offset: int) -> int:
        return max(0, bisect_right(self._bases, offset) - 1)

    # -- times -------------------------------------------------------------------------------

    def reaching(self, timestamp: int, offset: int) -> Iterator[Segment]:
        """Of those that could have `offset` or later ones, each that reaches `timestamp`.

        Timestamps need not increase from one to the next, the largest so far does.
        """
        segments, slot = self._segments, self._slot_of(offset)
        if segments[slot].max_timestamp >= timestamp:
            yield segments[slot]
        slot += 1
        for following in range(slot + bisect_left(self._maxima_from(slot), timestamp), len(self)):
            if segments[following].max_timestamp >= timestamp:
                yield segments[following]

    def max_timestamps(self, offset: int) -> tuple[Segment, int]:
        """The one that could have `offset`, and the largest timestamp of those after it, or -1."""
        slot = self._slot_of(offset)
        first, active = self._segments[slot], self.active
        later = [] if first is active else [active.max_timestamp]
        return first, max([NO_TIMESTAMP, *later, *self._maxima_from(slot + 1)[-1:]])

    def _maxima_from(self, slot: int) -> list[int]:
        """The largest timestamps so far, of the sealed segments from a place on."""
        sealed = len(self._segments) - 1
        if slot >= sealed:
            return []
        if self._maxima_base != self._bases[slot]:
            self._maxima_base, self._maxima = self._bases[slot], []
        maxima = self._maxima
        for index in range(slot + len(maxima), sealed):
            timestamp = self._segments[index].max_timestamp
            maxima.append(max(maxima[-1], timestamp) if maxima else timestamp)
        return maxima

    # -- aborted transactions ----------------------------------------------------------------

    def add_aborted(self, entry: AbortedEntry) -> None:
        """A transaction was aborted by the last record of the active segment."""
        self.active.txn_index.append(entry)
        aborting = self._aborting
        if aborting is not None and self.active.base_offset not in aborting[-1:]:
            aborting.append(self.active.base_offset)

    def collect_aborted(self, offset: int, upper_bound: int) -> list[AbortedEntry]:
        """The transactions that were aborted and overlap [offset, upper_bound)."""
        if self._aborting is None:
            self._aborting = [each.base_offset for each in self if each.txn_index.entries()]
        found: list[AbortedEntry] = []
        aborting, first = self._aborting, self._bases[self._slot_of(offset)]
        for index in range(bisect_left(aborting, first), len(aborting)):
            segment = self._segments[bisect_left(self._bases, aborting[index])]
            if segment.txn_index.collect(offset, upper_bound, found):
                break
        return found

    # -- changes -----------------------------------------------------------------------------

    def add(self, segment: Segment) -> None:
        """Add one; it becomes active if it is the last."""
        slot = bisect_left(self._bases, segment.base_offset)
        assert slot == len(self._bases) or self._bases[slot] != segment.base_offset
        self._segments.insert(slot, segment)
        self._bases.insert(slot, segment.base_offset)
        self.active = self._segments[-1]
        segment.on_rebuilt = self._forget
        segment.on_damaged_index = self._on_damaged_index
        # A new one at the end has nothing yet.
        if segment is not self.active or segment.size:
            self._forget()

    def remove(self, segment: Segment) -> None:
        """Take one out; the log must not stay without any."""
        slot = bisect_left(self._bases, segment.base_offset)
        assert self._segments[slot] is segment
        del self._segments[slot]
        del self._bases[slot]
        if self._segments:
            self.active = self._segments[-1]
        self._forget()

    def _forget(self) -> None:
        """What is known of the segments together is no longer so."""
        self._maxima_base = -1
        self._aborting = None
