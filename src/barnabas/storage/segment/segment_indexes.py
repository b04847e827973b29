"""Sparse indexes of a segment: from offsets to positions, and from timestamps to offsets (KIP-33).

An entry of the offset index (`.index`) has 8 bytes: the last offset of a batch, relative to the
segment's base offset, and the position where the batch begins. An entry of the time index
(`.timeindex`) has 12 bytes: a timestamp, and the relative last offset of a batch. No batch up to
that offset has a larger timestamp.

`IndexFile` is the file of either: fixed-size entries, written in groups, possibly followed by
zeros. Entries are buffered until there are enough for a write, or until the segment is rolled,
synced or closed. A crash may lose buffered entries, but recovery rebuilds every index above the
recovery point, and a sync writes them first. Kafka maps its index files into memory. It pads them
with zeros while they are open, and after a kill; this class removes the padding.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from struct import Struct
from typing import TYPE_CHECKING

from barnabas.runtime.disk import is_out_of_descriptors

if TYPE_CHECKING:
    from barnabas.runtime.disk import Disk


# Maximum number of buffered bytes.
_PENDING_BYTES_MAX = 768
# Number of entries of the active segment that stay in memory when `trim` drops the earlier ones.
# Reads near the end of the log need these only.
TAIL_ENTRIES = 1024


class IndexFile:
    """Reads and appends whole entries; holds no descriptor between calls."""

    __slots__ = (
        "_changes",
        "_disk",
        "_entry_bytes",
        "_pending",
        "_synced_changes",
        "_written_bytes",
        "path",
    )

    def __init__(self, disk: Disk, path: str, entry_bytes: int) -> None:
        self._disk = disk
        self.path = path
        self._entry_bytes = entry_bytes
        # Entries not yet in the file.
        self._pending = bytearray()
        # Bytes of entries in the file without padding; None until the file was examined.
        self._written_bytes: int | None = None
        # Number of changes of the file, and how many of them are synced. An existing file counts as
        # changed, because an earlier process may not have synced it.
        self._changes = 1
        self._synced_changes = 0

    def create(self) -> None:
        """Create the file, empty."""
        self._disk.open(self.path, briefly=True).close()
        self.start_empty()

    def start_empty(self) -> None:
        """Start without entries; the file is absent or empty."""
        self._written_bytes = 0
        # For an empty file, only the directory entry has to be synced.
        self._changes = self._synced_changes = 0

    def read(self) -> bytes:
        """Return all entries; an absent file has none."""
        content = self._disk.read(self.path) if self._disk.exists(self.path) else b""
        size = len(content.rstrip(b"\0"))
        entry_bytes = self._entry_bytes
        size = min(-(-size // entry_bytes) * entry_bytes, len(content) // entry_bytes * entry_bytes)
        self._written_bytes = size
        return content[:size] + self._pending

    def last_entry(self) -> bytes | None:
        """Return the last entry, None without one; read no more of the file than necessary."""
        if self._pending:
            return bytes(self._pending[-self._entry_bytes :])
        end = self._written_bytes
        if end is None:
            return self._find_end()
        if not end:
            return None
        file = self._disk.open(self.path, briefly=True)
        try:
            return file.read_at(self._entry_bytes, end - self._entry_bytes)
        finally:
            file.close()

    def append(self, entry: bytes) -> None:
        """Append an entry, which may stay in memory until `write_out`."""
        pending = self._pending
        pending += entry
        if len(pending) >= _PENDING_BYTES_MAX:
            try:
                self.write_out()
            except OSError as error:
                # The batch is in the log and its entry is buffered; a later call writes the entry.
                if not is_out_of_descriptors(error):
                    raise

    def write_out(self) -> None:
        """Write buffered entries to the file, and remove padding."""
        if not self._pending:
            return
        if self._written_bytes is None:
            self._find_end()
        written = self._written_bytes or 0
        file = self._disk.open(self.path, briefly=True)
        self._changes += 1
        try:
            if file.size() != written:
                file.truncate(written)
            file.append(self._pending)
            self._written_bytes = written + len(self._pending)
            self._pending = bytearray()
        finally:
            file.close()

    def remove_padding(self) -> None:
        """Remove zeros after the last entry; the file must exist."""
        if self._written_bytes is None:
            self._find_end()
        written = self._written_bytes or 0
        if self._disk.size(self.path) == written:
            return
        file = self._disk.open(self.path, briefly=True)
        self._changes += 1
        try:
            file.truncate(written)
        finally:
            file.close()

    def sync(self) -> None:
        """Sync the written entries; callable on any thread."""
        changes = self._changes
        if self._synced_changes == changes:
            return
        try:
            file = self._disk.open(self.path, create=False, briefly=True)
        except FileNotFoundError:
            # The file was deleted with its segment.
            return
        try:
            file.sync()
        finally:
            file.close()
        self._synced_changes = changes

    def replace(self, content: bytes) -> None:
        """Replace the content of the file."""
        self._pending = bytearray()
        file = self._disk.open(self.path, briefly=True)
        self._changes += 1
        try:
            file.truncate(0)
            if content:
                file.append(content)
        finally:
            file.close()
        self._written_bytes = len(content)

    def _find_end(self) -> bytes | None:
        """Find the end of the entries, before any padding, and return the last entry."""
        try:
            file = self._disk.open(self.path, create=False, briefly=True)
        except FileNotFoundError:
            self._written_bytes = 0
            return None
        try:
            size = file.size() // self._entry_bytes * self._entry_bytes
            tail = file.read_at(self._entry_bytes, max(0, size - self._entry_bytes))
        finally:
            file.close()
        if size and not any(tail):
            return self.read()[-self._entry_bytes :] or None
        self._written_bytes = size
        return tail if size else None


_OFFSET_ENTRY_BYTES = 8
RELATIVE_OFFSET_MAX = 0x7FFF_FFFF
_OFFSET_ENTRY = Struct(">ii")
_SWAP = sys.byteorder == "little"


class OffsetIndex:
    """Offset index; loaded on first use, cut to its end by `trim` and unloaded by `unload`."""

    __slots__ = ("_max_entries", "_offsets", "_positions", "_trimmed", "base_offset", "file")

    def __init__(self, disk: Disk, path: str, base_offset: int, max_bytes: int) -> None:
        self.file = IndexFile(disk, path, _OFFSET_ENTRY_BYTES)
        self.base_offset = base_offset
        self._max_entries = max_bytes // _OFFSET_ENTRY_BYTES
        # Relative offsets, strictly increasing, and positions; None until loaded.
        self._offsets: array[int] | None = None
        self._positions: array[int] = array("i")
        # Number of entries before the arrays, which are only in the file. If there are any, the
        # arrays are not empty.
        self._trimmed = 0

    def create(self) -> None:
        """Start empty, for a new segment, whose file is created separately."""
        self.file.start_empty()
        self._offsets = array("i")
        self._positions = array("i")
        self._trimmed = 0

    def __len__(self) -> int:
        return len(self._loaded_end()) + self._trimmed

    @property
    def is_full(self) -> bool:
        """Whether no further entry fits."""
        offsets = self._offsets
        count = len(self._loaded() if offsets is None else offsets) + self._trimmed
        return count >= self._max_entries

    def lookup(self, offset: int) -> int:
        """Return the position of the entry at or before `offset`, for a forward scan."""
        return self.entry_before(offset)[1]

    def entry_before(self, offset: int) -> tuple[int, int]:
        """Return offset and position of the entry at or before `offset`; position 0 without one."""
        relative = min(offset - self.base_offset, RELATIVE_OFFSET_MAX)
        offsets = self._loaded_end()
        if self._trimmed and relative < offsets[0]:
            offsets = self._loaded()
        slot = bisect_right(offsets, relative)
        if not slot:
            return self.base_offset, 0
        return self.base_offset + offsets[slot - 1], self._positions[slot - 1]

    def forget(self, position: int) -> None:
        """Remove the damaged entry of a position from memory."""
        offsets = self._loaded()
        slot = self._positions.index(position)
        del offsets[slot]
        del self._positions[slot]

    def drop_from(self, offset: int, position: int) -> bool:
        """Remove entries at the end that contradict a new entry of `offset` and `position`.

        Returns:
            Whether entries were removed, so that the index was damaged.
        """
        relative = offset - self.base_offset
        offsets = self._loaded_end()
        if not offsets or (offsets[-1] < relative and self._positions[-1] < position):
            return False
        offsets, positions = self._loaded(), self._positions
        while offsets and (offsets[-1] >= relative or positions[-1] >= position):
            offsets.pop()
            positions.pop()
        self.file.replace(self._encoded())
        return True

    def offset_beyond(self, position: int) -> int | None:
        """Return the offset of the first entry at or after `position`; None without one."""
        offsets = self._loaded_end()
        if self._trimmed and position <= self._positions[0]:
            offsets = self._loaded()
        slot = bisect_left(self._positions, position)
        return self.base_offset + offsets[slot] if slot < len(offsets) else None

    def append(self, last_offset: int, position: int) -> None:
        """Append the entry of a batch."""
        offsets = self._loaded_end()
        relative = last_offset - self.base_offset
        assert not offsets or relative > offsets[-1], (
            f"entry {relative} is not above the last entry {offsets[-1]}"
        )
        offsets.append(relative)
        self._positions.append(position)
        self.file.append(_OFFSET_ENTRY.pack(relative, position))

    def last_position(self) -> int:
        """Return the position of the last entry, 0 without one; does not read the whole file."""
        if self._offsets is not None:
            return self._positions[-1] if self._positions else 0
        entry = self.file.last_entry()
        return int(_OFFSET_ENTRY.unpack(entry)[1]) if entry else 0

    def truncate_to(self, offset: int) -> None:
        """Remove the entries from `offset` on."""
        offsets = self._loaded()
        count = bisect_left(offsets, min(offset - self.base_offset, RELATIVE_OFFSET_MAX))
        if count < len(offsets):
            del offsets[count:]
            del self._positions[count:]
            self.file.replace(self._encoded())

    def clear(self) -> None:
        """Remove all entries."""
        self._offsets = array("i")
        self._positions = array("i")
        self._trimmed = 0
        self.file.replace(b"")

    def is_sane(self, log_bytes: int) -> bool:
        """Return whether the entries can belong to a segment of `log_bytes`."""
        offsets, positions = self._loaded(), self._positions
        if not offsets:
            return True
        return (
            offsets[0] >= 0
            and positions[0] >= 0
            and positions[-1] < log_bytes
            and all(map(int.__lt__, offsets, offsets[1:]))
            and all(map(int.__lt__, positions, positions[1:]))
        )

    def unload(self) -> None:
        """Write buffered entries and free the memory; the next use reads the file."""
        self.file.write_out()
        self._offsets = None
        self._positions = array("i")
        self._trimmed = 0

    def trim(self) -> None:
        """Keep only the last TAIL_ENTRIES entries in memory; a lookup before them loads all."""
        offsets = self._offsets
        if offsets is not None and len(offsets) > TAIL_ENTRIES:
            surplus = len(offsets) - TAIL_ENTRIES
            del offsets[:surplus]
            del self._positions[:surplus]
            self._trimmed += surplus

    def _loaded_end(self) -> array[int]:
        """Return the offsets in memory, which begin with entry `_trimmed`."""
        offsets = self._offsets
        return self._loaded() if offsets is None else offsets

    def _loaded(self) -> array[int]:
        offsets = self._offsets
        if offsets is None or self._trimmed:
            self._trimmed = 0
            entries = array("i", self.file.read())
            if _SWAP:
                entries.byteswap()
            offsets = self._offsets = entries[0::2]
            self._positions = entries[1::2]
        return offsets

    def _encoded(self) -> bytes:
        entries = array("i", bytes(_OFFSET_ENTRY_BYTES * len(self._positions)))
        entries[0::2] = self._loaded()
        entries[1::2] = self._positions
        if _SWAP:
            entries.byteswap()
        return entries.tobytes()


_TIME_ENTRY_BYTES = 12
_TIME_ENTRY = Struct(">qi")
NO_TIMESTAMP = -1
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
        self.file = IndexFile(disk, path, _TIME_ENTRY_BYTES)
        self.base_offset = base_offset
        self._max_entries = max_bytes // _TIME_ENTRY_BYTES
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
                timestamp, relative = _TIME_ENTRY.unpack(entry)
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
        self.file.append(_TIME_ENTRY.pack(timestamp, relative))
        return True

    def truncate_to(self, offset: int) -> None:
        """Remove the entries from `offset` on."""
        timestamps = self._loaded()
        count = bisect_left(self._offsets, offset - self.base_offset)
        if count < len(timestamps):
            del timestamps[count:]
            del self._offsets[count:]
            self._last = None
            self.file.replace(b"".join(map(_TIME_ENTRY.pack, timestamps, self._offsets)))

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
