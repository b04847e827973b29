"""Maps groups to partitions of `__consumer_offsets`, by Kafka's formula with Java's hash."""

from __future__ import annotations

import struct

_INT_MIN = -(1 << 31)


def java_hash(text: str) -> int:
    """Return Java's String.hashCode: over UTF-16 code units, as a signed 32-bit integer."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        value = (value * 31 + unit) & 0xFFFF_FFFF
    return value - (1 << 32) if value & 0x8000_0000 else value


def partition_for(group_id: str, partition_count: int) -> int:
    """Return the partition of a group. The leader of this partition is the group's coordinator."""
    value = java_hash(group_id)
    # As in Kafka, 0 replaces the absolute value of the smallest integer, which overflows in Java.
    return (0 if value == _INT_MIN else abs(value)) % partition_count
