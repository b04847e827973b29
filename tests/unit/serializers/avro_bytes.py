"""Avro values as bytes, for tests with values that no encoder writes."""

from __future__ import annotations


def encode_long(number: int) -> bytes:
    """Return a number as Avro's long."""
    left = number << 1 if number >= 0 else (-number << 1) - 1
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def blocks(count: int, size: int = 0, item: bytes = b"", *, is_sized: bool = False) -> bytes:
    """Return an array or map of blocks of at most `size` items; 0 for one block."""
    data = b""
    while count:
        part = min(count, size or count)
        head = encode_long(-part) + encode_long(len(item) * part) if is_sized else encode_long(part)
        data += head + item * part
        count -= part
    return data + b"\0"
