"""Putting a compacted segment in the place of those whose records it has (Kafka's replaceSegments).

Whatever step a crash comes at, the next opening finds all of the old or all of the new: from the
first renaming on the files of the new one are named `.swap` and count, whatever is left of the old
ones. Order and suffixes are Kafka's. A large log of small segments has a thousand old ones, and
each costs some renames: they are renamed a few per turn of the loop, while the new one is read
under its passing name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.file_names import SWAP_FILE_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.storage.segment import Segment

# Old segments per turn, a millisecond's work.
_PER_STEP = 3


class SegmentSwap:
    """One of them; begun when it is made."""

    __slots__ = ("_new", "_on_gone", "_waiting", "old")

    def __init__(self, new: Segment, old: list[Segment], on_gone: Callable[[int], None]) -> None:
        """Args:
        new: with the suffix `.cleaned`, complete and synced; of the base of the first old one.
        old: neighbours, sealed.
        on_gone: told of each base offset at which no segment begins any more.
        """
        assert new.base_offset == old[0].base_offset
        self._new = new
        self.old = old
        self._waiting = list(old)
        self._on_gone = on_gone
        new.change_suffix(SWAP_FILE_SUFFIX)

    def step(self) -> bool:
        """Rename a few; returns whether all is done."""
        for segment in self._waiting[:_PER_STEP]:
            segment.mark_deleted()
            if segment.base_offset != self._new.base_offset:
                self._on_gone(segment.base_offset)
        del self._waiting[:_PER_STEP]
        if self._waiting:
            return False
        self._new.change_suffix("")
        return True
