"""The last offset of each key in the dirty part of a log (Kafka's OffsetMap), bounded in memory.

A dictionary. Short keys stand for themselves; longer ones are replaced by a digest that is longer
than any of them, so that no key is ever taken for another one. `log.cleaner.dedupe.buffer.size`
bounds it by what an entry of such a dictionary takes.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.record.compiled import CompiledRecord

# What the key, the offset and the dictionary's slot of an entry take together, measured: 145 to 157
# bytes at the largest, while the dictionary grows.
ENTRY_BYTES = 160
# A digest is one byte longer than the longest key that stands for itself.
_PLAIN_KEY_BYTES_MAX = 31
_DIGEST_BYTES = 32
NO_OFFSET = -1


def _stand_in(key: bytes) -> bytes:
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()


class OffsetMap:
    """From keys to offsets; takes `capacity` keys."""

    __slots__ = ("_offsets", "capacity", "keyless", "latest_offset")

    def __init__(self, capacity: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self.capacity = capacity
        # Records without a key that `latest` met.
        self.keyless = 0
        # The last offset that the map covers; -1 before there is one.
        self.latest_offset = NO_OFFSET

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def utilization(self) -> float:
        """Which part of the capacity is taken."""
        return len(self._offsets) / self.capacity if self.capacity else 1.0

    def put(self, records: Sequence[CompiledRecord], first_offset: int) -> bool:
        """Note the keys of records from `first_offset` on, later than all before.

        Returns:
            False if there was no room; `latest_offset` says how far it went.
        """
        offsets, capacity = self._offsets, self.capacity
        may_fill = capacity - len(offsets) < len(records)
        for record in records:
            key, offset = record.key, record.offset
            if key is None or offset < first_offset:
                continue
            if len(key) > _PLAIN_KEY_BYTES_MAX:
                key = _stand_in(key)
            if may_fill and len(offsets) >= capacity:
                return False
            offsets[key] = offset
            self.latest_offset = offset
        return True

    def latest(self, records: Iterable[CompiledRecord]) -> list[CompiledRecord]:
        """Those records that are the last ones of their key; those without a key are not."""
        get = self._offsets.get
        found = []
        for record in records:
            key = record.key
            if key is None:
                self.keyless += 1
                continue
            if len(key) > _PLAIN_KEY_BYTES_MAX:
                key = _stand_in(key)
            if record.offset >= get(key, NO_OFFSET):
                found.append(record)
        return found


def capacity_for(memory_bytes: int, load_factor: float) -> int:
    """How many keys fit."""
    return max(1, int(memory_bytes // ENTRY_BYTES * load_factor))
