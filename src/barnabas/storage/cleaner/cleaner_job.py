"""One pass over a log: its input, its map of keys and its results, which cross a process border.

`OffsetMap` has the last offset of each key in the dirty part of the log (Kafka's OffsetMap), in
bounded memory. It is a dictionary. Short keys are stored directly. Longer keys are replaced by a
digest that is longer than any directly stored key, so the two kinds never collide.
`log.cleaner.dedupe.buffer.size` bounds the map, at a fixed number of bytes per entry.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.record.compiled import CompiledRecord
    from barnabas.storage.config import LogConfig
    from barnabas.storage.segment.transaction_index import AbortedEntry


class SourceSegment(NamedTuple):
    """A sealed segment to read."""

    base_offset: int
    size: int
    # Base offset of the next segment.
    end_offset: int


class LastRecord(NamedTuple):
    """Last entry of an active producer in the log (Kafka's LastRecord)."""

    # Last offset of its last data batch; -1 if only markers are known.
    last_data_offset: int
    producer_epoch: int


class CleaningJob(msgspec.Struct, frozen=True):
    """Input of one pass over one log."""

    directory: str
    config: LogConfig
    # All segments below `first_uncleanable_offset`, from the first one on.
    sources: tuple[SourceSegment, ...]
    # End of the last pass; keys are collected from here on.
    first_dirty_offset: int
    # Base offset of the first segment that must not change.
    first_uncleanable_offset: int
    # Every aborted transaction that lies at least partly below that offset.
    aborted: tuple[AbortedEntry, ...]
    # Key: producer id.
    active_producers: Mapping[int, LastRecord]
    now_ms: int
    # Maximum number of keys in the offset map.
    map_capacity: int
    # Size of a read in bytes.
    buffer_bytes: int


class MapBuilt(NamedTuple):
    """Report after the dirty part was read, before any segment is written."""

    # Exclusive end of the range that the pass compacts.
    end_offset: int
    utilization: float


class CleanedSegment(NamedTuple):
    """Report that a group of segments was rewritten, with suffix `.cleaned`, and synced.

    There is one report per group. An unchanged single segment is neither rewritten nor reported.
    """

    base_offset: int
    size: int
    # Base offsets of the segments that it replaces.
    replaced: tuple[int, ...]


class CleaningStats(msgspec.Struct):
    """Totals of a pass, reported last."""

    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0
    # Removed records without a key, written before the topic was compacted.
    keyless: int = 0


# Memory for key, offset and dictionary slot of an entry. Measured: at most 145 to 157 bytes, while
# the dictionary grows.
ENTRY_BYTES = 160
# A digest is one byte longer than the longest key that is stored directly.
_PLAIN_KEY_BYTES_MAX = 31
_DIGEST_BYTES = 32
NO_OFFSET = -1


def _stored_key(key: bytes) -> bytes:
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()


class OffsetMap:
    """Map from keys to offsets, for at most `capacity` keys."""

    __slots__ = ("_offsets", "capacity", "keyless", "latest_offset")

    def __init__(self, capacity: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self.capacity = capacity
        # Number of records without a key that `latest` has skipped.
        self.keyless = 0
        # Last offset that the map covers; -1 for none.
        self.latest_offset = NO_OFFSET

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def utilization(self) -> float:
        """The used fraction of the capacity."""
        return len(self._offsets) / self.capacity if self.capacity else 1.0

    def put(self, records: Sequence[CompiledRecord], first_offset: int) -> bool:
        """Add the keys of records from `first_offset` on, which must follow all earlier records.

        Returns:
            False if the map is full; `latest_offset` is the last offset covered.
        """
        offsets, capacity = self._offsets, self.capacity
        may_fill = capacity - len(offsets) < len(records)
        for record in records:
            key, offset = record.key, record.offset
            if key is None or offset < first_offset:
                continue
            if len(key) > _PLAIN_KEY_BYTES_MAX:
                key = _stored_key(key)
            if may_fill and len(offsets) >= capacity:
                return False
            offsets[key] = offset
            self.latest_offset = offset
        return True

    def latest(self, records: Iterable[CompiledRecord]) -> list[CompiledRecord]:
        """Return the records that are the last of their key; records without a key are dropped."""
        get = self._offsets.get
        found = []
        for record in records:
            key = record.key
            if key is None:
                self.keyless += 1
                continue
            if len(key) > _PLAIN_KEY_BYTES_MAX:
                key = _stored_key(key)
            if record.offset >= get(key, NO_OFFSET):
                found.append(record)
        return found


def capacity_for(memory_bytes: int, load_factor: float) -> int:
    """Return the number of keys that fit."""
    return max(1, int(memory_bytes // ENTRY_BYTES * load_factor))
