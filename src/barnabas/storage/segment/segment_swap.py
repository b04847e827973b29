"""Replacement of segments by their compacted segment (Kafka's replaceSegments).

After a crash at any step, the next opening finds either all old segments or the complete new one.
Once renaming begins, the files of the new segment end in `.swap` and take precedence over remaining
old files. Order and suffixes are Kafka's.

A large log with small segments may replace a thousand segments, and each needs several renames. So
a few are renamed per turn of the loop, while the new segment is already read under its `.swap`
name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.file_names import SWAP_FILE_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.storage.segment.segment import Segment

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
