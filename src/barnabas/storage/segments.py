"""The segments of a log in the order of their base offsets (Kafka's LogSegments)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.storage.segment import Segment


class Segments:
    """A sorted collection; the last one is active, all others are sealed."""

    __slots__ = ("_bases", "_segments", "active")

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = sorted(segments, key=lambda segment: segment.base_offset)
        self._bases = [segment.base_offset for segment in self._segments]
        # The one that appends go to; a log always has one once it is open.
        self.active: Segment = self._segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __contains__(self, segment: object) -> bool:
        return any(segment is each for each in self._segments)

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

    def from_offset(self, offset: int) -> list[Segment]:
        """Those that have, or could have, `offset` or later ones."""
        slot = max(0, bisect_right(self._bases, offset) - 1)
        return self._segments[slot:]

    def add(self, segment: Segment) -> None:
        """Add one; it becomes active if it is the last."""
        slot = bisect_left(self._bases, segment.base_offset)
        assert slot == len(self._bases) or self._bases[slot] != segment.base_offset
        self._segments.insert(slot, segment)
        self._bases.insert(slot, segment.base_offset)
        self.active = self._segments[-1]

    def remove(self, segment: Segment) -> None:
        """Take one out; the log must not stay without any."""
        slot = bisect_left(self._bases, segment.base_offset)
        assert self._segments[slot] is segment
        del self._segments[slot]
        del self._bases[slot]
        if self._segments:
            self.active = self._segments[-1]
