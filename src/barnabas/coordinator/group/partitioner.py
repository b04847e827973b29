"""Which partition of `__consumer_offsets` a group lives in: Kafka's formula, Java's string hash."""

from __future__ import annotations

import struct

_INT_MIN = -(1 << 31)


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 code units, as a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        value = (value * 31 + unit) & 0xFFFF_FFFF
    return value - (1 << 32) if value & 0x8000_0000 else value


def partition_for(group_id: str, partition_count: int) -> int:
    """The partition of a group, and with it the coordinator: its leader."""
    value = java_hash(group_id)
    # Java's absolute value of the least int is itself; Kafka takes 0 for it.
    return (0 if value == _INT_MIN else abs(value)) % partition_count
