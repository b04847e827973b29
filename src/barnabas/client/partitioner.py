"""Which partition a record goes to (Kafka's built-in partitioner; KIP-480, KIP-794).

A record with a key goes where murmur2 of the key says, the same place as with Kafka's own client.
Others stick to one partition until a batch worth of bytes went there, then move to another.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.runtime.rng import Rng

__all__ = ["StickyPartitioner", "murmur2", "partition_for_key"]

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


@lru_cache(maxsize=65_536)
def murmur2(data: bytes) -> int:
    """The 32 bit murmur2 hash of `data` with Kafka's seed, as an unsigned number.

    Keys repeat, and the hash costs a microsecond and more, so the last ones are kept.
    """
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    if length != whole:
        h ^= int.from_bytes(data[whole:], "little")
        h = h * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    return h ^ (h >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a record with a key: the hash without its sign, modulo the partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartitioner:
    """Chooses partitions for the records of one topic that have no key (KIP-794)."""

    __slots__ = ("_bytes", "_current", "_rng", "_sticky_bytes")

    def __init__(self, rng: Rng, sticky_bytes: int) -> None:
        self._rng = rng
        # Bytes after which another partition is chosen: batch.size.
        self._sticky_bytes = max(1, sticky_bytes)
        self._current = -1
        # Bytes that went to the current partition since it was chosen.
        self._bytes = 0

    def choose(self, size: int, available: Sequence[int]) -> int:
        """The partition for a record of `size` bytes, out of those that have a leader."""
        if self._current < 0 or self._bytes >= self._sticky_bytes or self._current not in available:
            self._bytes = 0
            self._current = self._another(available)
        self._bytes += size
        return self._current

    def _another(self, available: Sequence[int]) -> int:
        """A random partition, not the one just used if there are others."""
        others = [partition for partition in available if partition != self._current]
        choices = others or list(available)
        return choices[self._rng.randint(0, len(choices) - 1)]
