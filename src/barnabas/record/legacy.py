"""Message sets of magic 0 and 1: what Kafka wrote before 0.11 (KIP-31, KIP-32).

A message set is a run of messages, each with offset, size and CRC-32. A compressed message is a
wrapper whose value is a message set: with magic 1 the inner offsets count from 0 and the wrapper
has the last one's offset, with magic 0 they are absolute. One level of wrapping, no more.
"""

from __future__ import annotations

import zlib
from struct import Struct, error
from typing import TYPE_CHECKING, NamedTuple

from barnabas.record.batch import (
    COMPRESSION_MASK,
    CREATE_TIME,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    OFFSET_AND_LENGTH,
    TIMESTAMP_TYPE_FLAG,
    Buffer,
)
from barnabas.record.compression import (
    DECOMPRESSED_BYTES_MAX,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    compress,
    decompress,
    with_lz4_checksum_of_magic_0,
    with_lz4_checksum_of_the_format,
)
from barnabas.record.errors import (
    CorruptBatchError,
    InvalidMessageSetError,
    UnsupportedMagicError,
)
from barnabas.record.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAGIC_V0 = 0
MAGIC_V1 = 1

_CRC_MAGIC_ATTRIBUTES = Struct(">Ibb")
_TIMESTAMP = Struct(">q")
_LENGTH = Struct(">i")
_MAGIC_START = LOG_OVERHEAD + 4
_MESSAGE_BYTES_MIN = (14, 22)
_OFFSET_MAX = (1 << 63) - 1
# zstd came after these formats.
_MESSAGE_CODECS = frozenset((GZIP, SNAPPY, LZ4))


