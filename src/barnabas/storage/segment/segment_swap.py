"""Replacement of segments by their compacted segment (Kafka's replaceSegments).

After a crash at any step, the next opening finds either all old segments or the complete new one.
Once renaming begins, the files of the new segment end in `.swap` and take precedence over remaining
old files. Order and suffixes are Kafka's.

A large log with small segments may replace a thousand segments, and each needs several renames. So
a few are renamed per turn of the loop, while the new segment is already read under its `.swap`
name.

When a log is opened, an interrupted replacement is completed or undone (Kafka's LogLoader). Files
with the suffix `.cleaned` are incomplete and are deleted. If the crash interrupted the renaming
from `.cleaned` to `.swap`, the `.swap` files of that compaction are deleted too. The remaining
`.swap` files are complete. The segments that they replace are deleted, and the `.swap` files get
their final names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.file_names import (
    CLEANED_FILE_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_FILE_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_of,
)
from barnabas.storage.segment.batch_scan import headers

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.disk import Disk
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
