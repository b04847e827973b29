"""Variable-length integers, strings and uuids of the Kafka protocol.

Unsigned varints and zigzag numbers are encoded as in Protocol Buffers. A compact length is the
length + 1, and zero means null (KIP-482). Uuids print as url-safe base64 without padding.
"""

from __future__ import annotations

import base64
import binascii

from barnabas.protocol.errors import ProtocolError

Bytes = bytes | bytearray | memoryview

# Unsigned varints of one byte, ready to append.
_ONE_BYTE = tuple(bytes((value,)) for value in range(128))

# Kafka refuses longer strings, although the length prefix allows them.
STRING_BYTES_MAX = 0x7FFF


def unsigned_varint(value: int) -> bytes:
    """Encode 0 <= value < 2**64 in as few bytes as possible."""
    if value < 128:
        if value < 0:
            raise ProtocolError(f"an unsigned varint cannot hold {value}")
        return _ONE_BYTE[value]
    if value < 16384:
        return bytes((value & 127 | 128, value >> 7))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """Zigzag encode a signed 32-bit number."""
    return unsigned_varint((value << 1 ^ value >> 31) & 0xFFFFFFFF)


def varint_tail(view: Bytes, position: int, first: int) -> tuple[int, int]:
    """Finish an unsigned varint whose first byte was read and has its continuation bit set.

    Returns:
        The value and the position after it.

    Raises:
        ProtocolError: The varint has more than five bytes or more than 32 bits.
        IndexError: The bytes end within the number.
    """
    byte = view[position]
    if byte < 128:
        # A varint of two bytes, which is the usual case for lengths of records.
        return first & 127 | byte << 7, position + 1
    value = first & 127
    for shift in (7, 14, 21, 28):
        byte = view[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise ProtocolError("a varint is longer than 32 bits")


def string_length_tail(view: Bytes, position: int, first: int) -> tuple[int, int]:
    """Finish the compact length of a string like `varint_tail`; Kafka allows 32767 bytes."""
    value, position = varint_tail(view, position, first)
    if value - 1 > STRING_BYTES_MAX:
        raise ProtocolError(
            f"the length of a string is {value - 1} bytes; at most {STRING_BYTES_MAX} are allowed"
        )
    return value, position


def read_unsigned_varint(view: Bytes, position: int) -> tuple[int, int]:
    """Read an unsigned 32-bit varint: (value, position after it)."""
    try:
        first = view[position]
        if first < 128:
            return first, position + 1
        return varint_tail(view, position + 1, first)
    except IndexError:
        raise ProtocolError("the bytes end within a varint") from None


def read_varint(view: Bytes, position: int) -> tuple[int, int]:
    """Read a zigzag 32-bit number: (value, position after it)."""
    value, position = read_unsigned_varint(view, position)
    return value >> 1 ^ -(value & 1), position


def uuid_to_string(uuid: bytes) -> str:
    """Print 16 bytes as Kafka does: 22 characters of url-safe base64."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode("ascii")


def uuid_from_string(text: str) -> bytes:
    """Return the 16 bytes of a uuid that `uuid_to_string` printed.

    Raises:
        ProtocolError: The text is not 16 bytes of url-safe base64.
    """
    try:
        uuid = base64.b64decode(text.encode("ascii") + b"==", altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        uuid = b""
    if len(uuid) != 16:
        raise ProtocolError(f"not a uuid: {text!r}")
    return uuid
