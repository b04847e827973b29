"""Small record batches that are costly: decompression bombs, wrong counts and times, and random
bytes with a valid checksum.

They are created once. Most have at most some kilobytes.
"""

from __future__ import annotations

import random

from barnabas.record.batch import ATTRIBUTES_POSITION, HEADER_SIZE, set_crc
from barnabas.record.builder import BatchBuilder
from barnabas.record.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from barnabas.record.legacy import write_message_set
from barnabas.record.record import Record, varint
from producer_batches import Payload, packed, record

_TIMESTAMP_TYPE_FLAG = 0x08
_MAX_TIMESTAMP = slice(35, 43)
_BASE_TIMESTAMP = slice(27, 35)
# The smallest record with an empty key: length 6, five zero fields, and the key size.
_KEYED = b"\x0c\0\0\0\0\x01\0"
_KEYLESS = b"\x0c\0\0\0\x01\x01\0"
_FAR = (2**63 - 1).to_bytes(8, "big")
_CODES = (NONE, GZIP, SNAPPY, LZ4, ZSTD)


def batch(payload: bytes, count: int, code: int = NONE, flags: int = 0) -> bytearray:
    """Return a batch that claims to contain this number of records."""
    builder = BatchBuilder()
    builder.append(1000, b"k", b"v")
    made = builder.build()[:HEADER_SIZE] + compress(code, payload)
    made[8:12] = (len(made) - 12).to_bytes(4, "big")
    made[ATTRIBUTES_POSITION + 1] = code | flags
    made[23:27] = (count - 1).to_bytes(4, "big")
    made[57:61] = count.to_bytes(4, "big")
    set_crc(made, 0, len(made))
    return made


def _with_time(made: bytearray, place: slice) -> bytearray:
    made = bytearray(made)
    made[place] = _FAR
    set_crc(made, 0, len(made))
    return made


def _in_order(count: int) -> bytes:
    """Return this number of empty records, at consecutive offsets."""
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(1000, b"", None)
    return bytes(builder.build()[HEADER_SIZE:])


def _with_headers(counts: list[int]) -> Payload:
    """Return records with these numbers of empty headers."""
    made = (record(index, headers=varint(n) + b"\0\1" * n) for index, n in enumerate(counts))
    return Payload(b"".join(made), len(counts))


def made_bombs() -> list[bytes]:
    """Return all bombs."""
    few = _in_order(3)
    many = _in_order(200_000)
    bombs = [
        batch(few, 20_000_000),
        batch(few, 20_000_000, NONE, _TIMESTAMP_TYPE_FLAG),
        _with_time(batch(few, 3), _MAX_TIMESTAMP),
        _with_time(batch(few, 3), _BASE_TIMESTAMP),
        batch(b"\xff" * 11 + bytes(20), 1),
        batch(b"\x30\0\0\0" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" + bytes(10), 1),
        bytearray(write_message_set(1, [Record(0, 5, 0, b"k", bytes(8 << 20))], GZIP)),
        bytearray(write_message_set(0, [Record(0, 5, 0, b"k", bytes(8 << 20))], LZ4)),
    ]
    wide = [_with_headers([490_000]), _with_headers([4_000] * 110), _with_headers([30_000] * 16)]
    bombs += [packed(payload) for payload in wide]
    for code in _CODES[1:]:
        bombs += [packed(payload, code) for payload in (*wide, _with_headers([60_000] * 100))]
    for code in _CODES:
        for payload in (bytes(range(256)), bytes(300)):
            bombs += [batch(payload, 3, code), _with_time(batch(payload, 3, code), _MAX_TIMESTAMP)]
    for code in _CODES[1:]:
        zeros = bytes((100 if code in (GZIP, ZSTD) else 10) << 20)
        bombs += [
            batch(few, 20_000_000, code),
            batch(zeros, 15_000_000 if code in (GZIP, ZSTD) else 1_500_000, code),
            batch(_KEYED * 150_000, 150_000, code),
            batch(_KEYLESS * 150_000, 150_000, code),
            batch(many, 200_000, code),
            _with_time(batch(many, 200_000, code), _MAX_TIMESTAMP),
            batch(many, 200_000, code, _TIMESTAMP_TYPE_FLAG),
        ]
    # Largest request that a default broker accepts.
    return [bytes(each) for each in bombs if len(each) <= 1_000_000]


class Bombs:
    """Returns random bombs."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._made: list[bytes] = []

    def any(self) -> bytes:
        """Return a random bomb."""
        if not self._made:
            self._made = made_bombs()
        return self._rng.choice(self._made)
