"""Sparse index from timestamps to offsets in a segment (Kafka's `.timeindex`, KIP-33).

An entry has 12 bytes: a timestamp, and the last offset of a batch relative to the segment's base
offset. No batch up to that offset has a larger timestamp.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from struct import Struct
from typing import TYPE_CHECKING

from barnabas.storage.segment.offset_index import TAIL_ENTRIES, IndexFile

if TYPE_CHECKING:
    from barnabas.runtime.disk import Disk

ENTRY_BYTES = 12
_ENTRY = Struct(">qi")
NO_TIMESTAMP = -1
_SWAP = sys.byteorder == "little"
# Index of the high half of a timestamp in memory.
_HIGH = 1 if _SWAP else 0


class TimeIndex:
    """Time index; loaded on first use, cut to its end by `trim` and unloaded by `unload`."""

    __slots__ = (
        "_last",
        "_max_entries",
        "_offsets",
        "_timestamps",
        "_trimmed",
        "base_offset",
        "file",
    )

    def __init__(self, disk: Disk, path: str, base_offset: int, max_bytes: int) -> None:
        self.file = IndexFile(disk, path, ENTRY_BYTES)
        self.base_offset = base_offset
        self._max_entries = max_bytes // ENTRY_BYTES
        # Timestamps, strictly increasing, and relative offsets; None until loaded.
        self._timestamps: array[int] | None = None
        self._offsets: array[int] = array("i")
        # Number of entries before the arrays, which are only in the file. If there are any, the
        # arrays are not empty.
        self._trimmed = 0
        # Timestamp and offset of the last entry; None until it is read.
        self._last: tuple[int, int] | None = None

    def create(self) -> None:
        """Start empty, for a new segment, whose file is created separately."""
        self.file.start_empty()
        self._timestamps = array("q")
        self._offsets = array("i")
        self._trimmed = 0
        self._last = (NO_TIMESTAMP, self.base_offset)

    def __len__(self) -> int:
        return len(self._loaded_end()) + self._trimmed

    @property
    def is_full(self) -> bool:
        """Whether no further entry fits; one place is reserved for the entry written on sealing."""
        timestamps = self._timestamps
        count = len(self._loaded() if timestamps is None else timestamps) + self._trimmed
        return count >= self._max_entries - 1

    def last_entry(self) -> tuple[int, int]:
        """Return timestamp and offset of the last entry; (-1, base offset) without one."""
        if self._last is None:
            entry = self.file.last_entry()
            if entry is None:
                self._last = (NO_TIMESTAMP, self.base_offset)
            else:
                timestamp, relative = _ENTRY.unpack(entry)
                self._last = (timestamp, self.base_offset + relative)
        return self._last

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """Return timestamp and offset of the last entry up to `timestamp`.

        A forward scan from that offset finds the first record at or after `timestamp`. Without such
        an entry, the result is (-1, base offset).
        """
        timestamps = self._loaded_end()
        if self._trimmed and timestamp < timestamps[0]:
            timestamps = self._loaded()
        slot = bisect_right(timestamps, timestamp)
        if not slot:
            return NO_TIMESTAMP, self.base_offset
        return timestamps[slot - 1], self.base_offset + self._offsets[slot - 1]

    def maybe_append(self, timestamp: int, offset: int) -> bool:
        """Append an entry if its timestamp is larger than the last one; return whether it was."""
        if timestamp <= self.last_entry()[0]:
            return False
        timestamps = self._loaded_end()
        timestamps.append(timestamp)
        relative = offset - self.base_offset
        self._offsets.append(relative)
        self._last = (timestamp, offset)
        self.file.append(_ENTRY.pack(timestamp, relative))
        return True

    def truncate_to(self, offset: int) -> None:
        """Remove the entries from `offset` on."""
        timestamps = self._loaded()
        count = bisect_left(self._offsets, offset - self.base_offset)
        if count < len(timestamps):
            del timestamps[count:]
            del self._offsets[count:]
            self._last = None
            self.file.replace(b"".join(map(_ENTRY.pack, timestamps, self._offsets)))

    def clear(self) -> None:
        """Remove all entries."""
        self._timestamps = array("q")
        self._offsets = array("i")
        self._trimmed = 0
        self._last = (NO_TIMESTAMP, self.base_offset)
        self.file.replace(b"")

    def is_sane(self) -> bool:
        """Return whether the entries are in order."""
        timestamps, offsets = self._loaded(), self._offsets
        return (not offsets or offsets[0] >= 0) and (
            all(map(int.__lt__, timestamps, timestamps[1:]))
            and all(map(int.__le__, offsets, offsets[1:]))
        )

    def unload(self) -> None:
        """Write buffered entries and free the memory; the next use reads the file."""
        self.file.write_out()
        self._timestamps = None
        self._offsets = array("i")
        self._trimmed = 0

    def trim(self) -> None:
        """Keep only the last TAIL_ENTRIES entries in memory; a lookup before them loads all."""
        timestamps = self._timestamps
        if timestamps is not None and len(timestamps) > TAIL_ENTRIES:
            surplus = len(timestamps) - TAIL_ENTRIES
            del timestamps[:surplus]
            del self._offsets[:surplus]
            self._trimmed += surplus

    def _loaded_end(self) -> array[int]:
        """Return the timestamps in memory, which begin with entry `_trimmed`."""
        timestamps = self._timestamps
        return self._loaded() if timestamps is None else timestamps

    def _loaded(self) -> array[int]:
        timestamps = self._timestamps
        if timestamps is None or self._trimmed:
            self._trimmed = 0
            # A full segment has hundreds of thousands of entries, so there is no loop over them.
            words = array("i", self.file.read())
            if _SWAP:
                words.byteswap()
            halves = array("i", bytes(8 * (len(words) // 3)))
            halves[_HIGH::2], halves[1 - _HIGH :: 2] = words[0::3], words[1::3]
            timestamps = self._timestamps = array("q", halves.tobytes())
            self._offsets = words[2::3]
        return timestamps
