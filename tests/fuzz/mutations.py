"""Mutations of a frame: bits, lengths, versions, truncation, extra bytes."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

_LENGTH = struct.Struct(">i")


def _with_length(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


def flip_bits(frame: bytes, rng: random.Random) -> bytes:
    """Flip some bits of the body."""
    body = bytearray(frame[4:])
    for _ in range(rng.choice([1, 1, 2, 8])):
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    return _with_length(bytes(body))


def extreme_bytes(frame: bytes, rng: random.Random) -> bytes:
    """Set some bytes of the body to extreme values, which may be lengths and counts."""
    body = bytearray(frame[4:])
    for _ in range(rng.choice([1, 2, 4])):
        body[rng.randrange(len(body))] = rng.choice([0x00, 0x7F, 0x80, 0xFF])
    return _with_length(bytes(body))


def cut(frame: bytes, rng: random.Random) -> bytes:
    """Truncate the body, with a correct length."""
    return _with_length(frame[4 : 4 + rng.randrange(len(frame) - 3)])


def longer(frame: bytes, rng: random.Random) -> bytes:
    """Add bytes after the end of the request."""
    return _with_length(frame[4:] + rng.randbytes(rng.choice([1, 8, 100])))


def forged_length(frame: bytes, rng: random.Random) -> bytes:
    """Change the length field of the frame."""
    claimed = rng.choice([-1, -(2**31), 2**31 - 1, 100 << 20, len(frame) * 3, 0, 1, 5])
    return _LENGTH.pack(claimed) + frame[4:]


def odd_header(frame: bytes, rng: random.Random) -> bytes:
    """Use an unknown API or version."""
    body = bytearray(frame[4:])
    struct.pack_into(
        ">hh", body, 0, rng.choice([-1, 4, 95, 1000, 18, 0, 1]), rng.choice([-1, 0, 19, 99, 32767])
    )
    return _with_length(bytes(body))


def garbage(_frame: bytes, rng: random.Random) -> bytes:
    """Return random bytes."""
    if rng.random() < 0.3:
        return rng.choice(
            [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"]
        )
    return _with_length(rng.randbytes(rng.choice([0, 1, 7, 8, 9, 40, 400])))


# Mutations that cannot turn a request into another valid request.
CUTTING: list[Callable[[bytes, random.Random], bytes]] = [cut, forged_length, garbage]
ALL: list[Callable[[bytes, random.Random], bytes]] = [
    flip_bits, flip_bits, extreme_bytes, extreme_bytes, longer, odd_header, *CUTTING,
]  # fmt: skip
