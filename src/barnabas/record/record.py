"""A decoded record, the varints of its encoding, and the errors of malformed record data.

The protocol package has separate varint functions for messages. These are zigzag varints as in a v2
batch (KIP-98), and raise the errors of the record format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Record(NamedTuple):
    """A record with its absolute offset and timestamp.

    A named tuple, which needs one allocation per record. Timestamps are in ms since the epoch, -1
    for none.
    """

    offset: int
    timestamp: int
    # 0 for create time, 1 for log append time.
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class CorruptBatchError(ValueError):
    """The data is not a valid record batch, message set or control record."""


class DecompressedTooLargeError(CorruptBatchError):
    """The decompressed records exceed the size limit."""


class UnsupportedMagicError(CorruptBatchError):
    """A batch has another message format than the caller supports.

    Attributes:
        magic: the magic byte that was found.
    """

    __slots__ = ("magic",)

    def __init__(self, magic: int) -> None:
        super().__init__(f"record batch has magic {magic}, expected 2")
        self.magic = magic


class InvalidMessageSetError(CorruptBatchError):
    """Messages of magic 0 or 1 in an invalid combination; the error code is INVALID_RECORD."""


class MessageSetTooLargeError(CorruptBatchError):
    """Messages of magic 0 or 1 above the batch size limit; the error code is MESSAGE_TOO_LARGE."""


class UnsupportedConversionError(ValueError):
    """A batch cannot be converted to the older format, because it is compressed with zstd."""


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
