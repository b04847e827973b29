"""Which offsets the segments of a partition cover, and which they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from barnabas.storage.remote.remote_storage import RemoteSegment


class OffsetRange(NamedTuple):
    """Offsets from the first to the last, inclusive."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


class Coverage:
    """Which offsets the segments of a partition cover. They come in the order of their starts."""

    __slots__ = ("end", "overlaps")

    def __init__(self) -> None:
        # Offset after the last one that is covered; None before the first segment.
        self.end: int | None = None
        # Number of segments that begin below the end of an earlier one: second copies.
        self.overlaps = 0

    def add(self, segment: RemoteSegment) -> OffsetRange | None:
        """Add a segment; return the offsets that no segment has before it."""
        end, self.end = self.end, max(self.end or 0, segment.end_offset + 1)
        if end is None or segment.start_offset == end:
            return None
        if segment.start_offset < end:
            self.overlaps += 1
            return None
        return OffsetRange(end, segment.start_offset - 1)