class Message(NamedTuple):
    """One message of a set, which may be a wrapper; key and value are views."""

    offset: int
    size: int
    crc: int
    magic: int
    attributes: int
    timestamp: int
    key: memoryview | None
    value: memoryview | None

    @property
    def compression(self) -> int:
        """Compression code of the wrapped set, 0 if the message is a plain one."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        """`CREATE_TIME` or `LOG_APPEND_TIME`; magic 0 has neither and counts as create time."""
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_FLAG else CREATE_TIME

    def content(self, timestamp: int) -> tuple[int, bytes | None, bytes | None]:
        """`timestamp`, which must be one that can be, with copies of key and value.

        Raises:
            CorruptBatchError: the timestamp cannot be.
        """
        if timestamp < NO_TIMESTAMP:
            raise CorruptBatchError(f"timestamp {timestamp} of a message cannot be")
        return (
            timestamp,
            None if self.key is None else bytes(self.key),
            None if self.value is None else bytes(self.value),
        )


def messages(buffer: Buffer, position: int = 0, *, check: bool = True) -> Iterator[Message]:
    """The outer messages of a set; a cut-off tail is left out.

    Args:
        buffer: a message set of magic 0 or 1.
        position: where to start.
        check: whether CRCs are checked.

    Raises:
        UnsupportedMagicError: a batch of magic 2 or an unknown one is among them.
        CorruptBatchError: anything malformed.
    """
    view = memoryview(buffer)
    end = len(view)
    while end - position >= LOG_OVERHEAD:
        offset, size = OFFSET_AND_LENGTH.unpack_from(view, position)
        if size < _MESSAGE_BYTES_MIN[0]:
            raise CorruptBatchError(f"message of {size} bytes is too small")
        next_position = position + LOG_OVERHEAD + size
        if next_position > end:
            return
        yield _read_message(view[position:next_position], offset, size, check=check)
        position = next_position


def _read_message(view: memoryview, offset: int, size: int, *, check: bool) -> Message:
    crc, magic, attributes = _CRC_MAGIC_ATTRIBUTES.unpack_from(view, LOG_OVERHEAD)
    if magic not in (MAGIC_V0, MAGIC_V1):
        raise UnsupportedMagicError(magic)
    if size < _MESSAGE_BYTES_MIN[magic]:
        raise CorruptBatchError(f"message of {size} bytes is too small")
    if check and zlib.crc32(view[_MAGIC_START:]) != crc:
        raise CorruptBatchError(f"message at offset {offset} has a wrong CRC")
    position = LOG_OVERHEAD + _CRC_MAGIC_ATTRIBUTES.size
    timestamp = NO_TIMESTAMP
    if magic == MAGIC_V1:
        (timestamp,) = _TIMESTAMP.unpack_from(view, position)
        position += _TIMESTAMP.size
    key, position = _read_bytes(view, position)
    value, position = _read_bytes(view, position)
    if position != len(view):
        raise CorruptBatchError(f"{len(view) - position} bytes are left behind a message's value")
    return Message(offset, size + LOG_OVERHEAD, crc, magic, attributes, timestamp, key, value)


def _read_bytes(view: memoryview, position: int) -> tuple[memoryview | None, int]:
    try:
        (length,) = _LENGTH.unpack_from(view, position)
    except error:
        raise CorruptBatchError("message is cut off") from None
    position += _LENGTH.size
    if length < 0:
        return None, position
    if length > len(view) - position:
        raise CorruptBatchError(f"field of {length} bytes does not fit its message")
    return view[position : position + length], position + length


def unwrap(message: Message, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """The records of a message: itself, or those that it wraps, with absolute offsets.

    Raises:
        InvalidMessageSetError: a wrapper in a wrapper, inner messages of another format, or an
            empty wrapper.
        CorruptBatchError: anything malformed, broken compression too.
    """
    if message.compression == NONE:
        return [_record(message, message.offset, message.timestamp, message.timestamp_type)]
    inner = list(inner_messages(message, decompressed_set(message, max_bytes)))
    shift = 0
    if message.magic == MAGIC_V1:
        shift = message.offset - inner[-1].offset
    if message.timestamp_type == LOG_APPEND_TIME:
        return [_record(m, m.offset + shift, message.timestamp, LOG_APPEND_TIME) for m in inner]
    return [_record(m, m.offset + shift, m.timestamp, CREATE_TIME) for m in inner]


def inner_messages(message: Message, inner_set: Buffer) -> Iterator[Message]:
    """What a wrapper holds, with inner offsets; one message at least.

    Args:
        inner_set: what `decompressed_set` made of it.

    Raises:
        InvalidMessageSetError, CorruptBatchError: as `unwrap`.
    """
    is_empty = True
    for inner in messages(inner_set):
        is_empty = False
        if inner.compression != NONE or inner.magic != message.magic:
            raise InvalidMessageSetError(
                "compressed message holds compressed or differently made messages"
            )
        yield inner
    if is_empty:
        raise InvalidMessageSetError("compressed message holds no messages")


def decompressed_set(message: Message, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """The message set in a wrapper.

    Raises:
        InvalidMessageSetError, CorruptBatchError: as `unwrap`.
    """
    if message.compression not in _MESSAGE_CODECS or message.value is None:
        raise InvalidMessageSetError("compressed message has no value or an unknown compression")
    value: Buffer = message.value
    if message.compression == LZ4 and message.magic == MAGIC_V0:
        value = with_lz4_checksum_of_the_format(value)
    return decompress(message.compression, value, max_bytes)


def _record(message: Message, offset: int, timestamp: int, timestamp_type: int) -> Record:
    if timestamp < NO_TIMESTAMP or not -_OFFSET_MAX <= offset <= _OFFSET_MAX:
        raise CorruptBatchError("message has an offset or timestamp that cannot be")
    return Record(
        offset,
        timestamp,
        timestamp_type,
        None if message.key is None else bytes(message.key),
        None if message.value is None else bytes(message.value),
    )


def read_message_set(
    buffer: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[tuple[Message, list[Record]]]:
    """Each outer message of magic 0 or 1 with its records; `max_bytes` is for all of the set."""
    room = max_bytes
    for message in messages(buffer):
        unwrapped = unwrap(message, room)
        if message.compression != NONE:
            room -= sum(len(r.key or b"") + len(r.value or b"") for r in unwrapped)
        yield message, unwrapped


def write_message(magic: int, offset: int, record: Record, compression: int = NONE) -> bytes:
    """One message.

    Args:
        magic: 0 or 1.
        offset: absolute, or relative inside a wrapper of magic 1.
        record: timestamp (left out in magic 0), key and value; headers are lost.
        compression: code for a wrapper, whose value is the compressed set.
    """
    attributes = compression
    if magic == MAGIC_V1 and record.timestamp_type == LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_FLAG
    body = bytearray((magic, attributes))
    if magic == MAGIC_V1:
        body += _TIMESTAMP.pack(record.timestamp)
    for part in (record.key, record.value):
        body += _LENGTH.pack(-1 if part is None else len(part))
        body += part or b""
    head = OFFSET_AND_LENGTH.pack(offset, len(body) + 4)
    return head + zlib.crc32(body).to_bytes(4, "big") + body


def write_message_set(magic: int, records: Sequence[Record], compression: int = NONE) -> bytes:
    """A message set of `records` at their offsets, as one wrapper if compressed.

    Args:
        magic: 0 or 1.
        records: at least one; all have one timestamp type.
        compression: code 0 to 3, zstd does not exist in these formats.
    """
    if compression == NONE:
        return b"".join(write_message(magic, record.offset, record) for record in records)
    first, last = records[0].offset, records[-1].offset
    shift = first if magic == MAGIC_V1 else 0
    inner = b"".join(write_message(magic, record.offset - shift, record) for record in records)
    timestamp = max(record.timestamp for record in records)
    stamp = (timestamp, records[0].timestamp_type)
    return write_wrapper(magic, last, inner, compression, stamp)


def write_wrapper(
    magic: int, last_offset: int, inner: Buffer, compression: int, stamp: tuple[int, int]
) -> bytes:
    """A compressed message that holds the message set `inner`.

    Args:
        magic: 0 or 1.
        last_offset: of the last inner message, absolute.
        inner: with offsets from 0 in magic 1, absolute ones in magic 0.
        compression: code 1 to 3.
        stamp: largest timestamp, and timestamp type.
    """
    value = compress(compression, inner)
    if compression == LZ4 and magic == MAGIC_V0:
        value = with_lz4_checksum_of_magic_0(value)
    wrapper = Record(last_offset, *stamp, None, bytes(value))
    return write_message(magic, last_offset, wrapper, compression)
