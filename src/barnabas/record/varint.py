"""Zigzag varints in the records of a v2 batch (KIP-98).

The protocol package has separate varint functions for messages. These raise the errors of the
record format.
"""

from __future__ import annotations

from barnabas.record.errors import CorruptBatchError

# A 64-bit number has at most ten bytes of seven bits.
_SHIFT_MAX = 63
# A 32-bit number has at most five bytes.
INT_BYTES_MAX = 5


def read_varint(buffer: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the signed number at `position`, and the position after it.

    Raises:
        IndexError: the buffer ends within the number.
        CorruptBatchError: the number has more than ten bytes.
    """
    byte = buffer[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value, shift = byte & 0x7F, 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > _SHIFT_MAX:
            raise CorruptBatchError(f"varint at {position} has more than ten bytes")
    value &= 0xFFFFFFFFFFFFFFFF
    return (value >> 1) ^ -(value & 1), position


def write_varint(output: bytearray, value: int) -> None:
    """Append a signed number of at most 64 bits."""
    value = (value << 1) ^ (value >> 63)
    while value >= 0x80:
        output.append(value & 0x7F | 0x80)
        value >>= 7
    output.append(value)


def varint(value: int) -> bytes:
    """Return a signed number of at most 64 bits as a varint."""
    output = bytearray()
    write_varint(output, value)
    return bytes(output)


# The varints of the numbers below SMALL_MAX, then that of -1, so that it is found by its index.
SMALL_MAX = 512
SMALL_VARINTS = [*map(varint, range(SMALL_MAX)), varint(-1)]
