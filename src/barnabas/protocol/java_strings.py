"""The hash and the order of Java's strings, on which results of Kafka depend."""

from __future__ import annotations

import struct
from operator import mul
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MASK = 0xFFFF_FFFF
# Powers of 31 for the hashes of short strings: the last unit has the factor 1.
_SHORT = 256
_POWERS = [pow(31, exponent, 1 << 32) for exponent in range(_SHORT - 1, -1, -1)]


def string_hash(text: str) -> int:
    """Return Java's String.hashCode as an unsigned number."""
    if text.isascii():
        units: Sequence[int] = text.encode()
    else:
        raw = string_order(text)
        units = struct.unpack(f">{len(raw) // 2}H", raw)
    if len(units) <= _SHORT:
        products: Iterator[int] = map(mul, units, _POWERS[_SHORT - len(units) :])
        return sum(products) & _MASK
    value = 0
    for unit in units:
        value = (31 * value + unit) & _MASK
    return value


def string_order(text: str) -> bytes:
    """Return the key by which Java's String.compareTo sorts: the UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")
