"""The indexes of one remote segment in memory: offsets, times and aborted transactions.

The formats are those of Kafka's index files. A store or a disk may return damaged bytes, so the
entries are checked once when they are loaded. A lookup then needs no check, but the batch at the
position of an entry is still to be compared with it.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING

from barnabas.storage.remote.remote_storage import RemoteDamagedError
from barnabas.storage.segment.transaction_index import ENTRY_BYTES as TXN_ENTRY_BYTES, AbortedEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.storage.remote.remote_storage import RemoteSegment

_OFFSET_ENTRY_BYTES = 8
_TIME_ENTRY = Struct(">qi")
_TXN_ENTRY = Struct(">hqqqq")
# Largest size of each index. Kafka limits its files by segment.index.bytes, 10 MiB by default.
_INDEX_BYTES_MAX = 64 << 20
# Entries that are compared in one call into C, which holds the interpreter's lock.
_CHECKED_AT_ONCE = 4_096
# Positions that reads have found and no entry has. Older ones are dropped.
_LEARNED_MAX = 64
_SWAP = sys.byteorder == "little"


class LoadedIndexes:
    """The indexes of one segment. The bytes are checked, and never change."""

    __slots__ = (
        "_aborted",
        "_base_offset",
        "_learned",
        "_offsets",
        "_positions",
        "_time_offsets",
        "_times",
        "size",
    )

    def __init__(self, segment: RemoteSegment, parts: tuple[bytes, bytes, bytes]) -> None:
        """Check and keep the indexes. It may take some milliseconds, so it runs in a thread.

        Args:
            segment: the segment.
            parts: contents of its offset index, its time index and its transaction index.

        Raises:
            RemoteDamagedError: the bytes cannot be indexes of this segment.
        """
        offset_index, time_index, transaction_index = parts
        self._base_offset = segment.start_offset
        self._offsets, self._positions = _offset_entries(segment, offset_index)
        # Largest timestamps, and the relative offsets up to which they are the largest.
        self._times, self._time_offsets = _time_entries(segment, time_index)
        self._aborted = _aborted_entries(segment, transaction_index)
        # Offset -> position from which a forward search finds it. `learn` adds them.
        self._learned: dict[int, int] = {}
        # Memory, bytes.
        self.size = sum(map(len, parts)) + 1_000

    def position_of(self, offset: int) -> int:
        """Return a position at or before the batch of `offset`, where a batch begins."""
        learned = self._learned
        known = learned.get(offset)
        if known is not None:
            return known
        slot = bisect_right(self._offsets, offset - self._base_offset)
        found = self._positions[slot - 1] if slot else 0
        if learned:
            nearer = [at for known_offset, at in learned.items() if known_offset <= offset]
            found = max(found, *nearer) if nearer else found
        return found

    def learn(self, offset: int, position: int) -> None:
        """Remember that the batch of `offset` begins at `position` or later.

        A read in sequence continues there, and a long search is not repeated.
        """
        learned = self._learned
        learned.pop(offset, None)
        if len(learned) >= _LEARNED_MAX:
            del learned[next(iter(learned))]
        learned[offset] = position

    def boundary(self, first: int, last: int) -> int | None:
        """Return the largest position of an entry in [first, last]; None without one."""
        slot = bisect_right(self._positions, last)
        if slot and self._positions[slot - 1] >= first:
            return self._positions[slot - 1]
        return None

    def position_of_time(self, timestamp: int, from_offset: int) -> int:
        """Return a position at or before the first record at or after a time and an offset."""
        slot = bisect_right(self._times, timestamp)
        offset = self._base_offset + (self._time_offsets[slot - 1] if slot else 0)
        return self.position_of(max(offset, from_offset))

    def aborted(self, offset: int, end: int) -> tuple[list[AbortedEntry], bool]:
        """Return the aborted transactions that overlap [offset, end) and end in this segment.

        Returns:
            The transactions, and whether later segments cannot have more of them.
        """
        found: list[AbortedEntry] = []
        first = bisect_left(self._aborted, offset, key=_last_offset_of)
        for entry in islice(self._aborted, first, None):
            if entry.first_offset < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                return found, True
        return found, False


def _last_offset_of(entry: AbortedEntry) -> int:
    return entry.last_offset


def _offset_entries(segment: RemoteSegment, content: bytes) -> tuple[array[int], array[int]]:
    content = _without_padding(segment, content, _OFFSET_ENTRY_BYTES, "offset index")
    entries = array("i", content)
    if _SWAP:
        entries.byteswap()
    offsets, positions = entries[0::2], entries[1::2]
    if offsets:
        last = segment.end_offset - segment.start_offset
        is_placed = offsets[0] >= 0 and offsets[-1] <= last
        is_placed = is_placed and positions[0] >= 0 and positions[-1] < segment.size
        if not (is_placed and _is_ascending(offsets) and _is_ascending(positions)):
            raise _damaged(segment, "the offset index", "its entries are not in order")
    return offsets, positions


def _time_entries(segment: RemoteSegment, content: bytes) -> tuple[array[int], array[int]]:
    content = _without_padding(segment, content, _TIME_ENTRY.size, "time index")
    timestamps, offsets = array("q"), array("i")
    last_offset = segment.end_offset - segment.start_offset
    before = (-1, -1)
    for entry in _TIME_ENTRY.iter_unpack(content):
        timestamp, offset = entry
        if timestamp < before[0] or not before[1] <= offset <= last_offset:
            raise _damaged(segment, "the time index", "its entries are not in order")
        before = (timestamp, offset)
        timestamps.append(timestamp)
        offsets.append(offset)
    return timestamps, offsets


def _aborted_entries(segment: RemoteSegment, content: bytes) -> list[AbortedEntry]:
    if len(content) % TXN_ENTRY_BYTES or len(content) > _INDEX_BYTES_MAX:
        raise _damaged(segment, "the transaction index", f"it has {len(content)} bytes")
    entries: list[AbortedEntry] = []
    last = segment.start_offset - 1
    for version, producer_id, *offsets in _TXN_ENTRY.iter_unpack(content):
        first_offset, last_offset, stable = offsets
        is_placed = last < last_offset <= segment.end_offset and 0 <= first_offset <= last_offset
        is_stable = 0 <= stable <= last_offset + 1
        if version != 0 or producer_id < 0 or not (is_placed and is_stable):
            raise _damaged(segment, "the transaction index", "its entries are not in order")
        entries.append(AbortedEntry(producer_id, first_offset, last_offset, stable))
        last = last_offset
    return entries


def _without_padding(segment: RemoteSegment, content: bytes, entry_bytes: int, name: str) -> bytes:
    """Return whole entries, without the zeros with which Kafka pads an open index."""
    if len(content) > _INDEX_BYTES_MAX:
        raise _damaged(segment, f"the {name}", f"it has {len(content)} bytes")
    size = -(-len(content.rstrip(b"\0")) // entry_bytes) * entry_bytes
    if size > len(content):
        raise _damaged(segment, f"the {name}", "its last entry is incomplete")
    return content[:size]


def _is_ascending(values: Sequence[int]) -> bool:
    """Return whether each value is above the one before, in parts that others may interrupt."""
    for start in range(0, len(values) - 1, _CHECKED_AT_ONCE):
        part = values[start : start + _CHECKED_AT_ONCE + 1]
        if not all(map(int.__lt__, part, part[1:])):
            return False
    return True


def _damaged(segment: RemoteSegment, part: str, problem: str) -> RemoteDamagedError:
    return RemoteDamagedError(
        f"{part} of the remote segment {segment.topic}-{segment.partition} at offset "
        f"{segment.start_offset} is damaged: {problem}"
    )
