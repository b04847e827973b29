"""Batches with a valid checksum and any records: well-formed ones, and garbage."""

from __future__ import annotations

import time
from typing import NamedTuple

from barnabas.record.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, set_crc
from barnabas.record.compression import compress
from barnabas.record.record import varint


def record(
    index: int = 0,
    value: bytes = b"v",
    *,
    time_delta: int = 0,
    key_size: int = -1,
    value_size: int | None = None,
    headers: bytes = b"\0",
) -> bytes:
    """Return a record without a key, whose sizes and count of headers may be wrong."""
    size = len(value) if value_size is None else value_size
    body = b"\0" + varint(time_delta) + varint(index)
    body += varint(key_size) + varint(size) + value + headers
    return varint(len(body)) + body


def with_length(short: bytes, length: int) -> bytes:
    """Return a record of less than 64 bytes with another length."""
    return varint(length) + short[1:]


def with_attributes(short: bytes, attributes: int) -> bytes:
    """Return a record of less than 64 bytes with other attributes, which have no meaning."""
    return short[:1] + bytes([attributes]) + short[2:]


class Payload(NamedTuple):
    """The records of a batch, and their number in its header."""

    content: bytes
    count: int


# Records with extreme contents that Apache Kafka accepts as well.
ACCEPTED = {
    "plain": Payload(record(0) + record(1) + record(2), 3),
    "header": Payload(record(headers=varint(1) + varint(1) + b"a" + varint(1) + b"b"), 1),
    "header-without-value": Payload(record(headers=varint(1) + varint(1) + b"a" + varint(-1)), 1),
    "header-not-utf-8": Payload(record(headers=varint(1) + varint(1) + b"\xff" + varint(-1)), 1),
    "attributes": Payload(with_attributes(record(0), 0xFF) + with_attributes(record(1), 0x80), 2),
    "time-before-first": Payload(record(0) + record(1, time_delta=-5), 2),
}

# A key with a negative size other than -1 is null for Java. librdkafka does not read the record, on
# either broker.
NULL_FOR_JAVA = Payload(record(0) + record(1, key_size=-5), 2)

# Records that Apache Kafka refuses, compressed or not.
GARBAGE = {
    "zeros": Payload(bytes(50), 3),
    "bytes-in-order": Payload(bytes(range(200)), 3),
    "negative-length": Payload(record(0) + record(1) + with_length(record(2), -5), 3),
    "rest-in-record": Payload(record(0) + record(1, headers=b"\0xyz") + record(2), 3),
    "key-beyond-record": Payload(record(0, key_size=50) + record(1) + record(2), 3),
    "huge-key": Payload(record(0, key_size=2**62), 1),
    "value-beyond-record": Payload(record(0) + record(1, value_size=9) + record(2), 3),
    "value-beyond-batch": Payload(record(0) + record(1) + record(2, value_size=500), 3),
    "value-too-short": Payload(record(0) + record(1, b"vvvv", value_size=2) + record(2), 3),
    "count-too-low": Payload(record(0) + record(1), 1),
    "count-too-high": Payload(record(0, bytes(50)), 2),
    "trailing-bytes": Payload(record(0) + record(1) + b"tail!", 2),
    "no-bytes": Payload(b"", 1),
    "header-without-key": Payload(record(headers=varint(1) + varint(-1) + varint(1) + b"x"), 1),
    "negative-header-count": Payload(record(headers=varint(-1)), 1),
    "missing-headers": Payload(record(headers=varint(5) + varint(1) + b"a" + varint(-1)), 1),
    "huge-header-count": Payload(record(headers=varint(1 << 40)), 1),
    "header-beyond-record": Payload(record(headers=varint(1) + varint(90) + b"a"), 1),
    "number-of-11-bytes": Payload(varint(16) + b"\0" + b"\x80" * 10 + b"\0\0\1\2v\0", 1),
}

# Records that Apache Kafka stores, or that it refuses with an unexpected error, at least in one
# form. Barnabas refuses them as GARBAGE.
STRICTLY_REFUSED = {
    "all-ones": Payload(b"\xff" * 50, 3),
    "length-beyond-batch": Payload(record(0) + record(1) + with_length(record(2), 5000), 3),
    "key-of-more-than-31-bits": Payload(record(0, key_size=2**31), 1),
    "equal-offsets": Payload(record(0) + record(0) + record(0), 3),
    "offsets-not-in-order": Payload(record(0) + record(2) + record(1), 3),
    "offset-beyond-batch": Payload(record(0) + record(1) + record(2**31 - 1), 3),
    "negative-offset": Payload(record(-1), 1),
}


def packed(
    payload: Payload, compression: int = 0, largest: int | None = None, first: int | None = None
) -> bytearray:
    """Return a batch with these records.

    Args:
        payload: the records.
        compression: compression code.
        largest: the largest timestamp in the header; by default the first one.
        first: the first timestamp; by default the current time.
    """
    first = int(time.time() * 1000) if first is None else first
    records = compress(compression, payload.content)
    made = bytearray(HEADER_SIZE) + records
    HEADER.pack_into(
        made, 0, 0, HEADER_SIZE - LOG_OVERHEAD + len(records), -1, 2, 0, compression,
        payload.count - 1, first, first if largest is None else largest, -1, -1, -1, payload.count,
    )  # fmt: skip
    set_crc(made, 0, len(made))
    return made
