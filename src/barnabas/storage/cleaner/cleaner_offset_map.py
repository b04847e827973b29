"""Last offset of each key in the dirty part of a log (Kafka's OffsetMap), in bounded memory.

The map is a dictionary. Short keys are stored directly. Longer keys are replaced by a digest that
is longer than any directly stored key, so the two kinds never collide.
`log.cleaner.dedupe.buffer.size` bounds the map, at a fixed number of bytes per entry.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.record.compiled import CompiledRecord

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
