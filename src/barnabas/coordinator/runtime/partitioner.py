"""Maps keys, such as group ids, to state partitions, by Kafka's formula with Java's hash."""

from __future__ import annotations

from functools import lru_cache

from barnabas.protocol.java_collections import string_hash

_INT_MIN = -(1 << 31)
# Hashes are cached, since a member sends its group id with each heartbeat and commit. The limits
# bound the memory of the cache.
_CACHED_HASHES_MAX = 1_024
_CACHED_LENGTH_MAX = 256


def java_hash(text: str) -> int:
    """Return Java's String.hashCode: over UTF-16 code units, as a signed 32-bit integer."""
    value = string_hash(text)
    return value - (1 << 32) if value & 0x8000_0000 else value


_cached_java_hash = lru_cache(_CACHED_HASHES_MAX)(java_hash)


def partition_for(key: str, partition_count: int) -> int:
    """Return the state partition of a key. The leader of this partition is its coordinator."""
    value = java_hash(key) if len(key) > _CACHED_LENGTH_MAX else _cached_java_hash(key)
    # As in Kafka, 0 replaces the absolute value of the smallest integer, which overflows in Java.
    return (0 if value == _INT_MIN else abs(value)) % partition_count
